"""The journal: every event as it becomes durable, for services that follow jobs.

`job-manager.events-journal` is a stream of {"events": [[id, place, event], ...]}, one response a
turn; a request with {"allow": {NAME: 1, ...}} is told of those events alone. `place` counts the
job's events from 0, so that a follower that also reads eventlogs can tell what it has seen. The
stream starts with an empty list and tells nothing of the past. Annotations are in no eventlog
before `alloc`; each change of a job's is an event `annotations` with place -1, its context
{"annotations": all of them}.

A response that tells everything has for the jobs whose `clean` is in it `ended`: what the index of
finished jobs keeps of each (`services.job_index.Ended`), so that a follower need not read it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.formats import Event
from flux_trio.messages import Errno, FluxError, Request, expect_payload, respond_stream

ANNOTATIONS = "annotations"


class Follow(msgspec.Struct):
    """The job-manager.events-journal request, as flux-core has it."""

    allow: dict[str, int] | None = None


class Journal(Part):
    """Followers, what each wants, and what this turn has for them."""

    followers: dict[tuple[str, int], tuple[Request, frozenset[str] | None]]
    entries: list[list[Any]]  # of this turn
    names: set[str]  # of events among them

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.followers = {}
        self.entries = []
        self.names = set()
        ledger.on_logged.append(self._logged)
        ledger.on_annotated.append(self._annotated)

    def follow(self, request: Request) -> None:
        """Open a stream."""
        if not request.is_streaming:
            raise FluxError(Errno.EPROTO, "events-journal needs the streaming flag")
        allow = expect_payload(request, Follow).allow
        wanted = None if allow is None else frozenset(allow)
        self.followers[request.sender, request.matchtag] = (request, wanted)
        self._ledger.send(respond_stream(request, {"events": []}))

    def forget(self, sender: str) -> None:
        """A follower is gone."""
        for key in [key for key in self.followers if key[0] == sender]:
            del self.followers[key]

    def end_turn(self) -> None:
        """Tell the followers."""
        entries, self.entries = self.entries, []
        names, self.names = self.names, set()
        if not entries:
            return
        over = [msgspec.to_builtins(job) for job in self._ledger.over]
        for request, wanted in self.followers.values():
            if wanted is None:
                told = entries
            elif wanted.isdisjoint(names):
                continue
            else:
                told = [entry for entry in entries if entry[2]["name"] in wanted]
            if told:
                payload: dict[str, Any] = {"events": told}
                if wanted is None and over:
                    payload["ended"] = over
                self._ledger.send(respond_stream(request, payload))

    def _logged(self, job: ActiveJob, event: Event) -> None:
        if self.followers:
            self.names.add(event.name)
            # by hand, since every event passes here
            told = {"timestamp": event.timestamp, "name": event.name}
            if event.context is not None:
                told["context"] = event.context
            self.entries.append([job.id, job.nevents - 1, told])

    def _annotated(self, job: ActiveJob) -> None:
        if self.followers:
            self.names.add(ANNOTATIONS)
            context = {"annotations": job.annotations or {}}
            told = {"timestamp": self._ledger.now, "name": ANNOTATIONS, "context": context}
            self.entries.append([job.id, -1, told])
