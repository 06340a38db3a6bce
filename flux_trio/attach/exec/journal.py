"""The job manager's journal in our own shape, and what it tells of another execution service.

flux-core does not tell a service that another one has taken its place: it is just not asked any
more. But the journal tells of each job that starts. A job that starts and was not asked for here is
another service's.
"""

from __future__ import annotations

from typing import Any

from flux_trio.attach.bridge import Bridge
from flux_trio.editions import journal, rfc21
from flux_trio.formats import Event, format_fluid
from flux_trio.messages import FluxError, Level, Payload, Request, Response
from flux_trio.protocols import JobEvent


class Journal:
    """The journal that the core follows; `asked` jobs are those of this service."""

    def __init__(self, bridge: Bridge[Any]) -> None:
        self._bridge = bridge
        self._asked: set[int] = set()  # until their final release
        self._is_live = False  # the backlog is over

    def asked(self, jobid: int) -> None:
        """Note that flux-core asks for a job here."""
        self._asked.add(jobid)

    def is_asked(self, jobid: int) -> bool:
        return jobid in self._asked

    def wanted(self, request: Request) -> Payload:
        """Return what the core and this service want, as flux-core is asked for it."""
        self._is_live = False
        follow = journal.FOLLOW.read(request)
        allow = {**(follow.allow or {}), JobEvent.START.value: 1}
        return journal.FOLLOW_EVENTS.write(journal.FollowEvents(allow))

    def entries(self, response: Response) -> dict[str, Any] | None:
        """Return a response in our own shape; None, with a line for the log, if it is malformed."""
        try:
            read = journal.JOB_EVENTS.read(response)
        except FluxError as error:
            self._bridge.log(Level.ERR, error.text)
            return None
        if read.id == journal.BACKLOG_IS_OVER:
            self._is_live = True
        for event in read.events:
            self._look_at(read.id, event)
        entries = [
            [read.id, 0, journal.event_object(event)]
            for event in read.events
            if event.name != JobEvent.START
        ]
        return {"events": entries}

    def _look_at(self, jobid: int, event: Event) -> None:
        if rfc21.is_final_release(event.name, event.context):
            self._asked.discard(jobid)
        elif event.name == JobEvent.START and self._is_live and jobid not in self._asked:
            name = format_fluid(jobid, "f58")
            self._bridge.end = (
                f"another execution service has taken over: it has started job {name}"
            )
