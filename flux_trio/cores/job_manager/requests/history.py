"""job-manager.history.get: the ids of a user's jobs, the latest first, as `flux job last` asks.

The lists are made when first asked for, from the index of finished jobs, and kept up to date from
there on: 8 bytes a job. Requests wait while the index is read.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from flux_trio.cores.job_index import ENDED, Ended, read_ended
from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.cores.lookups import KeysPage, page_in
from flux_trio.formats import Event
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    expect_payload,
    respond,
    respond_error,
    topics,
)
from flux_trio.protocols import JobEvent, JobState

PAGE_JOBS: Final = 2000  # about 3 ms of this service's time

_SLICE: Final = re.compile(r"\[(-?\d*)(?::(-?\d*)(?::(-?\d*))?)?\]")

_Ids = array  # of job ids, "Q", the smallest first


class HistoryGet(msgspec.Struct):
    """The request: a slice in Python's spelling, such as "[:4]"."""

    slice: str


class HistoryRead(msgspec.Struct, frozen=True):
    """A page of the index was asked for."""


class History:
    """Answers history requests."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lists: dict[int, _Ids[int]] | None = None  # by user, once they were asked for
        self._read: dict[int, set[int]] = {}  # by user, while the index is read
        self._waiting: list[tuple[Request, slice]] = []  # meanwhile
        ledger.tell_of(JobEvent.VALIDATE, self._accepted)

    def get(self, request: Request) -> None:
        """{"jobs": ids} of the sender's own jobs."""
        chosen = _read_slice(expect_payload(request, HistoryGet).slice)
        if self._lists is not None:
            self._answer(request, chosen)
            return
        self._waiting.append((request, chosen))
        if len(self._waiting) == 1:
            self._read = {}
            self._ask("")

    def forget(self, sender: str) -> None:
        """Nobody waits there any more; the index is read to its end all the same."""
        self._waiting = [each for each in self._waiting if each[0].sender != sender]

    def purged(self, jobs: Iterable[Ended]) -> None:
        """These are no more."""
        for job in jobs:
            self._read.get(job.userid, set()).discard(job.id)
            ids = (self._lists or {}).get(job.userid, array("Q"))
            at = bisect_left(ids, job.id)
            if at < len(ids) and ids[at] == job.id:
                del ids[at]

    def take_page(self, response: Response) -> list[Any]:
        """A part of the index has come."""
        try:
            page = page_in(response)
        except FluxError as error:
            waiting, self._waiting = self._waiting, []
            for request, _ in waiting:
                self._ledger.send(respond_error(request, error.errnum, error.text))
            return []
        for key, value in page.items:
            told = read_ended(key, value)
            self._read.setdefault(told.userid, set()).add(told.id)
        if page.is_last(PAGE_JOBS):
            self._has_read()
        else:
            self._ask(page.keys[-1])
        return []

    def _ask(self, after: str) -> None:
        page = KeysPage(ENDED, PAGE_JOBS, after)
        self._ledger.ask_for(topics.KVS_PAGE, page.payload, HistoryRead())

    def _has_read(self) -> None:
        """Active jobs come to the others, and what ended while the index was read."""
        read, self._read = self._read, {}
        for job in self._ledger.known():
            if job.state != JobState.NEW:
                read.setdefault(job.userid, set()).add(job.id)
        self._lists = {userid: array("Q", sorted(ids)) for userid, ids in read.items()}
        waiting, self._waiting = self._waiting, []
        for request, chosen in waiting:
            self._answer(request, chosen)

    def _answer(self, request: Request, chosen: slice) -> None:
        ids = (self._lists or {}).get(request.userid, array("Q"))
        # slices count from the latest
        self._ledger.send(respond(request, {"jobs": ids[::-1][chosen].tolist()}))

    def _accepted(self, job: ActiveJob, _event: Event) -> None:
        if self._lists is not None:
            insort(self._lists.setdefault(job.userid, array("Q")), job.id)


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
