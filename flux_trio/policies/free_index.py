"""An index of free cores and gpus by rank; its costs grow with kinds of nodes, not with nodes.

Bit sets of ranks are kept by the numbers of free gpus and cores, so a search examines a few
integers. All idle ranks, and all full ranks, are handled at once; the other ranks are grouped by
their pattern of free cores. The index knows neither the jobs nor which ranks are up.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import reduce
from operator import or_
from typing import TypeVar

from flux_trio.formats import Idset
from flux_trio.policies.bits import ranks_of
from flux_trio.policies.shape import NOTHING, Children

K = TypeVar("K", bound=Hashable)

Counts = tuple[int, int]
"""(free gpus, free cores): in this order, sorting puts ranks with spare gpus last."""


FULL: Counts = (0, 0)


def counts_of(children: Children) -> Counts:
    return (children[1].bit_count(), children[0].bit_count())


class FreeIndex:
    """Free cores and gpus of ranks, in several views that every change keeps consistent.

    All views are derived: they follow from the inventory and the grants. No dump has an index.
    """

    def __init__(self) -> None:
        self.totals: dict[Children, int] = {}
        """All cores and gpus of a rank → the ranks that have exactly these."""
        self.idle: dict[Children, int] = {}
        """The same, for ranks on which everything is free."""
        self.by_free: dict[Counts, int] = {}
        """(free gpus, free cores) → ranks."""
        self._mixed: dict[int, Children] = {}
        """Free cores and gpus of each rank that is neither idle nor full."""
        self._alike: dict[Children, int] = {}
        """The same ranks by their free cores and gpus."""

    def copy(self) -> FreeIndex:
        """Return an independent copy."""
        twin = FreeIndex()
        twin.totals = self.totals.copy()
        twin.idle = self.idle.copy()
        twin.by_free = self.by_free.copy()
        twin._mixed = self._mixed.copy()
        twin._alike = self._alike.copy()
        return twin

    def with_nothing_free(self) -> FreeIndex:
        """Return an independent index of the same ranks, all of them full."""
        twin = FreeIndex()
        twin.totals = self.totals.copy()
        ranks = reduce(or_, self.totals.values(), 0)
        twin.by_free = {FULL: ranks} if ranks else {}
        return twin

    def idle_ranks(self) -> int:
        return reduce(or_, self.idle.values(), 0)

    def parts(self, ranks: int) -> list[tuple[int, Children]]:
        """Split `ranks`, all of them known, by their free cores and gpus."""
        if not ranks & (ranks - 1) and (free := self._mixed.get(ranks.bit_length() - 1)):
            return [(ranks, free)]
        found = []
        for total, idle in self.idle.items():
            if part := ranks & idle:
                found.append((part, total))
                ranks ^= part
        if part := ranks & self.by_free.get(FULL, 0):
            found.append((part, NOTHING))
            ranks ^= part
        return found + self._mixed_parts(ranks) if ranks else found

    def _mixed_parts(self, ranks: int) -> list[tuple[int, Children]]:
        """Split mixed ranks, in the order of the lowest rank of each part."""
        if len(self._alike) < ranks.bit_count():
            parts = [
                (part, children) for children, some in self._alike.items() if (part := some & ranks)
            ]
            parts.sort(key=_lowest_bit)
            return parts
        alike: dict[Children, list[int]] = {}
        mixed = self._mixed
        for rank in ranks_of(ranks):
            alike.setdefault(mixed[rank], []).append(rank)
        return [(Idset.of(some).bits, children) for children, some in alike.items()]

    def splits(self, ranks: int) -> list[tuple[int, Children, Children]]:
        """Split `ranks` by total and free: return (ranks, total, free).

        The order of the result does not depend on the order of earlier changes.
        """
        parts = self.parts(ranks)
        if len(self.totals) == 1:
            (total,) = self.totals
            return [(part, total, free) for part, free in parts]
        splits = [
            (both, total, free)
            for part, free in parts
            for total, kind in self.totals.items()
            if (both := part & kind)
        ]
        splits.sort(key=_lowest_bit)
        return splits

    def move(self, ranks: int, free: Children, now_free: Children) -> None:
        """Change the free cores and gpus of `ranks` from `free` to `now_free`."""
        self._leave(ranks, free)
        self._enter(ranks, now_free)

    def add(self, ranks: int, total: Children, free: Children) -> None:
        """Add `ranks`, which must be new."""
        self.totals[total] = self.totals.get(total, 0) | ranks
        self._enter(ranks, free)

    def remove(self, ranks: int) -> None:
        """Forget `ranks`, which must be known."""
        for part, total, free in self.splits(ranks):
            self._leave(part, free)
            _discard(self.totals, total, part)

    def _leave(self, ranks: int, free: Children) -> None:
        _discard(self.by_free, counts_of(free), ranks)
        if free == NOTHING:
            return
        idle = self.idle.get(free, 0) & ranks
        if idle:
            _discard(self.idle, free, idle)
        if mixed := ranks ^ idle:
            _discard(self._alike, free, mixed)
            for rank in ranks_of(mixed):
                del self._mixed[rank]

    def _enter(self, ranks: int, free: Children) -> None:
        counts = counts_of(free)
        self.by_free[counts] = self.by_free.get(counts, 0) | ranks
        if free == NOTHING:
            return
        idle = self.totals.get(free, 0) & ranks
        if idle:
            self.idle[free] = self.idle.get(free, 0) | idle
        if mixed := ranks ^ idle:
            self._alike[free] = self._alike.get(free, 0) | mixed
            for rank in ranks_of(mixed):
                self._mixed[rank] = free


def _lowest_bit(part: tuple[int, *tuple[Children, ...]]) -> int:
    return part[0] & -part[0]


def _discard(sets: dict[K, int], key: K, ranks: int) -> None:
    held = sets.get(key, 0)
    left = held & ~ranks
    if left:
        sets[key] = left
    elif held:
        del sets[key]
