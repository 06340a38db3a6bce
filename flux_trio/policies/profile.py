"""The machine over time, from now on: what grants leave free, with the reserved places taken off.

What only the grants leave free grows with time, since each gives back what it holds at its end
(`Returns`). The places take something off between their start and their end. So time is cut at
starts and ends of places only, of which there are few. Between two cuts more and more becomes
free, and a search by halves finds the first time at which a job fits. The cost of a search grows
with the number of places, and hardly with the number of grants and their different ends.

What has no end, ends at infinity, and that is a time like others: a job may have its place there.
A grant that is overdue holds what it has now, and is expected to give it back a moment later.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Final

from flux_trio.policies.free_index import Counts, counts_of
from flux_trio.policies.planes import FreePlanes, Planes
from flux_trio.policies.returns import Returns
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
    counts: Counts
    """How many gpus and cores it has."""

    def covers(self, time: float) -> bool:
        """Whether the job would be there at `time`; one that starts at infinity is there then."""
        return self.start <= time < self.end or self.start == time == math.inf

    def meets(self, start: float, end: float) -> bool:
        """Whether a job from `start` to `end` would be there at the same time.

        A job without an end meets those that start at infinity, so that it is not put in their way.
        """
        begins_before = self.start < end or self.start == end == math.inf
        return begins_before and (start < self.end or self.start == start == math.inf)


@dataclass(frozen=True, slots=True)
class Released:
    """Something that was given back: what a job gains by it, begins in this time and place."""

    bits: int
    """Flat; the job gets some of it."""
    since: float
    """Before that, places that were reserved since then are in the way; now when there is none."""
    until: float

    def without(self, place: Place) -> Iterator[Released]:
        """What is left of it beside a new `place`, which takes some of it."""
        if other := self.bits & ~place.bits:
            yield Released(other, self.since, self.until)
        if mine := self.bits & place.bits:
            if self.since < place.start:
                yield Released(mine, self.since, min(self.until, place.start))
            if place.end < self.until:
                yield Released(mine, max(self.since, place.end), self.until)


EVERYTHING: Final = (Released(-1, -math.inf, math.inf),)


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """What is free throughout the run of a job that would start at `start`."""

    start: float
    end: float
    flat: int
    own: Place | None
    """The job's own place as it is, which counts as free."""


@dataclass(frozen=True, slots=True, eq=False)
class _Useful:
    """Which cores are worth a look, as flat sets."""

    taken: int
    """Other places have these."""
    within: int
    """A job gets some of these, or stays where it is."""
    tried: int
    """These alone do not suffice."""


def _first_near(count: int, holds: Callable[[int], bool]) -> int:
    """The first of the numbers below `count` for which a test holds, `count` if there is none.

    The test then holds for all that follow. Low numbers are tried first.
    """
    low, high = 0, 0
    while high < count and not holds(high):
        low, high = high + 1, 2 * high + 1
    numbers = range(low, min(high, count))
    return low + bisect_left(numbers, True, key=holds)


