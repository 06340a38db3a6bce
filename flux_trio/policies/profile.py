"""The machine over time: the resources that grants leave free, minus the reserved places.

The resources that grants leave free only grow with time, since each grant gives its resources back
at its end (`Returns`). A reserved place takes resources between its start and its end. Time is
therefore cut only at starts and ends of places, of which there are few. Between two cuts the free
resources only grow, so a binary search finds the first time at which a job fits. The cost of a
search grows with the number of places, and hardly with the number of grants and their ends.

A grant without an end ends at math.inf; a reservation may start there. An overdue grant still holds
its resources now, and is expected to give them back a moment later.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Final

import msgspec

from flux_trio.formats.meanings import Time
from flux_trio.policies.free_index import Counts, counts_of
from flux_trio.policies.planes import FreePlanes, Planes
from flux_trio.policies.returns import Returns
from flux_trio.policies.shape import Allocation, Shape
from flux_trio.policies.state import Grant, Job, State


class Span(msgspec.Struct, eq=False):
    """A time and resources for a job."""

    start: Time
    """Seconds since the Unix epoch; infinity if the job waits for grants without an end."""
    end: Time
    allocation: Allocation


class Place(Span, eq=False):
    """A time and resources reserved for a job, in the form that a search needs."""

    bits: int
    """The allocation as a flat set."""
    counts: Counts
    """Its numbers of gpus and cores."""

    @property
    def span(self) -> Span:
        return Span(self.start, self.end, self.allocation)

    def covers(self, time: float) -> bool:
        """Return whether the place is in use at `time`; math.inf counts as a time."""
        return self.start <= time < self.end or self.start == time == math.inf

    def meets(self, start: float, end: float) -> bool:
        """Return whether the place overlaps with a job from `start` to `end`.

        A job without an end overlaps with places that start at infinity, so that it does not block
        them.
        """
        begins_before = self.start < end or self.start == end == math.inf
        return begins_before and (start < self.end or self.start == start == math.inf)


class Released(msgspec.Struct, frozen=True):
    """Resources that were released; a job that gains from them begins in this time span."""

    bits: int
    """Flat set of the released resources; the job uses at least one of them."""
    since: Time
    """Start of the span: places reserved since the release block the time before it."""
    until: Time

    def without(self, place: Place) -> Iterator[Released]:
        """Yield the parts that a new `place` leaves.

        A place without an end leaves infinity, unless it starts there.
        """
        if other := self.bits & ~place.bits:
            yield Released(other, self.since, self.until)
        if mine := self.bits & place.bits:
            if self.since < place.start:
                yield Released(mine, self.since, min(self.until, place.start))
            if place.end < self.until or place.start < place.end == self.until == math.inf:
                yield Released(mine, max(self.since, place.end), self.until)


EVERYTHING: Final = (Released(-1, -math.inf, math.inf),)


class _Window(msgspec.Struct, frozen=True, eq=False):
    """The resources that are free throughout a job's run if it starts at `start`."""

    start: float
    end: float
    flat: int
    own: Place | None
    """The job's current place, which counts as free."""


class _SearchLimits(msgspec.Struct, frozen=True, eq=False):
    """Flat sets that limit a search to cores whose state could help."""

    taken: int
    """Cores that other places hold."""
    within: int
    """The job uses some of these cores, or keeps its place."""
    tried: int
    """Cores that were found not to suffice."""


def _first_near(count: int, holds: Callable[[int], bool]) -> int:
    """Return the first number below `count` for which `holds` is true, or `count`.

    `holds` must stay true for all later numbers. Low numbers are tried first.
    """
    low, high = 0, 0
    while high < count and not holds(high):
        low, high = high + 1, 2 * high + 1
    numbers = range(low, min(high, count))
    return low + bisect_left(numbers, True, key=holds)


