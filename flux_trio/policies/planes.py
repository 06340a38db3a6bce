"""Free cores and gpus as planes: for each core and each gpu, the ranks on which it is free.

A plane is a bit set of ranks. All planes in sequence form one integer, called a flat set. The
resources that are free throughout a span of time are an intersection of flat sets. Counting works
on whole planes and so on all ranks at once. Costs grow with the cores of a node; more nodes only
make the integers longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

from flux_trio.formats import Group
from flux_trio.policies.bits import ranks_of
from flux_trio.policies.free_index import Counts
from flux_trio.policies.shape import Children


class Planes:
    """The position of each core and gpu of the ranks in a flat set: cores first, then gpus."""

    def __init__(self, groups: tuple[Group, ...], ranks: int) -> None:
        self._bytes = -(-ranks.bit_length() // 8)  # of one plane
        self.ncores = max([group.cores.bit_length() for group in groups], default=0)
        self._ngpus = max([group.gpus.bit_length() for group in groups], default=0)
        self._core_bits = self.ncores * self._bytes * 8
        self._cores = (1 << self._core_bits) - 1
        mine = [Group(group.ranks & ranks, group.cores, group.gpus) for group in groups]
        self.all = self._lay_out(mine)
        """The cores and gpus of `groups` on `ranks`, flat."""

    def flatten(self, groups: Iterable[Group]) -> int:
        """Return `groups` as a flat set, without resources outside these planes."""
        ranks, cores = (1 << self._bytes * 8) - 1, (1 << self.ncores) - 1
        gpus = (1 << self._ngpus) - 1
        usable = [
            Group(each.ranks & ranks, each.cores & cores, each.gpus & gpus) for each in groups
        ]
        return self._lay_out(usable) & self.all

    def _lay_out(self, groups: Iterable[Group]) -> int:
        ranks_with: dict[tuple[int, int], int] = {}  # many groups differ in their ranks only
        for ranks, cores, gpus in groups:
            ranks_with[cores, gpus] = ranks_with.get((cores, gpus), 0) | ranks
        planes = [0] * (self.ncores + self._ngpus)
        for (cores, gpus), ranks in ranks_with.items():
            for plane in ranks_of(cores | gpus << self.ncores):
                planes[plane] |= ranks
        fields = [plane.to_bytes(self._bytes, "little") for plane in planes]
        return int.from_bytes(b"".join(fields), "little")

    def unflatten(self, flat: int) -> list[int]:
        width = self._bytes
        fields = flat.to_bytes(width * (self.ncores + self._ngpus), "little")
        return [
            int.from_bytes(fields[at : at + width], "little") for at in range(0, len(fields), width)
        ]

    def counts(self, flat: int) -> Counts:
        """Return the total numbers of gpus and cores in `flat`."""
        return (flat >> self._core_bits).bit_count(), (flat & self._cores).bit_count()


class FreePlanes:
    """Presents a flat set as a `pool.Free`, so that a search can place a shape in it."""

    def __init__(self, layout: Planes, flat: int) -> None:
        self._layout = layout
        self._flat = flat
        self._planes = layout.unflatten(flat)

    @property
    def by_free(self) -> dict[Counts, int]:
        """(free gpus, free cores) → ranks, without the ranks that have no free core."""
        ncores = self._layout.ncores
        cores, gpus = _tally(self._planes[:ncores]), _tally(self._planes[ncores:])
        ngpus = (1 << len(gpus)) - 1
        return {
            (free & ngpus, free >> len(gpus)): some
            for free, some in _split(reduce(or_, cores, 0), gpus + cores)
        }

    def idle_ranks(self) -> int:
        missing = self._layout.unflatten(self._layout.all & ~self._flat)
        return reduce(or_, self._planes, 0) & ~reduce(or_, missing, 0)

    def parts(self, ranks: int) -> list[tuple[int, Children]]:
        """Split `ranks` by their free cores and gpus."""
        cores = (1 << self._layout.ncores) - 1
        return [
            (some, Children(free & cores, free >> self._layout.ncores))
            for free, some in _split(ranks, self._planes)
        ]


def _tally(planes: Iterable[int]) -> list[int]:
    """Count the planes that contain each rank; digit i is the bit set of ranks whose bit i is 1."""
    digits: list[int] = []
    for plane in planes:
        carry = plane
        for at, digit in enumerate(digits):
            digits[at] = digit ^ carry
            carry &= digit
            if not carry:
                break
        else:
            digits.append(carry)
    return digits


def _split(ranks: int, digits: list[int]) -> list[tuple[int, int]]:
    """Split `ranks` by the number that their `digits` form; return (number, ranks)."""
    groups = [(0, ranks)] if ranks else []
    for digit in reversed(digits):
        halves = []
        for number, some in groups:
            if ones := some & digit:
                halves.append((number << 1 | 1, ones))
            if zeros := some ^ ones:
                halves.append((number << 1, zeros))
        groups = halves
    return groups
