"""EASY backfill: the head of the queue has a reservation; others may pass that do not delay it.

The reservation is made of particular cores at a particular time, the earliest at which the head
fits if every grant lasts to its end. Cores that are in use until then are reserved first
(`reserving`), so that idle ones stay open to others. A job behind the head starts now if it ends by
then, or if it fits beside those cores. A job without an end, or with a grant without one in its
way, counts as never ending: then the reservation has no time, but its cores are still kept clear of
others that never end, lest the head wait for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from flux_trio.policies.fifo import start_from_head
from flux_trio.policies.policy import Decisions
from flux_trio.policies.pool import Pool
from flux_trio.policies.reserving import cores_reserved, earliest_start
from flux_trio.policies.shape import Allocation, Shape
from flux_trio.policies.state import Grant, Job, State

BACKFILL_DEPTH: Final = 1000
"""Jobs behind the head that are looked at: about 0.1 ms of comparisons a turn. Those further back
are looked at when they have come this far."""


@dataclass(slots=True)
class Reservation:
    """A time and cores kept for the head of the queue."""

    start: float
    """Seconds since the Unix epoch; infinity when a grant in the way has no end."""
    kept: Allocation | None = None
    """The cores; None until a job asks what is spare."""
    spare: Pool | None = None
    """What is free now and not kept; None until a job asks."""

    def ends_in_time(self, end: float) -> bool:
        """Whether a job that ends at `end` may have the cores that are kept."""
        return end <= self.start and end < math.inf

    def choose_again(self) -> None:
        """Other cores may be better now: a grant ended, or one began that ends in time.

        The cores stay when no time is known: otherwise one job without an end after the other
        could take a core that was kept.
        """
        if self.start < math.inf:
            self.kept = None
        self.spare = None


@dataclass(slots=True)
class Misfits:
    """Shapes that did not fit; they will not until something is freed."""

    anywhere: set[Shape] = field(default_factory=set)
    beside: set[Shape] = field(default_factory=set)
    """Did not fit beside the reservation."""


class Easy:
    """Backfills behind one reservation; looks again only at what could have changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._blocked: Job | None = None  # the head, when it did not fit
        self._reservation: Reservation | None = None  # for it; None if it cannot get one
        self._misfits = Misfits()
        self._fresh: dict[Job, None] = {}  # came since the last look, in order of arrival
        self._look_again = False  # something was freed: also jobs that did not fit may fit
        self._gone = (
            0  # jobs behind the head that went: as many moved up to where they are looked at
        )

    def arrived(self, job: Job, /) -> None:
        """Look at `job`."""
        self._fresh[job] = None

    def left(self, job: Job, /) -> None:
        """Do not look at `job`."""
        self._fresh.pop(job, None)
        self._gone += self._state.queue.is_within(job, BACKFILL_DEPTH + 1)

    def freed(self, grant: Grant, /) -> None:
        """Look at everything again.

        A grant that was to end before the reservation begins cannot bring it forward: then too, the
        head did not fit without what is waited for.
        """
        self._look_again = True
        if self._reservation is None or grant.end >= self._reservation.start:
            self._blocked = None
        else:
            self._reservation.choose_again()

    def reshaped(self) -> None:
        """Look at everything again, and make another reservation."""
        self._look_again = True
        self._blocked = None

    def decide(self, now: float) -> Decisions:
        """Start jobs from the head on, then those behind that delay nobody ahead."""
        decisions = Decisions()
        looked_at = self._blocked
        self._blocked = start_from_head(self._state, now, decisions, looked_at)
        if self._blocked is None:
            self._fresh.clear()
            return decisions
        if self._blocked is not looked_at or decisions.started:  # those came in ahead of it
            start = earliest_start(self._state, self._blocked.shape, now)
            self._reservation = None if start is None else Reservation(start)
            self._look_again = True
        while behind := self._behind():
            self._backfill(behind, now, decisions)
        start = self._reservation.start if self._reservation else math.inf
        decisions.waiting[self._blocked] = start if start < math.inf else None
        return decisions

    def _behind(self) -> list[Job]:
        """The jobs behind the head that may start though they did not before, in order."""
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
        """Where `job` can go without delaying the head; None if nowhere."""
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
        assert reservation.kept is not None, "since it fitted, jobs began in time or beside only"
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
