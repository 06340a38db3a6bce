"""One list that is being made, and the jobs that it wants. Data."""

from __future__ import annotations

from collections import deque

import msgspec

from flux_trio.cores.job_index import UNKNOWN, mark_of
from flux_trio.cores.job_list.exchange import Listed
from flux_trio.cores.job_list.finished import NEWEST, Place
from flux_trio.cores.streams import Stream
from flux_trio.editions import job_list
from flux_trio.editions.job_list import Row
from flux_trio.editions.journal import Ended
from flux_trio.formats.meanings import JobId, JobIds, Matchtag


class Listing(Stream):
    """One list that is being made."""

    wanted: job_list.List
    states: int  # a mask
    queues: frozenset[str]  # empty: any queue
    rows_left: int | None  # None: no limit
    constraint: str = ""  # as JSON; "" without one
    has_begun: bool = False  # a page was sent
    active: JobIds | None = None  # ids, in order, once it is begun
    at: int = 0  # index in `active` of the next job
    arrived: set[JobId] = msgspec.field(default_factory=set)  # those of `active` that ended since
    place: Place = NEWEST  # of the finished job that was looked at last
    # jobs to be read again, in parts
    retried: deque[tuple[Listed, ...]] = msgspec.field(default_factory=deque)
    rows: list[Row] = msgspec.field(default_factory=list)  # of a list in one response
    nbytes: int = 0  # of `rows`, as JSON
    pages: deque[list[Row]] = msgspec.field(default_factory=deque)  # not sent yet
    is_over: bool = False  # only the jobs in `retried` are left
    read: Matchtag = 0  # of the read of a slice, 0 if no read is under way
    is_queued: bool = False  # it is in the queue of its user

    def may_want(self, job: Ended) -> bool:
        """Return whether a finished job may be listed, by its entry in the index."""
        wanted = self.wanted
        if not wanted.is_about(job.userid):
            return False
        if wanted.results and job.result != UNKNOWN and not job.result & wanted.results:
            return False
        if wanted.name and job.name not in (UNKNOWN, mark_of(wanted.name)):
            return False
        if not self.queues or job.queue == UNKNOWN:
            return True
        return any(job.queue == mark_of(queue) for queue in self.queues)
