"""EASY backfill: the head of the queue has a reservation that jobs behind it may not delay.

The reservation names particular cores at a particular time: the earliest time at which the head
fits if every grant lasts to its end. It prefers cores that are in use until then (`reserving`), so
that idle cores stay available to other jobs. A job behind the head starts now if it ends before the
reservation begins, or if it fits beside the reserved cores. If the head must wait for a grant
without an end, the reservation has no time. Its cores are still protected from other jobs without
an end, because otherwise the head could wait for ever.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from flux_trio.formats.meanings import Time
from flux_trio.policies.fifo import start_from_head
from flux_trio.policies.policy import Decisions
from flux_trio.policies.pool import Pool
from flux_trio.policies.reserving import cores_reserved, earliest_start
from flux_trio.policies.shape import Allocation, Shape
from flux_trio.policies.state import Grant, Job, State

BACKFILL_DEPTH: Final = 1000
"""Number of jobs examined behind the head: about 0.1 ms of comparisons a turn. Jobs further back
are examined when they advance to this place."""


class Reservation(msgspec.Struct):
    """A time and cores reserved for the head of the queue.

    All fields are state: a reservation stays as it was made until resources come back or a job
    starts that ends in time, and another choice may be the right one by now.
    """

    start: Time
    """Seconds since the Unix epoch; infinity if the head waits for a grant without an end."""
    is_overdue: bool = False
    """The head waits only for grants whose ends had passed when the reservation was made."""
    kept: Allocation | None = None
    """The reserved cores; None until a job needs to know them."""

    def ends_in_time(self, end: float) -> bool:
        """Return whether a job that ends at `end` may use the reserved cores."""
        return end <= self.start and end < math.inf

    def choose_again(self) -> None:
        """Choose the cores anew: a grant ended, or a grant began that ends in time.

        Without a known time the cores stay. Otherwise one job without an end after another could
        take a reserved core.
        """
        if self.start < math.inf:
            self.kept = None


class Misfits(msgspec.Struct):
    """Shapes that did not fit; they are not examined again until resources are freed.

    `anywhere` is derived: until then these shapes would not fit again. `beside` is state: the
    reservation may choose other cores, and an equal job that comes later must not start before the
    one that did not fit.
    """

    anywhere: set[Shape] = set()
    beside: set[Shape] = set()
    """Shapes that did not fit beside the reservation."""


class Behind(msgspec.Struct):
    """What the next turn knows of the jobs behind the head, unless it examines all of them."""

    beside: set[Shape] = set()
    """See `Misfits`."""
    fresh: list[Job] = []
    """Jobs that have arrived since the last turn, in queue order."""
    gone: int = 0
    """Jobs that left from behind the head; as many moved up into the depth."""


class Head(msgspec.Struct):
    """A head that did not fit and still waits, as it is dumped."""

    job: Job
    reservation: Reservation | None
    behind: Behind | None
    """None if the next turn examines all jobs."""


class Easy:
    """Backfills behind one reservation; examines a job again only if its chance has changed.

    Its state is the blocked head, the head's reservation, and which of the jobs behind the head are
    to be examined (`Head`). This state is history: a new reservation might begin at another time or
    take other cores. Without a blocked head there is no such history, since a head that becomes
    blocked gets a new reservation, and all jobs are examined. The spare cores, and the shapes that
    did not fit anywhere, are derived.
    """

    def __init__(self, state: State) -> None:
        self.__setstate__((state, None))

    def __getstate__(self) -> tuple[State, Head | None]:
        job = self._blocked
        if job is None or self._state.queue.get(job.id) is not job:
            return self._state, None
        behind = None
        if not self._look_again:
            behind = Behind(self._misfits.beside, sorted(self._fresh, key=_rank), self._gone)
        return self._state, Head(job, self._reservation, behind)

    def __setstate__(self, state: tuple[State, Head | None]) -> None:
        self._state, head = state
        self._blocked: Job | None = head.job if head else None  # the head, if it did not fit
        self._reservation = head.reservation if head else None  # None if the head cannot get one
        self._spare: Pool | None = None  # free cores that are not reserved; None until needed
        behind = head.behind if head else None
        self._look_again = behind is None  # jobs that did not fit may fit now
        behind = behind or Behind()
        self._misfits = Misfits(beside=behind.beside)
        self._fresh = dict.fromkeys(behind.fresh)
        self._gone = behind.gone

    def arrived(self, job: Job, /) -> None:
        """Examine `job` in the next turn."""
        self._fresh[job] = None

    def left(self, job: Job, /) -> None:
        """Forget `job`."""
        self._fresh.pop(job, None)
        self._gone += self._state.queue.is_within(job, BACKFILL_DEPTH + 1)

    def freed(self, grant: Grant, /) -> None:
        """Examine all jobs again.

        A grant that was due before the reservation begins cannot make it earlier: the head did not
        fit at that grant's end either, without the resources that end later. But the head may wait
        for grants that are overdue: then each may be the last one.
        """
        self._look_again = True
        reservation = self._reservation
        if reservation is None or reservation.is_overdue or grant.end >= reservation.start:
            self._blocked = None
        else:
            self._choose_again(reservation)

    def reshaped(self) -> None:
        """Examine all jobs again and make a new reservation."""
        self._look_again = True
        self._blocked = None

    def decide(self, now: float) -> Decisions:
        """Start jobs from the head on, then jobs behind the head that do not delay it."""
        decisions = Decisions()
        blocked_before = self._blocked
        self._blocked = start_from_head(self._state, now, decisions, blocked_before)
        if self._blocked is None:
            self._fresh.clear()
            return decisions
        if self._blocked is not blocked_before or decisions.started:  # the head or the pool is new
            start = earliest_start(self._state, self._blocked.shape, now)
            self._reservation = None if start is None else Reservation(start, start <= now)
            self._spare = None
            self._look_again = True
        while behind := self._behind():
            self._backfill(behind, now, decisions)
        start = self._reservation.start if self._reservation else math.inf
        decisions.waiting[self._blocked] = start if start < math.inf else None
        return decisions

    def _behind(self) -> list[Job]:
        """Return the jobs behind the head whose chance to start has changed, in queue order."""
        queue, depth = self._state.queue, BACKFILL_DEPTH + 1
        if self._look_again:
            jobs = queue.places(1, depth)
            self._misfits = Misfits()
        else:
            found = {job for job in self._fresh if queue.is_within(job, depth)} - {self._blocked}
            found.update(queue.places(max(1, depth - self._gone), depth))
            jobs = sorted(found, key=_rank)
        self._look_again = False
        self._gone = 0
        self._fresh.clear()
        return jobs

    def _backfill(self, jobs: list[Job], now: float, decisions: Decisions) -> None:
        anywhere = self._misfits.anywhere
        for job in jobs:
            if job.shape in anywhere:
                continue
            allocation = self._place(job, now)
            if allocation is None:
                continue
            grant = self._state.start(job, allocation, now)
            decisions.started.append((job, grant))
            self._gone += 1
            if self._reservation:
                self._began(grant, self._reservation)

    def _began(self, grant: Grant, reservation: Reservation) -> None:
        if reservation.ends_in_time(grant.end):
            self._choose_again(reservation)
        elif self._spare is not None:
            self._spare.reserve_free(grant.allocation)

    def _choose_again(self, reservation: Reservation) -> None:
        reservation.choose_again()
        self._spare = None

    def _place(self, job: Job, now: float) -> Allocation | None:
        """Return an allocation for `job` that does not delay the head; None if there is none."""
        reservation, head = self._reservation, self._blocked
        end = self._state.end_of(job, now)
        if reservation is None or head is None or reservation.ends_in_time(end):
            return _find(self._state.pool, job.shape, self._misfits.anywhere)
        if job.shape in self._misfits.beside:
            return None
        if _find(self._state.pool, job.shape, self._misfits.anywhere) is None:
            return None
        if self._spare is None:
            self._spare = self._spare_beside(reservation, head)
        return _find(self._spare, job.shape, self._misfits.beside)

    def _spare_beside(self, reservation: Reservation, head: Job) -> Pool:
        spare = self._state.pool.copy()
        if reservation.kept is None:
            reservation.kept = cores_reserved(self._state, head.shape, reservation.start)
        assert reservation.kept is not None, "jobs started since then end in time or fit beside it"
        spare.reserve_free(reservation.kept)
        return spare


def _find(pool: Pool, shape: Shape, misfits: set[Shape]) -> Allocation | None:
    allocation = pool.find(shape)
    if allocation is None:
        misfits.add(shape)
    return allocation


def _rank(job: Job) -> tuple[int, float, int]:
    return job.rank
