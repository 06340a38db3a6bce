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

from flux_trio.formats import Group, Idset
from flux_trio.policies.bits import ranks_of
from flux_trio.policies.free_index import FreeIndex
from flux_trio.policies.pool import Pool
from flux_trio.policies.shape import Allocation, Children, Shape
from flux_trio.policies.state import Job, State


class Layout:
    """Where in the integer each core and gpu is: a field of whole bytes for each rank."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self._core_bits = max(group.cores.bit_length() for group in groups)
        gpu_bits = max(group.gpus.bit_length() for group in groups)
        self._bytes = -(-(self._core_bits + gpu_bits) // 8)
        self._place: dict[int, int] = {}  # rank → index of its field
        for group in groups:
            for rank in ranks_of(group.ranks):
                self._place[rank] = len(self._place)

    def flatten(self, groups: tuple[Group, ...], ranks: int) -> int:
        """What `groups` has on those of `ranks` that are laid out."""
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
    """What is free in each span of time; spans begin at `times` and the last never ends."""

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        self._soon = math.nextafter(now, math.inf)  # when grants that are overdue are taken to end
        pool = state.pool
        groups = pool.inventory.groups if pool.inventory else ()
        self._layout = Layout(groups) if groups else None
        self._times = [now]
        self._free = [self._flatten(groups, pool.up)]
        taken = 0
        for grant in state.grants.by_end():
            bits = self._flatten(grant.allocation.groups, pool.up) & self._free[0]
            taken |= bits
            self._add_later(max(grant.end, self._soon), bits)
        self._free[0] &= ~taken
        for index in range(1, len(self._free)):
            self._free[index] |= self._free[index - 1]

    def earliest(
        self, job: Job, before: float = math.inf, own: Place | None = None
    ) -> Place | None:
        """Where `job` fits first, at `before` at the latest; None if nowhere.

        The place that is its `own` already counts as free.
        """
        shape = job.shape
        need = shape.count * (shape.cores + shape.gpus)
        for index, start in enumerate(self._times):
            if start > before:
                return None
            end = self._state.end_of(job, start)
            if (self._free[index] | (own.bits if own else 0)).bit_count() < need:
                continue
            window = self._window(index, end, own)
            if window.bit_count() < need:
                continue
            allocation = self._fit(window, shape)
            if allocation is not None:
                return Place(start, end, allocation, self._flatten(allocation.groups, -1))
        return None

    def reserve(self, place: Place) -> None:
        """Take `place` off."""
        for index in self._spans(place):
            self._free[index] &= ~place.bits

    def release(self, place: Place) -> None:
        """Give a reserved `place` back."""
        for index in self._spans(place):
            self._free[index] |= place.bits

    def still_holds(self, place: Place, now: float) -> bool:
        """Whether `place` is free throughout; one whose time has come is moved to the present."""
        if place.start <= now:
            length = place.end - place.start
            place.start = self._soon if place.bits & ~self._free[0] else now
            place.end = max(place.end, place.start + length)
        first = bisect_left(self._times, place.start)
        if first == len(self._times) or self._times[first] != place.start:
            first -= 1
        return not place.bits & ~self._window(first, place.end, None)

    def _window(self, index: int, end: float, own: Place | None) -> int:
        """What is free from the start of span `index` to `end`."""
        window = -1
        for at in range(index, len(self._times)):
            if at > index and self._times[at] >= end < math.inf:
                break
            free = self._free[at]
            if own is not None and own.covers(self._times[at]):
                free |= own.bits
            window &= free
        return window

    def _spans(self, place: Place) -> range:
        """The spans that `place` covers, after cutting those it covers in part."""
        first = self._cut(place.start)
        return range(first, self._cut(place.end) if place.start < math.inf else first + 1)

    def _cut(self, time: float) -> int:
        """The index of the span that begins at `time`, made if there is none."""
        index = bisect_left(self._times, time)
        if index == len(self._times) or self._times[index] != time:
            self._times.insert(index, time)
            self._free.insert(index, self._free[index - 1])
        return index

    def _add_later(self, time: float, bits: int) -> None:
        """`bits` become free at `time`, which is not before the last one given."""
        if self._times[-1] == time:
            self._free[-1] |= bits
        else:
            self._times.append(time)
            self._free.append(bits)

    def _fit(self, window: int, shape: Shape) -> Allocation | None:
        index = FreeIndex()
        pool: Pool = self._state.pool
        free = list(self._layout.unflatten(window)) if self._layout else []
        for total, ranks in pool.totals():
            for some, children in free:
                if both := some & ranks:
                    index.add(both, total, children)
        return pool.with_free(index).find(shape)

    def _flatten(self, groups: tuple[Group, ...], ranks: int) -> int:
        return self._layout.flatten(groups, ranks) if self._layout else 0
