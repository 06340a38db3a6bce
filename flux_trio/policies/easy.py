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
    """A time and cores reserved for the head of the queue."""

    start: Time
    """Seconds since the Unix epoch; infinity if the head waits for a grant without an end."""
    is_overdue: bool = False
    """The head waits only for grants whose ends had passed when the reservation was made."""
    kept: Allocation | None = None
    """The reserved cores; None until a job needs to know them."""
    spare: Pool | None = None
    """The free cores outside `kept`; None until a job needs to know them."""

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
        self.spare = None


class Misfits(msgspec.Struct):
    """Shapes that did not fit and cannot fit until resources are freed."""

    anywhere: set[Shape] = set()
    beside: set[Shape] = set()
    """Shapes that did not fit beside the reservation."""


class Easy:
    """Backfills behind one reservation; examines a job again only if its chance has changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._blocked: Job | None = None  # the head, if it did not fit
        self._reservation: Reservation | None = None  # of the head; None if it cannot get one
        self._misfits = Misfits()
        self._fresh: dict[Job, None] = {}  # arrived since the last turn, in order of arrival
        self._look_again = False  # resources were freed: jobs that did not fit may fit now
        self._gone = 0  # jobs that left from behind the head; as many moved up into the depth

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
            reservation.choose_again()

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
                _began(grant, self._reservation)

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
        if reservation.spare is None:
            reservation.spare = self._spare_beside(reservation, head)
        return _find(reservation.spare, job.shape, self._misfits.beside)

    def _spare_beside(self, reservation: Reservation, head: Job) -> Pool:
        spare = self._state.pool.copy()
        if reservation.kept is None:
            reservation.kept = cores_reserved(self._state, head.shape, reservation.start)
        assert reservation.kept is not None, "jobs started since then end in time or fit beside it"
        spare.take_what_is_free(reservation.kept)
        return spare


def _find(pool: Pool, shape: Shape, misfits: set[Shape]) -> Allocation | None:
    allocation = pool.find(shape)
    if allocation is None:
        misfits.add(shape)
    return allocation


def _began(grant: Grant, reservation: Reservation) -> None:
    if reservation.ends_in_time(grant.end):
        reservation.choose_again()
    elif reservation.spare is not None:
        reservation.spare.take_what_is_free(grant.allocation)


def _rank(job: Job) -> tuple[int, float, int]:
    return job.rank
