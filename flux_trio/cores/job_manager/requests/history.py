"""job-manager.history.get: the ids of a user's jobs, the latest first, as `flux job last` asks.

The first request makes the lists from the index of finished jobs; from then on they are kept up to
date, at 8 bytes for each job. Requests wait while the index is read.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from flux_trio.cores.job_index import ENDED, read_ended
from flux_trio.cores.job_manager.calls import HistoryRead
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.kvs_calls import page_in, read_page
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.editions import job_requests
from flux_trio.editions.journal import Ended
from flux_trio.formats import Event
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, FluxError, Request, Response, respond, respond_error
from flux_trio.protocols import JobEvent, JobState

PAGE_JOBS: Final = 2000  # about 3 ms of this service's time

_NUMBER: Final = r"(-?\d{0,18})"  # no user has more jobs; Python reads no number of any length
_SLICE: Final = re.compile(rf"\[{_NUMBER}(?::{_NUMBER}(?::{_NUMBER})?)?\]")


class JobIds:
    """Job ids in ascending order, 8 bytes each."""

    __slots__ = ("_ids",)

    def __init__(self, jobids: Iterable[int] = ()) -> None:
        self._ids = array("Q", sorted(jobids))

    def __getstate__(self) -> list[JobId]:
        return self._ids.tolist()

    def __setstate__(self, jobids: list[JobId]) -> None:
        self._ids = array("Q", jobids)

    def add(self, jobid: int) -> None:
        """Add an id, which must not be here."""
        insort(self._ids, jobid)

    def discard(self, jobid: int) -> None:
        """Remove an id, if it is here."""
        at = bisect_left(self._ids, jobid)
        if at < len(self._ids) and self._ids[at] == jobid:
            del self._ids[at]

    def latest(self, chosen: slice) -> list[int]:
        """Return the ids in `chosen`, which counts from the latest."""
        return self._ids[::-1][chosen].tolist()


class History(Part):
    """Answers history requests."""

    lists: dict[int, JobIds] | None  # by user; None until the first request
    is_reading: bool
    read: dict[int, set[JobId]]  # by user, while the index is read
    waiting: list[tuple[Request, str]]  # requests meanwhile, each with its slice

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.lists = None
        self.is_reading = False
        self.read = {}
        self.waiting = []
        ledger.listen(JobEvent.VALIDATE, self._accepted)

    def get(self, request: Request) -> None:
        """job-manager.history.get: the ids of the sender's own jobs."""
        text = job_requests.HISTORY_GET.read(request).slice
        chosen = _read_slice(text)
        if self.lists is not None:
            self._answer(request, chosen)
            return
        self.waiting.append((request, text))
        if not self.is_reading:
            self.is_reading = True
            self.read = {}
            self._ask("")

    @property
    def by_user(self) -> dict[int, list[JobId]] | None:
        """The ids of each user's jobs, the latest first; None before the first request."""
        if self.lists is None:
            return None
        return {userid: jobids.latest(slice(None)) for userid, jobids in self.lists.items()}

    def forget(self, sender: str) -> None:
        """Drop the requests of a peer that is gone; the index is read to its end anyway."""
        self.waiting = [each for each in self.waiting if each[0].sender != sender]

    def purged(self, jobs: Iterable[Ended]) -> None:
        """Forget jobs that were purged."""
        for job in jobs:
            self.read.get(job.userid, set()).discard(job.id)
            if self.lists is not None and job.userid in self.lists:
                self.lists[job.userid].discard(job.id)

    def page_read(self, response: Response) -> None:
        """Take a page of the index."""
        try:
            page = page_in(response)
        except FluxError as error:
            self.is_reading = False
            waiting, self.waiting = self.waiting, []
            for request, _ in waiting:
                self._ledger.send(respond_error(request, error.errnum, error.text))
            return
        for key, value in page.items:
            ended = read_ended(key, value)
            self.read.setdefault(ended.userid, set()).add(ended.id)
        if page.is_last(page_size(PAGE_JOBS)):
            self._has_read()
        else:
            self._ask(page.keys[-1])

    def _ask(self, after: str) -> None:
        self._ledger.ask_kvs(read_page(ENDED, page_size(PAGE_JOBS), after), HistoryRead())

    def _has_read(self) -> None:
        """Add active jobs, and jobs that ended while the index was read; answer the requests."""
        self.is_reading = False
        read, self.read = self.read, {}
        for job in self._ledger.known():
            if job.state != JobState.NEW:
                read.setdefault(job.userid, set()).add(job.id)
        self.lists = {userid: JobIds(ids) for userid, ids in read.items()}
        waiting, self.waiting = self.waiting, []
        for request, text in waiting:
            self._answer(request, _read_slice(text))

    def _answer(self, request: Request, chosen: slice) -> None:
        ids = (self.lists or {}).get(request.userid, JobIds())
        payload = job_requests.JOB_IDS.write(job_requests.JobIds(ids.latest(chosen)))
        self._ledger.send(respond(request, payload))

    def _accepted(self, job: ActiveJob, _event: Event) -> None:
        if self.lists is not None:
            self.lists.setdefault(job.userid, JobIds()).add(job.id)


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