class Profile:
    """What is free at each time. A place whose job has started is its grant's."""

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        groups = state.pool.inventory.groups if state.pool.inventory else ()
        self._planes = Planes(groups, state.pool.up)
        self._returns = Returns(self._planes, state.grants)
        self._idle = self._planes.all & ~self._returns.everything
        self._idle_counts = self._planes.counts(self._idle)
        self._places: dict[Place, None] = {}
        self._cuts: list[float] = []  # now, then the finite starts and ends of places
        self._taken: list[Counts] = []  # by places from each cut on
        self._room: list[Counts] = []  # what is free at each cut
        self.released: list[Released] = []
        """What was given back since this was emptied, without what was reserved again."""
        self.advance(now)

    # Changes

    def advance(self, now: float) -> None:
        """Forget what is before `now`, and the cuts that part nothing any more."""
        self._now = now
        ends = {time for place in self._places for time in (place.start, place.end)}
        self._cuts = [now, *sorted([time for time in ends if now < time < math.inf])]
        changes = dict.fromkeys(self._cuts, (0, 0))
        for place in self._places:
            if place.start < math.inf:
                changes[place.start] = _plus(changes[place.start], place.counts)
            if place.start < place.end < math.inf:
                changes[place.end] = _minus(changes[place.end], place.counts)
        self._taken = list(accumulate(changes.values(), _plus))
        self._room = [
            _minus(self._free_counts(time), taken)
            for time, taken in zip(self._cuts, self._taken, strict=True)
        ]

    def _free_counts(self, time: float) -> Counts:
        """How much grants leave free."""
        return _plus(self._idle_counts, self._returns.counts(self._position(time)))

    def reserve(self, place: Place) -> None:
        """Take `place` off."""
        bits = place.bits
        self.released = [
            left
            for one in self.released
            for left in (one.without(place) if one.bits & bits else (one,))
        ]
        self._places[place] = None
        for time in (place.start, place.end):
            at = bisect_left(self._cuts, time)
            if self._now < time < math.inf and self._cuts[at : at + 1] != [time]:
                self._cuts.insert(at, time)
                self._taken.insert(at, self._taken[at - 1])
                self._room.insert(at, _minus(self._free_counts(time), self._taken[at]))
        self._count(place, 1)

    def release(self, place: Place) -> None:
        """Give a reserved `place` back."""
        del self._places[place]
        self._count(place, -1)
        self.released.append(Released(place.bits, self._now, place.end))

    def _count(self, place: Place, times: int) -> None:
        gpus, cores = place.counts[0] * times, place.counts[1] * times
        first, stop = bisect_left(self._cuts, place.start), bisect_left(self._cuts, place.end)
        taken, room = self._taken, self._room
        taken[first:stop] = [(some + gpus, more + cores) for some, more in taken[first:stop]]
        room[first:stop] = [(some - gpus, more - cores) for some, more in room[first:stop]]

    def began(self, place: Place, grant: Grant) -> None:
        """The job of a reserved `place` has started: what was the place's is its grant's."""
        del self._places[place]
        self._idle &= ~self._returns.add(grant)
        self._grants_changed()

    def vacate(self, grant: Grant) -> None:
        flat = self._returns.remove(grant)
        self._idle |= flat
        self.released.append(Released(flat, self._now, max(grant.end, self._a_moment_later)))
        self._grants_changed()

    def _grants_changed(self) -> None:
        self._idle_counts = self._planes.counts(self._idle)
        self.advance(self._now)

    # Search

    def is_idle(self, place: Place) -> bool:
        """Whether no grant holds anything of `place` now."""
        return not place.bits & ~self._idle

    def earliest(
        self,
        job: Job,
        before: float = math.inf,
        own: Place | None = None,
        released: Sequence[Released] = EVERYTHING,
    ) -> Place | None:
        """Where `job` fits first, at `before` at the latest; None if nowhere.

        The place that is its `own` already counts as free. Only what was `released` is worth a
        look. Among the cores that are free throughout, those that come back last are taken first.
        """
        released = [one for one in released if one.since <= before]
        if not released:
            return None
        within = reduce(or_, [one.bits for one in released])
        since = max(min([one.since for one in released]), self._back_of(within))
        need = self._least(job.shape)
        tried = 0  # `job` does not fit there
        start = self._enough_from(since, before, need, own)
        while start <= before:
            end = self._state.end_of(job, start)
            if (short := self._short(start, end, need, own)) is not None:
                start = self._enough_from(short, before, need, own)
                continue
            taken, until = self._taken_between(start, end, own)
            window = self._free_at(start) & ~taken
            if window & within and window & ~tried:
                place = self._place(_Window(start, end, window, own), job.shape, need)
                if place is not None:
                    return place
                tried = window
            if start == math.inf:
                return None
            last = min(self._returns.position_before(until), self._returns.position(before))
            positions = range(self._position(start) + 1, last + 1)
            useful = _Useful(taken, within, tried)
            after = self._first_fitting(positions, job.shape, need, useful)
            start = self._enough_from(until if after is None else after, before, need, own)
        return None

    def _enough_from(self, start: float, before: float, need: Counts, own: Place | None) -> float:
        """The first time from `start` on at which `need` is free, wherever it is.

        Infinity when that is later than `before`.
        """
        cuts, returns = self._cuts, self._returns
        first, last = bisect_right(cuts, start) - 1, len(cuts) - 1
        for index in range(first, bisect_right(cuts, before)):
            if index > first and self._has(index, need, own):
                return cuts[index]
            gpus, cores = self._missing(index, need, own)
            if index < last:  # the most is free just before the next cut
                most = returns.counts(returns.position_before(cuts[index + 1]))
                if most[1] < cores or most[0] < gpus:
                    continue
            time = max(start, cuts[index], self._back((gpus, cores)))
            if index == last or time < cuts[index + 1]:
                return time
        return math.inf

    def _back_of(self, bits: int) -> float:
        """When something of `bits` is free of grants for the first time."""
        if self._idle & bits:
            return self._now
        return self._expected_end(self._returns.position_with(bits))

    def _missing(self, index: int, need: Counts, own: Place | None) -> Counts:
        """What grants must give back so that `need` is free after a cut, wherever it is."""
        gpus, cores = self._taken[index]
        gpus += need[0] - self._idle_counts[0]
        cores += need[1] - self._idle_counts[1]
        if own is not None and own.covers(self._cuts[index]):
            return gpus - own.counts[0], cores - own.counts[1]
        return gpus, cores

    def _back(self, missing: Counts) -> float:
        """When grants have given back `missing`; now when that is nothing."""
        return self._expected_end(self._returns.position_of(missing))

    def _expected_end(self, position: int) -> float:
        """When the first `position` grants have ended."""
        if position == 0:
            return self._now
        if position > len(self._returns):
            return math.inf
        return max(self._returns.end(position - 1), self._a_moment_later)

    @property
    def _a_moment_later(self) -> float:
        return math.nextafter(self._now, math.inf)

    def _short(self, start: float, end: float, need: Counts, own: Place | None) -> float | None:
        """The first cut between `start` and `end` after which less than `need` is free."""
        first, stop = bisect_right(self._cuts, start), bisect_left(self._cuts, end)
        gpus, cores = need
        for index, (free_gpus, free_cores) in enumerate(self._room[first:stop], first):
            enough = free_cores >= cores and free_gpus >= gpus
            if not enough and not self._has(index, need, own):
                return self._cuts[index]
        return None

    def _has(self, index: int, need: Counts, own: Place | None) -> bool:
        """Whether `need` is free at a cut, wherever it is."""
        gpus, cores = self._room[index]
        if own is not None and own.covers(self._cuts[index]):
            gpus, cores = gpus + own.counts[0], cores + own.counts[1]
        return gpus >= need[0] and cores >= need[1]

    def _first_fitting(
        self, positions: range, shape: Shape, need: Counts, useful: _Useful
    ) -> float | None:
        """When so many grants have ended that `shape` may fit; None at none of the `positions`.

        Places that begin later may still be in its way.
        """

        def fits(position: int) -> bool:
            window = (self._idle | self._returns.flat(position)) & ~useful.taken
            new = window & useful.within and window & ~useful.tried
            return bool(new) and self._fits(shape, window, need)

        found = bisect_left(positions, True, key=fits)
        if found == len(positions):
            return None
        return max(self._returns.end(positions[found] - 1), self._a_moment_later)

    def _fits(self, shape: Shape, flat: int, need: Counts) -> bool:
        return self._find(shape, flat, need) is not None

    def _find(self, shape: Shape, flat: int, need: Counts) -> Allocation | None:
        gpus, cores = self._planes.counts(flat)
        if gpus < need[0] or cores < need[1]:
            return None
        return self._state.pool.find_in(shape, FreePlanes(self._planes, flat))

    def _place(self, window: _Window, shape: Shape, need: Counts) -> Place | None:
        """The place for `shape` in `window`, where what comes back last is; None if it has none."""
        allocation = None
        if window.start > self._now:
            allocation = self._find(shape, self._last_back(window), need)
        if allocation is None and self._fits(shape, window.flat, need):
            allocation = self._find_late(window, shape, need)
        if allocation is None:
            return None
        bits = self._planes.flatten(allocation.groups)
        return Place(window.start, window.end, allocation, bits, self._planes.counts(bits))

    def _last_back(self, window: _Window) -> int:
        """What of the window comes back last before it begins, flat."""
        position = self._position(window.start)
        ends = self._ends_of_places(window)
        if position:
            ends.append(self._returns.end(position - 1))
        return self._in_use(window, max(ends)) if ends else 0

    def _ends_of_places(self, window: _Window) -> list[float]:
        return [
            place.end
            for place in self._places
            if place.end <= window.start and place is not window.own
        ]

    def _find_late(self, window: _Window, shape: Shape, need: Counts) -> Allocation | None:
        """Where `shape`, which fits in `window`, is to go.

        First the end of a place, then that of a grant is looked for, such that what is in use
        until then or longer suffices.
        """

        def suffices(end: float) -> bool:
            return self._fits(shape, self._in_use(window, end), need)

        ends = sorted(set(self._ends_of_places(window)), reverse=True)
        found = _first_near(len(ends), lambda index: suffices(ends[index]))
        low, high = 0, self._position(window.start)
        if found < len(ends):
            low = self._position(ends[found])
        if found > 0:
            high = min(high, self._returns.position_before(ends[found - 1]))
        nearest = _first_near(high - low, lambda n: suffices(self._returns.end(high - 1 - n)))
        if nearest < high - low:
            end = self._returns.end(high - 1 - nearest)
        elif found < len(ends):
            end = ends[found]
        else:
            end = -math.inf
        enough = window.flat if end == -math.inf else self._in_use(window, end)
        before = self._in_use(window, end, longer=True)
        planes = self._planes
        return self._state.pool.find_preferring(
            shape, FreePlanes(planes, enough), FreePlanes(planes, before)
        )

    def _in_use(self, window: _Window, end: float, *, longer: bool = False) -> int:
        """What of the window is in use until `end` or longer, flat; with `longer` only longer."""
        ended = self._returns.position(end) if longer else self._returns.position_before(end)
        bits = self._returns.everything & ~self._returns.flat(ended)
        for place in self._places:
            later = place.end > end or (place.end == end and not longer)
            if later and place is not window.own and place.start < window.start:
                bits |= place.bits
        return bits & window.flat

    # What is free or taken when

    def _position(self, time: float) -> int:
        """How many grants have ended at `time`, as far as one may expect."""
        return self._returns.position(time) if time > self._now else 0

    def _free_at(self, time: float) -> int:
        """What grants leave free, flat."""
        return self._idle | self._returns.flat(self._position(time))

    def _taken_between(self, start: float, end: float, own: Place | None) -> tuple[int, float]:
        """What other places take off from a job there, flat, and when the first of them is over.

        They take as much from a job that starts later, but before that.
        """
        # A job that never ends, and has its place, is in the way of those at infinity already.
        known = own.bits if own is not None and own.start < own.end == math.inf else 0
        bits, first = 0, math.inf
        for place in self._places:
            if place is not own and place.meets(start, end):
                bits |= place.bits & ~known if place.start == math.inf else place.bits
                first = min(first, place.end)
        return bits, first

    def _least(self, shape: Shape) -> Counts:
        """With fewer free gpus or cores than these, `shape` does not fit."""
        gpus, cores = shape.gpus, shape.cores
        if shape.whole:
            sizes = [counts_of(total) for total, _ in self._state.pool.totals()]
            gpus = max(gpus, min([size[0] for size in sizes], default=0))
            cores = max(cores, min([size[1] for size in sizes], default=0))
        return shape.count * gpus, shape.count * cores


def _plus(a: Counts, b: Counts) -> Counts:
    return (a[0] + b[0], a[1] + b[1])


def _minus(a: Counts, b: Counts) -> Counts:
    return (a[0] - b[0], a[1] - b[1])
