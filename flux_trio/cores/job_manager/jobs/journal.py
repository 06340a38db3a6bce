"""The journal: every event as it becomes durable, for services that follow jobs.

`job-manager.journal` is a stream with at most one response a turn (`editions.journal`). The
stream starts with an empty response; past events are not sent. A request may name the events that
its sender wants; the others are then left out. A follower of all events also gets, with each
`clean`, the job's entry in the index of finished jobs, so that it need not read the index.
"""

from __future__ import annotations

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.editions import journal
from flux_trio.formats import Event
from flux_trio.formats.meanings import Matchtag, Peer
from flux_trio.messages import Errno, FluxError, Request, respond_stream


class Journal(Part):
    """The followers, the events that each wants, and the events of this turn."""

    followers: dict[tuple[Peer, Matchtag], tuple[Request, frozenset[str] | None]]
    entries: list[journal.Entry]  # of this turn

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.followers = {}
        self.entries = []
        self._last: Event | None = None
        self._last_object: journal.EventObject = {}  # of `_last`
        ledger.on_logged.append(self._logged)
        ledger.on_annotated.append(self._annotated)

    def follow(self, request: Request) -> None:
        if not request.is_streaming:
            raise FluxError(Errno.EPROTO, f"{request.topic} needs the streaming flag")
        asked = journal.FOLLOW.read(request)
        wanted = None if asked.allow is None else frozenset(asked.allow)
        self.followers[request.sender, request.matchtag] = (request, wanted)
        self._ledger.send(respond_stream(request, journal.write([])))

    def forget(self, sender: str) -> None:
        """Forget a peer that is gone."""
        for key in [key for key in self.followers if key[0] == sender]:
            del self.followers[key]

    def end_turn(self) -> None:
        """Send the followers the entries of this turn that they want."""
        if not self.entries:
            return
        entries, self.entries = self.entries, []
        for request, wanted in self.followers.values():
            chosen = entries if wanted is None else journal.named(entries, wanted)
            if chosen:
                payload = journal.write(chosen, self._ledger.over if wanted is None else ())
                self._ledger.send(respond_stream(request, payload))

    def _logged(self, job: ActiveJob, event: Event) -> None:
        if self.followers:
            if event is not self._last:  # often many jobs have the same
                self._last, self._last_object = event, journal.event_object(event)
            self.entries.append([job.id, job.nevents - 1, self._last_object])

    def _annotated(self, job: ActiveJob) -> None:
        if self.followers:
            self.entries.append(journal.annotated(job.id, self._ledger.now, job.annotations or {}))
