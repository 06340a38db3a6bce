"""The input of scheduling decisions: waiting requests, resources, and grants that hold resources.

A `Schedule` and its policy share one `State`. Times are seconds since the Unix epoch; a grant
without an end ends at infinity.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from functools import lru_cache

import msgspec
from sortedcontainers import SortedKeyList, SortedList

from flux_trio.formats.meanings import JobId, Stamp, Time
from flux_trio.policies.pool import Pool
from flux_trio.policies.shape import Allocation, Shape

Rank = tuple[int, float, int]
"""Queue order: priority downward, then submit time, then id (RFC 27, Design Criteria)."""

_downward = lru_cache(maxsize=1024)(operator.neg)  # shares the numbers: many jobs have the same


class Job(msgspec.Struct, eq=False, gc=False):
    """A request that waits for resources."""

    id: JobId
    shape: Shape
    duration: float
    """Seconds from start to end; infinity if the request does not say."""
    priority: int
    t_submit: Stamp
    """0.0 if the request does not say; then the ids, which ascend in time, decide."""
    queue: str = ""
    """Name of its queue (RFC 33); "" for the anonymous queue."""

    @property
    def rank(self) -> Rank:
        """Return the job's place in the order of the queue."""
        return (_downward(self.priority), self.t_submit, self.id)


class Queue:
    """Jobs in the order of service, and by id. The jobs are state; their order is derived."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._order: SortedList[Rank] = SortedList()  # a rank contains the id

    def __getstate__(self) -> list[Job]:
        return list(self)

    def __setstate__(self, jobs: list[Job]) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._order = SortedList(job.rank for job in jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, id_: int) -> bool:
        return id_ in self._jobs

    def __iter__(self) -> Iterator[Job]:
        return (self._jobs[id_] for _, _, id_ in self._order)

    def get(self, id_: int) -> Job | None:
        """Return the job `id_`; None if it does not wait."""
        return self._jobs.get(id_)

    @property
    def head(self) -> Job | None:
        return self._jobs[self._order[0][2]] if self._order else None

    def places(self, start: int, stop: int) -> list[Job]:
        """Return the jobs in places `start` (from 0) to `stop`, without `stop`."""
        return [self._jobs[id_] for _, _, id_ in self._order.islice(start, stop)]

    def place(self, job: Job) -> int:
        """Return the number of jobs ahead of `job`, which must be in the queue."""
        ahead: int = self._order.bisect_left(job.rank)
        return ahead

    def is_within(self, job: Job, count: int) -> bool:
        """Return whether `job` is one of the first `count`."""
        return len(self) <= count or job.rank < self._order[count]

    def add(self, job: Job) -> None:
        """Insert `job`, which must be new, at its place."""
        self._jobs[job.id] = job
        self._order.add(job.rank)

    def remove(self, job: Job) -> None:
        """Remove `job`, which must be in the queue."""
        del self._jobs[job.id]
        self._order.remove(job.rank)


class Grant(msgspec.Struct, eq=False, gc=False):
    """Resources that a job holds."""

    id: JobId
    allocation: Allocation
    end: Time
    """Expected end by the wall clock's current setting; infinity if it is not known."""
    stepped: float = 0.0
    """Seconds that the wall clock was set by since the job got its resources."""


class Grants:
    """Grants by id, and in order of their ends for policies that plan ahead.

    The grants are state, in the order in which they were made: holders of ranks are reported in
    this order. Their order by end is derived. The sum of the steps of the clock is state: without
    grants it could not be computed.
    """

    def __init__(self) -> None:
        self._grants: dict[int, Grant] = {}
        self._by_end: SortedKeyList | None = None  # made on the first use, then maintained
        self.stepped = 0.0  # seconds that the wall clock was set by

    def __getstate__(self) -> tuple[float, list[Grant]]:
        return self.stepped, list(self._grants.values())

    def __setstate__(self, state: tuple[float, list[Grant]]) -> None:
        self.stepped, grants = state
        self._grants = {grant.id: grant for grant in grants}
        self._by_end = None

    def __len__(self) -> int:
        return len(self._grants)

    def __contains__(self, id_: int) -> bool:
        return id_ in self._grants

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants.values())

    def get(self, id_: int) -> Grant | None:
        """Return the grant of job `id_`; None if it holds nothing."""
        return self._grants.get(id_)

    def by_end(self) -> Iterator[Grant]:
        """Yield all grants, the earliest end first."""
        return iter(self._sorted_by_end())

    def ending_by(self, time: float) -> Iterator[Grant]:
        """Yield the grants that end at `time` or before, the latest end first."""
        ending: Iterator[Grant] = self._sorted_by_end().irange_key(
            max_key=(time, math.inf), reverse=True
        )
        return ending

    def _sorted_by_end(self) -> SortedKeyList:
        if self._by_end is None:
            self._by_end = SortedKeyList(self._grants.values(), key=_end_and_id)
        return self._by_end

    def add(self, grant: Grant) -> None:
        """Add the grant of a job that holds nothing yet."""
        self._grants[grant.id] = grant
        if self._by_end is not None:
            self._by_end.add(grant)

    def replace(self, grant: Grant, other: Grant) -> None:
        """Put `other`, of the same job, in the place of `grant`."""
        self._grants[grant.id] = other
        if self._by_end is not None:
            self._by_end.remove(grant)
            self._by_end.add(other)

    def remove(self, grant: Grant) -> None:
        """Remove `grant`, which must be known."""
        del self._grants[grant.id]
        if self._by_end is not None:
            self._by_end.remove(grant)


def _end_and_id(grant: Grant) -> tuple[float, int]:
    return (grant.end, grant.id)


class State:
    """Queue, pool and grants, kept consistent with each other; all three are state."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.pool = Pool()
        self.grants = Grants()

    @property
    def horizon(self) -> float:
        """Return when the whole instance ends; infinity if that is not set."""
        inventory = self.pool.inventory
        expiration = inventory.expiration if inventory else 0.0
        return expiration + self.grants.stepped if expiration else math.inf

    def end_of(self, job: Job, start: float) -> float:
        """Return the latest end of `job` if it starts at `start`; after `start`, as R requires."""
        return max(min(start + job.duration, self.horizon), math.nextafter(start, math.inf))

    def start(self, job: Job, allocation: Allocation, now: float) -> Grant:
        """Move `job` from the queue to a grant of `allocation`; PoolError if it is not free."""
        self.pool.mark_allocated(allocation)
        self.queue.remove(job)
        grant = Grant(job.id, allocation, self.end_of(job, now))
        self.grants.add(grant)
        return grant


class LaneState(State):
    """The part of a state that belongs to one queue: it has the same pool and grants.

    Its state is the whole state and the name of the queue. The jobs in the queue are derived: they
    are those of the whole state that name it.
    """

    def __init__(self, whole: State, name: str) -> None:
        self._whole = whole
        self._name = name
        self.queue = Queue()
        self.pool, self.grants = whole.pool, whole.grants

    def __getstate__(self) -> tuple[State, str]:
        return self._whole, self._name

    def __setstate__(self, state: tuple[State, str]) -> None:
        self._whole, self._name = state
        self.queue = Queue()
        self.pool, self.grants = self._whole.pool, self._whole.grants
        for job in self._whole.queue:
            if job.queue == self._name:
                self.queue.add(job)
