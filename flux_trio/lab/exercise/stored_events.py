"""A router that notes the events of jobs as they are stored: a foreign job manager cannot do so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from flux_trio.broker import Peer
from flux_trio.formats import EVENTLOG, Event, FormatError, parse_eventlog
from flux_trio.lab.exercise.refusing import RefusingRouter
from flux_trio.messages import Message, Request, topics
from flux_trio.trace import Kind, Trace
from flux_trio.trace.kvs import job_with, operations_of


class EventNotingRouter(RefusingRouter):
    """The router of an instance whose job manager is exercised.

    An event is noted before the request to store it. Job ingest stores the first one of a job,
    submit: it is noted with the first one of the job manager. All lives of the program have one
    name, that of the module: job managers know no other way to take each other's place.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._submits: dict[int, Event] = {}

    def unique_name(self, name: str) -> str:
        if name in self.clients or topics.JOB_MANAGER in self.peers:
            return super().unique_name(name)
        return topics.JOB_MANAGER

    def is_program(self, name: str) -> bool:
        return name == topics.JOB_MANAGER or super().is_program(name)

    def route(self, sender: Peer, message: Message) -> None:
        if isinstance(message, Request) and message.topic in topics.COMMITS:
            for jobid, event in _stored_by(message.payload):
                if self.is_program(sender.name):
                    self._note(sender.name, jobid, event)
                else:
                    self._submits[jobid] = event
        super().route(sender, message)

    def _note(self, party: str, jobid: int, event: Event) -> None:
        events = [event]
        if jobid in self._submits:
            events.insert(0, self._submits.pop(jobid))
        for each in events:
            data = {"id": jobid, "name": each.name, "context": each.context or {}}
            self.trace.note(Kind.EVENT, party, data | {"timestamp": each.timestamp})


def _stored_by(payload: Any) -> Iterator[tuple[int, Event]]:
    """Yield the events that a commit appends to eventlogs of jobs, with the ids of the jobs."""
    for how, key, text in operations_of(payload if isinstance(payload, dict) else {}):
        jobid = job_with(key, EVENTLOG) if how == "append" else None
        if jobid is None:
            continue
        with suppress(FormatError):  # then it is no event of a job
            for event in parse_eventlog(text or ""):
                yield jobid, event
