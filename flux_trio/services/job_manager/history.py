"""job-manager.history.get: the ids of a user's jobs, the latest first, as `flux job last` asks.

The lists are made when first asked for, and kept up to date from there on.
"""

from __future__ import annotations

import re
from bisect import insort
from itertools import chain
from typing import Final

import msgspec

from flux_trio.formats import Event
from flux_trio.messages import Errno, FluxError, Request, expect_payload, respond
from flux_trio.protocols import JobEvent, JobState
from flux_trio.services.job_manager.ledger import ActiveJob, Ledger

_SLICE: Final = re.compile(r"\[(-?\d*)(?::(-?\d*)(?::(-?\d*))?)?\]")


class HistoryGet(msgspec.Struct):
    """The request: a slice in Python's spelling, such as "[:4]"."""

    slice: str


class History:
    """Answers history requests."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ids: dict[int, list[int]] | None = None  # by user, oldest first
        ledger.tell_of(JobEvent.VALIDATE, self._accepted)

    def get(self, request: Request) -> None:
        """{"jobs": ids} of the sender's own jobs."""
        chosen = _read_slice(expect_payload(request, HistoryGet).slice)
        ids = self._lists().get(request.userid, [])[::-1]
        self._ledger.send(respond(request, {"jobs": ids[chosen]}))

    def _lists(self) -> dict[int, list[int]]:
        if self._ids is None:
            jobs = self._ledger.jobs.values()
            active = ((job.id, job.userid) for job in jobs if job.state != JobState.NEW)
            self._ids = {}
            for jobid, userid in sorted(chain(self._ledger.inactive.items(), active)):
                self._ids.setdefault(userid, []).append(jobid)
        return self._ids

    def _accepted(self, job: ActiveJob, _event: Event) -> None:
        if self._ids is not None:
            insort(self._ids.setdefault(job.userid, []), job.id)


def _read_slice(text: str) -> slice:
    match = _SLICE.fullmatch(text)
    if match is None:
        raise FluxError(Errno.EINVAL, f"expected a slice such as [:4], got {text!r}")
    numbers = [int(each) if each else None for each in match.groups()]
    if ":" not in text:
        first = numbers[0]
        if first is None:
            raise FluxError(Errno.EINVAL, f"expected a slice such as [:4], got {text!r}")
        return slice(first, first + 1 or None)
    if numbers[2] == 0:
        raise FluxError(Errno.EINVAL, "slice step cannot be zero")
    return slice(*numbers)
