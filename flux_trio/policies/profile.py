"""The machine over time: what is free from now until the last grant ends, reservations taken off.

What has no end, ends at infinity, and that is a time like others: a job may have its place there.

Each core and gpu of each rank is one bit of one integer, so that what is free throughout a span
of time is an intersection of integers. Costs grow with grants and reservations, and with the size
of the machine for each place that is found: for some 100,000 cores, not for millions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from flux_trio.formats import Group, Idset
from flux_trio.policies.bits import ranks_of
from flux_trio.policies.free_index import FreeIndex, counts_of
from flux_trio.policies.pool import Pool
from flux_trio.policies.shape import Allocation, Children, Shape
from flux_trio.policies.state import Grant, Job, State


class Layout:
    """Where in the integer each core and gpu is: a field of whole bytes for each rank."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self._core_bits = max([group.cores.bit_length() for group in groups], default=0)
        gpu_bits = max([group.gpus.bit_length() for group in groups], default=0)
        self._bytes = -(-(self._core_bits + gpu_bits) // 8)
        self._place: dict[int, int] = {}  # rank → index of its field
        for group in groups:
            for rank in ranks_of(group.ranks):
                self._place[rank] = len(self._place)

    def flatten(self, groups: tuple[Group, ...], ranks: int) -> int:
        """What `groups` has on `ranks`, which are laid out."""
        fields = bytearray(self._bytes * len(self._place))
        for group in groups:
            field = (group.cores | group.gpus << self._core_bits).to_bytes(self._bytes, "little")
            for rank in ranks_of(group.ranks & ranks):
                at = self._place[rank] * self._bytes
                fields[at : at + self._bytes] = field
        return int.from_bytes(fields, "little")

    def unflatten(self, flat: int) -> Iterator[tuple[int, Children]]:
        """The ranks that have something, by what they have."""
        width = self._bytes
        fields = flat.to_bytes(width * len(self._place), "little")
        ranks_with: dict[bytes, list[int]] = {}
        for rank, place in self._place.items():
            ranks_with.setdefault(fields[place * width : place * width + width], []).append(rank)
        cores = (1 << self._core_bits) - 1
        for field, ranks in ranks_with.items():
            bits = int.from_bytes(field, "little")
            if bits:
                yield Idset.of(ranks).bits, Children(bits & cores, bits >> self._core_bits)


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


class Profile:
    """What is free in each span of time; spans begin at `times` and the last never ends.

    A grant is taken off until its end, one that is overdue until a moment after now. A place that
    was reserved and whose job has started is its grant's.
    """

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        groups = state.pool.inventory.groups if state.pool.inventory else ()
        self._layout = Layout(groups)
        self._ranks = state.pool.up
        self._times = [now]
        self._free = [self._layout.flatten(groups, self._ranks)]
        self._counts = [self._free[0].bit_count()]
        for grant in state.grants.by_end():
            if grant.end > now:
                self.reserve(self._place_of(grant, now))
        self.advance(now)

    def advance(self, now: float) -> None:
        """Forget what is before `now`, and cuts that part nothing any more."""
        self._cut(now)
        times, free = [now], [self._free[bisect_left(self._times, now)]]
        for time, bits in zip(self._times, self._free, strict=True):
            if time > now and bits != free[-1]:
                times.append(time)
                free.append(bits)
        self._times, self._free = times, free
        self._counts = [bits.bit_count() for bits in free]
        if overdue := self.overdue(now):
            for index in range(self._cut(math.nextafter(now, math.inf))):
                self._set(index, self._free[index] & ~overdue)

    def overdue(self, now: float) -> int:
        """What is held by grants that should be over, flat."""
        bits = 0
        for grant in takewhile(lambda grant: grant.end <= now, self._state.grants.by_end()):
            bits |= self._layout.flatten(grant.allocation.groups, self._ranks)
        return bits

    def earliest(
        self, job: Job, before: float = math.inf, own: Place | None = None
    ) -> Place | None:
        """Where `job` fits first, at `before` at the latest; None if nowhere.

        The place that is its `own` already counts as free.
        """
        need = self._bits_at_least(job.shape)
        index = 0
        while index < len(self._times) and self._times[index] <= before:
            start = self._times[index]
            end = self._state.end_of(job, start)
            window, index = self._window(index, end, need, own)
            if window.bit_count() < need:
                continue
            allocation = self._fit(window, job.shape)
            if allocation is not None:
                bits = self._layout.flatten(allocation.groups, self._ranks)
                return Place(start, end, allocation, bits)
        return None

    def reserve(self, place: Place) -> None:
        """Take `place` off."""
        for index in self._spans(place):
            self._set(index, self._free[index] & ~place.bits)

    def release(self, place: Place) -> None:
        """Give a reserved `place` back."""
        for index in self._spans(place):
            self._set(index, self._free[index] | place.bits)

    def vacate(self, grant: Grant, now: float) -> None:
        """`grant` is over before its end, or long after it."""
        self.release(self._place_of(grant, now))

    def _place_of(self, grant: Grant, now: float) -> Place:
        """What is left of `grant` at `now`."""
        bits = self._layout.flatten(grant.allocation.groups, self._ranks)
        end = max(grant.end, math.nextafter(now, math.inf))
        return Place(now, end, grant.allocation, bits)

    def _window(self, index: int, end: float, need: int, own: Place | None) -> tuple[int, int]:
        """What is free from the start of span `index` to `end`, and the next span worth a try.

        It ends early where fewer than `need` bits are free: no later start before that is better.
        """
        window = -1
        mine = own.bits.bit_count() if own is not None else 0
        for at in range(index, len(self._times)):
            time = self._times[at]
            if at > index and time >= end < math.inf:
                break
            free = self._free[at]
            if own is not None and own.covers(time):
                if self._counts[at] + mine < need:
                    return 0, at + 1
                free |= own.bits
            elif self._counts[at] < need:
                return 0, at + 1
            window &= free
        return window, index + 1

    def _set(self, index: int, free: int) -> None:
        self._free[index] = free
        self._counts[index] = free.bit_count()

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

    def _bits_at_least(self, shape: Shape) -> int:
        """No fewer bits than these can hold `shape`."""
        if not shape.whole:
            return shape.count * (shape.cores + shape.gpus)
        sizes = [sum(counts_of(total)) for total, _ in self._state.pool.totals()]
        return shape.count * min(sizes, default=1)

    def _fit(self, window: int, shape: Shape) -> Allocation | None:
        index = FreeIndex()
        pool: Pool = self._state.pool
        free = list(self._layout.unflatten(window))
        for total, ranks in pool.totals():
            for some, children in free:
                if both := some & ranks:
                    index.add(both, total, children)
        return pool.with_free(index).find(shape)
