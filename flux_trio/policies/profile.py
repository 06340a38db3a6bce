"""The machine over time: what is free from now until the last grant ends, reservations taken off.

What has no end, ends at infinity, and that is a time like others: a job may have its place there.

What is free throughout a span of time is an intersection of flat sets (`Planes`). Costs grow with
grants and reservations, and with the size of the machine as integers of a bit for each core do.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile

from flux_trio.policies.free_index import Counts, counts_of
from flux_trio.policies.planes import FreePlanes, Planes
from flux_trio.policies.shape import Allocation, Shape
from flux_trio.policies.state import Grant, Job, State


@dataclass(slots=True, eq=False)
class Place:
    """Somewhere for a job to run, some time."""

    start: float
    """Seconds since the Unix epoch; infinity when grants without end are in the way."""
    end: float
    allocation: Allocation
    bits: int
    """The allocation, flat."""

    def covers(self, time: float) -> bool:
        """Whether the job would be there at `time`; one that starts at infinity is there then."""
        return self.start <= time < self.end or self.start == time == math.inf


class _Window:
    """The intersection of flat sets in a row, of which the first leave and others come.

    Each is intersected twice, however long the row: those that are to leave soon have been, from
    the back, with all that leave after them.
    """

    def __init__(self) -> None:
        self._leaving = [-1]  # the last is what the older ones have in common
        self._fresh: list[int] = []
        self._in_fresh = -1

    @property
    def common(self) -> int:
        """What is in all of them."""
        return self._leaving[-1] & self._in_fresh

    def add(self, flat: int) -> None:
        """Let `flat` come."""
        self._fresh.append(flat)
        self._in_fresh &= flat

    def drop(self) -> None:
        """Let the first one leave."""
        if len(self._leaving) == 1:
            for flat in reversed(self._fresh):
                self._leaving.append(self._leaving[-1] & flat)
            self._fresh.clear()
            self._in_fresh = -1
        self._leaving.pop()


class Profile:
    """What is free in each span of time; spans begin at `times` and the last never ends.

    A grant is taken off until its end, one that is overdue until a moment after now. A place that
    was reserved and whose job has started is its grant's.
    """

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        groups = state.pool.inventory.groups if state.pool.inventory else ()
        self._planes = Planes(groups, state.pool.up)
        self._times = [now]
        self._free = [self._planes.all]
        self._counts = [self._planes.counts(self._planes.all)]
        self.released = 0
        """What was given back at any time since somebody set this to 0, flat."""
        for grant in state.grants.by_end():
            if grant.end > now:
                self.reserve(self._place_of(grant, now))
        self.advance(now)

    def advance(self, now: float) -> None:
        """Forget what is before `now`, and cuts that part nothing any more."""
        first = self._cut(now)
        del self._times[:first], self._free[:first], self._counts[:first]
        same = [index for index, (a, b) in enumerate(pairwise(self._free), 1) if a == b]
        for index in reversed(same):
            del self._times[index], self._free[index], self._counts[index]
        if overdue := self.overdue(now):
            for index in range(self._cut(math.nextafter(now, math.inf))):
                self._set(index, self._free[index] & ~overdue)

    def overdue(self, now: float) -> int:
        """What is held by grants that should be over, flat."""
        bits = 0
        for grant in takewhile(lambda grant: grant.end <= now, self._state.grants.by_end()):
            bits |= self._planes.flatten(grant.allocation.groups)
        return bits

    def earliest(
        self, job: Job, before: float = math.inf, own: Place | None = None, within: int = -1
    ) -> Place | None:
        """Where `job` fits first, at `before` at the latest; None if nowhere.

        The place that is its `own` already counts as free. Only where something of `within` (flat)
        is free throughout is worth a look.
        """
        tried = 0
        for start, end, window in self._windows(job, before, own):
            if not window & within or not window & ~tried:
                continue
            allocation = self._find(job.shape, window, start)
            if allocation is not None:
                bits = self._planes.flatten(allocation.groups)
                return Place(start, end, allocation, bits)
            tried = window
        return None

    def _find(self, shape: Shape, window: int, start: float) -> Allocation | None:
        """Where `shape` fits in `window` from `start` on; what is free until then comes last."""
        pool, free = self._state.pool, FreePlanes(self._planes, window)
        gpus, cores = self._least(shape)
        before, early = 0, window
        for index in range(bisect_left(self._times, start) - 1, -1, -1):
            early &= self._free[index]
            late = window & ~early
            if late == before:
                continue
            counts = self._planes.counts(late)
            if counts[0] >= gpus and counts[1] >= cores:
                enough = FreePlanes(self._planes, late)
                if pool.find_in(shape, enough) is not None:
                    return pool.find_preferring(shape, enough, FreePlanes(self._planes, before))
            before = late
        return pool.find_preferring(shape, free, FreePlanes(self._planes, before))

    def reserve(self, place: Place) -> None:
        """Take `place` off."""
        for index in self._spans(place):
            self._set(index, self._free[index] & ~place.bits)

    def release(self, place: Place) -> None:
        """Give a reserved `place` back."""
        for index in self._spans(place):
            self._set(index, self._free[index] | place.bits)
        self.released |= place.bits

    def vacate(self, grant: Grant, now: float) -> None:
        """`grant` is over before its end, or long after it."""
        self.release(self._place_of(grant, now))

    def _place_of(self, grant: Grant, now: float) -> Place:
        """What is left of `grant` at `now`."""
        bits = self._planes.flatten(grant.allocation.groups)
        end = max(grant.end, math.nextafter(now, math.inf))
        return Place(now, end, grant.allocation, bits)

    def _windows(
        self, job: Job, before: float, own: Place | None
    ) -> Iterator[tuple[float, float, int]]:
        """Starts until `before`, when `job` would end, and what is free throughout.

        Left out are those with too little free at some time for any place.
        """
        need = self._least(job.shape)
        window = _Window()
        first = stop = 0  # the spans in the window
        while first < len(self._times) and (start := self._times[first]) <= before:
            if stop == first and self._free_for(first, need, own) is None:
                first = stop = first + 1  # by far the most starts end here
                continue
            end = self._state.end_of(job, start)
            last = bisect_left(self._times, end, first + 1) if end < math.inf else len(self._times)
            while stop < last and (free := self._free_for(stop, need, own)) is not None:
                window.add(free)
                stop += 1
            if stop < last:
                first = stop = stop + 1
                window = _Window()
            else:
                yield start, end, window.common
                window.drop()
                first += 1

    def _free_for(self, index: int, need: Counts, own: Place | None) -> int | None:
        """What is free in a span with the `own` place; None if that is less than `need`."""
        free, (gpus, cores) = self._free[index], self._counts[index]
        enough = cores >= need[1] and gpus >= need[0]
        if own is not None and own.covers(self._times[index]):
            free |= own.bits
            if not enough:
                gpus, cores = self._planes.counts(free)
                enough = cores >= need[1] and gpus >= need[0]
        return free if enough else None

    def _set(self, index: int, free: int) -> None:
        self._free[index] = free
        self._counts[index] = self._planes.counts(free)

    def _spans(self, place: Place) -> range:
        """The spans that `place` covers from now on, after cutting those it covers in part."""
        if place.end <= self._times[0]:
            return range(0)
        first = self._cut(max(place.start, self._times[0]))
        return range(first, self._cut(place.end) if place.start < math.inf else first + 1)

    def _cut(self, time: float) -> int:
        """The index of the span that begins at `time`, made if there is none."""
        index = bisect_left(self._times, time)
        if index == len(self._times) or self._times[index] != time:
            self._times.insert(index, time)
            self._free.insert(index, self._free[index - 1])
            self._counts.insert(index, self._counts[index - 1])
        return index

    def _least(self, shape: Shape) -> Counts:
        """With fewer free gpus or cores than these, `shape` does not fit."""
        gpus, cores = shape.gpus, shape.cores
        if shape.whole:
            sizes = [counts_of(total) for total, _ in self._state.pool.totals()]
            gpus = max(gpus, min([size[0] for size in sizes], default=0))
            cores = max(cores, min([size[1] for size in sizes], default=0))
        return shape.count * gpus, shape.count * cores
