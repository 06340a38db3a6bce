"""The resources that grants give back over time: how many and which have returned by a time.

Grants are kept in the order of their ends. Prefix sums give the counts. To find the cores,
neighbouring grants form blocks, and each block has one flat set (`Planes`). Memory grows with the
number of blocks, and a query flattens the grants of one block only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from operator import or_
from typing import Final

import msgspec

from flux_trio.policies.free_index import Counts
from flux_trio.policies.planes import Planes
from flux_trio.policies.state import Grant

BLOCK: Final = 64
"""Grants in a new block; a block is split when it has twice as many."""
ANSWERS_MAX: Final = 64
"""Flat sets cached until a grant comes or goes: a plan queries the same times often."""


class _Block(msgspec.Struct):
    count: int
    flat: int
    """The resources that the grants of the block hold."""


class Returns:
    """Grants in order of their ends. A position is a number of grants, counted in that order.

    All of it is derived from the grants, so no dump has it.
    """

    def __init__(self, planes: Planes, grants: Iterable[Grant]) -> None:
        self._planes = planes
        self._grants = sorted(_joined(grants), key=_key)
        self._keys = [_key(grant) for grant in self._grants]
        self._held = [planes.counts(self._flatten(at, at + 1)) for at in range(len(self._grants))]
        self._blocks = self._blocks_of(0, len(self._grants))
        self._sum_up()

    def add(self, grant: Grant) -> int:
        """Add `grant`; return its resources, flat."""
        at = bisect_left(self._keys, _key(grant))
        flat = self._planes.flatten(grant.allocation.groups)
        self._grants.insert(at, grant)
        self._keys.insert(at, _key(grant))
        self._held.insert(at, self._planes.counts(flat))
        if not self._blocks:
            self._blocks.append(_Block(0, 0))
        index = max(0, bisect_right(self._firsts, at) - 1)
        block = self._blocks[index]
        block.count += 1
        block.flat |= flat
        if block.count >= 2 * BLOCK:
            first = self._firsts[index]
            self._blocks[index : index + 1] = self._blocks_of(first, first + block.count)
        self._sum_up()
        return flat

    def remove(self, grant: Grant) -> int:
        """Remove `grant`, a known one or a part of one; return its resources, flat."""
        at = bisect_left(self._keys, _key(grant))
        flat = self._planes.flatten(grant.allocation.groups)
        index = bisect_right(self._firsts, at) - 1
        block = self._blocks[index]
        block.flat &= ~flat
        rest = self._grants[at].allocation.without(grant.allocation.groups)
        if rest.groups:
            self._grants[at] = Grant(grant.id, rest, grant.end, grant.stepped)
            self._held[at] = self._planes.counts(self._planes.flatten(rest.groups))
        else:
            del self._grants[at], self._keys[at], self._held[at]
            block.count -= 1
            if not block.count:
                del self._blocks[index]
        self._sum_up()
        return flat

    def _blocks_of(self, start: int, stop: int) -> list[_Block]:
        """Return new blocks for the grants in these positions."""
        firsts = range(start, stop, BLOCK)
        spans = [(first, min(first + BLOCK, stop)) for first in firsts]
        return [_Block(last - first, self._flatten(first, last)) for first, last in spans]

    def _flatten(self, start: int, stop: int) -> int:
        grants = self._grants[start:stop]
        return self._planes.flatten([each for one in grants for each in one.allocation.groups])

    def _sum_up(self) -> None:
        """Recompute the values derived from the grants and blocks."""
        self._ends = [end for end, _ in self._keys]
        self._gpus = list(accumulate([gpus for gpus, _ in self._held], initial=0))
        self._cores = list(accumulate([cores for _, cores in self._held], initial=0))
        self._firsts = list(accumulate([block.count for block in self._blocks[:-1]], initial=0))
        self._joined = list(accumulate([block.flat for block in self._blocks], or_, initial=0))
        self._answers: dict[int, int] = {}

    # Queries

    @property
    def everything(self) -> int:
        """Return the resources of all grants, flat."""
        return self._joined[-1]

    def __len__(self) -> int:
        return len(self._grants)

    def end(self, position: int) -> float:
        return self._ends[position]

    def position(self, time: float) -> int:
        """Return how many grants end at `time` or before."""
        return bisect_right(self._ends, time)

    def position_before(self, time: float) -> int:
        """Return how many grants end before `time`."""
        return bisect_left(self._ends, time)

    def counts(self, position: int) -> Counts:
        """Return how many gpus and cores the first `position` grants hold."""
        return self._gpus[position], self._cores[position]

    def position_of(self, need: Counts) -> int:
        """Return how many grants must end to give back `need`; more than exist if never."""
        return max(bisect_left(self._gpus, need[0]), bisect_left(self._cores, need[1]))

    def position_with(self, bits: int) -> int:
        """Return how many grants must end to give back one of `bits`; more than exist if never."""
        for index, block in enumerate(self._blocks):
            if block.flat & bits:
                first = self._firsts[index]
                positions = range(first + 1, first + block.count)
                return (
                    first
                    + 1
                    + bisect_left(
                        positions, True, key=lambda position: bool(self.flat(position) & bits)
                    )
                )
        return len(self) + 1

    def flat(self, position: int) -> int:
        """Return the resources of the first `position` grants, flat."""
        index = bisect_right(self._firsts, position) - 1
        first = self._firsts[index]
        if position == first:
            return self._joined[index]
        if position == len(self._grants):
            return self._joined[-1]
        known = self._answers.get(position)
        if known is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            known = self._answers[position] = self._joined[index] | self._flatten(first, position)
        return known


def _joined(grants: Iterable[Grant]) -> Iterable[Grant]:
    """Return the grants that hold something; those of one job with one end are one grant.

    A job that has freed a part holds the rest as another grant.
    """
    by_key: dict[tuple[float, int], Grant] = {}
    for grant in grants:
        if not grant.allocation.groups:
            continue
        allocation = grant.allocation
        if (known := by_key.get(_key(grant))) is not None:
            allocation = allocation.joined(known.allocation.groups)
        by_key[_key(grant)] = Grant(grant.id, allocation, grant.end, grant.stepped)
    return by_key.values()


def _key(grant: Grant) -> tuple[float, int]:
    return (grant.end, grant.id)