class Profile:
    """The free resources at each time. When a job starts, its place becomes its grant.

    No dump has a profile: a policy keeps the time, the places and `released`, and the profile that
    is made of them decides alike. It also counts on the grants in `freed`, which have ended but
    were not vacated yet.
    """

    def __init__(self, state: State, now: float, freed: Iterable[Grant] = ()) -> None:
        self._state = state
        groups = state.pool.inventory.groups if state.pool.inventory else ()
        self._planes = Planes(groups, state.pool.up)
        self._returns = Returns(self._planes, [*state.grants, *freed])
        self._idle = self._planes.all & ~self._returns.everything
        self._idle_counts = self._planes.counts(self._idle)
        self._places: dict[Place, None] = {}
        self._cuts: list[float] = []  # now, then the finite starts and ends of places
        self._taken: list[Counts] = []  # counts that places hold, from each cut on
        self._room: list[Counts] = []  # free counts at each cut
        self.released: list[Released] = []
        """Resources released since the caller emptied this list and not reserved again."""
        self.advance(now)

    @property
    def now(self) -> float:
        """Return the time from which on the profile is known."""
        return self._now

    def place_of(self, span: Span) -> Place:
        bits = self._planes.flatten(span.allocation.groups)
        return Place(span.start, span.end, span.allocation, bits, self._planes.counts(bits))

    # Changes

    def advance(self, now: float) -> None:
        """Forget the time before `now` and the cuts that no place needs any more."""
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
        """Return the counts that grants leave free."""
        return _plus(self._idle_counts, self._returns.counts(self._position(time)))

    def reserve(self, place: Place) -> None:
        """Subtract `place` from the free resources."""
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
        """Add a reserved `place` back to the free resources."""
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
        """Replace a reserved `place` by the grant of its job, which has started."""
        del self._places[place]
        self._idle &= ~self._returns.add(grant)
        self._grants_changed()

    def vacate(self, grant: Grant) -> None:
        flat = self._returns.remove(grant)
        self._idle |= flat
        self.released.append(Released(flat, self._now, max(grant.end, self._next_moment)))
        self._grants_changed()

    def _grants_changed(self) -> None:
        self._idle_counts = self._planes.counts(self._idle)
        self.advance(self._now)

    # Search

    def is_idle(self, place: Place) -> bool:
        """Return whether no grant holds resources of `place` now."""
        return not place.bits & ~self._idle

    def earliest(
        self,
        job: Job,
        before: float = math.inf,
        own: Place | None = None,
        released: Sequence[Released] = EVERYTHING,
    ) -> Place | None:
        """Return the earliest place for `job` that starts at `before` or earlier; None without one.

        The job's `own` current place counts as free. Only resources in `released` can improve the
        place. Among the cores that are free throughout the run, those that return last are taken
        first.
        """
        released = [one for one in released if one.since <= before]
        if not released:
            return None
        within = reduce(or_, [one.bits for one in released])
        since = max(min([one.since for one in released]), self._first_return_of(within))
        need = self._minimum(job.shape)
        tried = 0  # a flat set in which `job` does not fit
        start = self._first_sufficient(since, before, need, own)
        while start <= before:
            end = self._state.end_of(job, start)
            if (short := self._first_shortage(start, end, need, own)) is not None:
                start = self._first_sufficient(short, before, need, own)
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
            limits = _SearchLimits(taken, within, tried)
            after = self._first_fitting(positions, job.shape, need, limits)
            start = self._first_sufficient(until if after is None else after, before, need, own)
        return None

    def _first_sufficient(
        self, start: float, before: float, need: Counts, own: Place | None
    ) -> float:
        """Return the first time from `start` on with `need` free in total, on whatever ranks.

        Returns infinity if that time is later than `before`.
        """
        cuts, returns = self._cuts, self._returns
        first, last = bisect_right(cuts, start) - 1, len(cuts) - 1
        for index in range(first, bisect_right(cuts, before)):
            if index > first and self._is_sufficient(index, need, own):
                return cuts[index]
            gpus, cores = self._missing(index, need, own)
            if index < last:  # the free counts are highest just before the next cut
                most = returns.counts(returns.position_before(cuts[index + 1]))
                if most[1] < cores or most[0] < gpus:
                    continue
            time = max(start, cuts[index], self._time_returned((gpus, cores)))
            if index == last or time < cuts[index + 1]:
                return time
        return math.inf

    def _first_return_of(self, bits: int) -> float:
        """Return the first time at which grants leave one of `bits` free."""
        if self._idle & bits:
            return self._now
        return self._expected_end(self._returns.position_with(bits))

    def _missing(self, index: int, need: Counts, own: Place | None) -> Counts:
        """Return the counts that grants must give back until `need` is free after a cut."""
        gpus, cores = self._taken[index]
        gpus += need[0] - self._idle_counts[0]
        cores += need[1] - self._idle_counts[1]
        if own is not None and own.covers(self._cuts[index]):
            return gpus - own.counts[0], cores - own.counts[1]
        return gpus, cores

    def _time_returned(self, missing: Counts) -> float:
        """Return when grants will have given back `missing`; now if nothing is missing."""
        return self._expected_end(self._returns.position_of(missing))

    def _expected_end(self, position: int) -> float:
        """Return when the first `position` grants will have ended."""
        if position == 0:
            return self._now
        if position > len(self._returns):
            return math.inf
        return max(self._returns.end(position - 1), self._next_moment)

    @property
    def _next_moment(self) -> float:
        return math.nextafter(self._now, math.inf)

    def _first_shortage(
        self, start: float, end: float, need: Counts, own: Place | None
    ) -> float | None:
        """Return the first cut between `start` and `end` with less than `need` free; else None."""
        first, stop = bisect_right(self._cuts, start), bisect_left(self._cuts, end)
        gpus, cores = need
        for index, (free_gpus, free_cores) in enumerate(self._room[first:stop], first):
            enough = free_cores >= cores and free_gpus >= gpus
            if not enough and not self._is_sufficient(index, need, own):
                return self._cuts[index]
        return None

    def _is_sufficient(self, index: int, need: Counts, own: Place | None) -> bool:
        """Return whether `need` is free in total at a cut, on whatever ranks."""
        gpus, cores = self._room[index]
        if own is not None and own.covers(self._cuts[index]):
            gpus, cores = gpus + own.counts[0], cores + own.counts[1]
        return gpus >= need[0] and cores >= need[1]

    def _first_fitting(
        self, positions: range, shape: Shape, need: Counts, limits: _SearchLimits
    ) -> float | None:
        """Return when enough grants will have ended for `shape` to fit; None if never.

        The search covers `positions`. Places that begin later may still block the job.
        """

        def fits(position: int) -> bool:
            window = (self._idle | self._returns.flat(position)) & ~limits.taken
            new = window & limits.within and window & ~limits.tried
            return bool(new) and self._fits(shape, window, need)

        found = bisect_left(positions, True, key=fits)
        if found == len(positions):
            return None
        return max(self._returns.end(positions[found] - 1), self._next_moment)

    def _fits(self, shape: Shape, flat: int, need: Counts) -> bool:
        return self._find(shape, flat, need) is not None

    def _find(self, shape: Shape, flat: int, need: Counts) -> Allocation | None:
        gpus, cores = self._planes.counts(flat)
        if gpus < need[0] or cores < need[1]:
            return None
        return self._state.pool.find_in(shape, FreePlanes(self._planes, flat))

    def _place(self, window: _Window, shape: Shape, need: Counts) -> Place | None:
        """Return a place for `shape` in `window`, on resources that return late, or None."""
        allocation = None
        if window.start > self._now:
            allocation = self._find(shape, self._last_returned(window), need)
        if allocation is None and self._fits(shape, window.flat, need):
            allocation = self._find_late(window, shape, need)
        if allocation is None:
            return None
        return self.place_of(Span(window.start, window.end, allocation))

    def _last_returned(self, window: _Window) -> int:
        """Return the resources of the window that return last before it begins, flat."""
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
        """Choose resources for `shape`, which fits in `window`.

        The method first finds the end of a place, then the end of a grant, such that the resources
        in use until that end or longer suffice.
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
        """Return the window's resources in use until `end` or longer (`longer`: only longer)."""
        ended = self._returns.position(end) if longer else self._returns.position_before(end)
        bits = self._returns.everything & ~self._returns.flat(ended)
        for place in self._places:
            later = place.end > end or (place.end == end and not longer)
            if later and place is not window.own and place.start < window.start:
                bits |= place.bits
        return bits & window.flat

    # Free and taken resources at a time

    def _position(self, time: float) -> int:
        """Return how many grants are expected to have ended at `time`."""
        return self._returns.position(time) if time > self._now else 0

    def _free_at(self, time: float) -> int:
        """Return the resources that grants leave free, flat."""
        return self._idle | self._returns.flat(self._position(time))

    def _taken_between(self, start: float, end: float, own: Place | None) -> tuple[int, float]:
        """Return the other places' resources during a job's run, flat, and the first end of those.

        A job that starts later, but before that end, loses the same resources.
        """
        # A job without an end that already has a place already blocks the places at infinity.
        known = own.bits if own is not None and own.start < own.end == math.inf else 0
        bits, first = 0, math.inf
        for place in self._places:
            if place is not own and place.meets(start, end):
                bits |= place.bits & ~known if place.start == math.inf else place.bits
                first = min(first, place.end)
        return bits, first

    def _minimum(self, shape: Shape) -> Counts:
        """Return the least free gpus and cores that `shape` needs."""
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
