"""Chooses, among the ranks that could take units of a request, the ranks that shall take them.

Placement is deterministic: the tightest fit first, then the lowest ranks. The rows of a search are
pairs (units that each rank could take, ranks), beginning with the ranks that have the least to
spare. Picks are pairs (units that each rank shall take, ranks).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flux_trio.policies.bits import lowest
from flux_trio.policies.free_index import Counts
from flux_trio.policies.shape import Allocation, Shape

Row = tuple[int, int]


def rows_of(sets: Iterable[tuple[Counts, int]], shape: Shape, ranks: int) -> list[Row]:
    """Return rows for those of `ranks` that can take at least one unit of `shape`."""
    rows = []
    cores, gpus, by_node = shape.cores, shape.gpus, shape.by_node
    for (ngpus, ncores), some in sorted(sets):
        if ncores < cores or ngpus < gpus:
            continue
        able = some & ranks
        if not able:
            continue
        units = 1 if by_node else ncores // cores
        if gpus and not by_node:
            units = min(units, ngpus // gpus)
        rows.append((units, able))
    return rows


def units_in(rows: list[Row]) -> int:
    """Return how many units all ranks together could take."""
    return sum([units * ranks.bit_count() for units, ranks in rows])


def pick(rows: list[Row], shape: Shape) -> list[Row] | None:
    """Return ranks for all units of `shape`; None if the rows do not suffice."""
    return _pick_nodes(rows, shape.count) if shape.by_node else _pick_slots(rows, shape.count)


def pick_with_preference(rows: list[Row], shape: Shape, preferred: int) -> list[Row] | None:
    """Pick with as many units as possible on the `preferred` ranks (a bit set); None as `pick`."""
    first = [(units, some) for units, ranks in rows if (some := ranks & preferred)]
    if units_in(first) >= shape.count:
        return pick(first, shape)
    others = [(units, some) for units, ranks in rows if (some := ranks & ~preferred)]
    rest = msgspec.structs.replace(shape, count=shape.count - units_in(first))
    picks = pick(others, rest)
    return None if picks is None else first + picks


def _pick_nodes(rows: list[Row], wanted: int) -> list[Row] | None:
    """Prefer nodes of one kind if there are enough of them."""
    for _, ranks in rows:
        if ranks.bit_count() >= wanted:
            return [(1, lowest(ranks, wanted))]
    picks: list[Row] = []
    for _, ranks in rows:
        chosen = lowest(ranks, wanted)
        picks.append((1, chosen))
        wanted -= chosen.bit_count()
        if not wanted:
            return picks
    return None


def _pick_slots(rows: list[Row], wanted: int) -> list[Row] | None:
    """Prefer few nodes: fill the roomiest nodes, then put the rest where it fits most tightly."""
    picks: list[Row] = []
    by_room = rows
    while True:
        for units, ranks in by_room:
            if units >= wanted:
                return [*picks, (wanted, lowest(ranks, 1))]
        if not picks:
            if units_in(rows) < wanted:
                return None
            by_room = sorted(rows, key=_units)  # stable: the tightest among equal rows stay first
        units, ranks = by_room.pop()
        chosen = lowest(ranks, wanted // units)
        picks.append((units, chosen))
        wanted -= units * chosen.bit_count()
        if not wanted:
            return picks
        if rest := ranks ^ chosen:
            by_room.append((units, rest))


def _units(row: Row) -> int:
    return row[0]


def units_max(shape: Shape, allocation: Allocation) -> int:
    """Return an upper bound of the units of `shape` that freeing `allocation` makes room for."""
    if shape.by_node:
        return sum([group.ranks.bit_count() for group in allocation.groups])
    return sum(
        [
            group.ranks.bit_count() * (group.cores.bit_count() + group.gpus.bit_count())
            for group in allocation.groups
        ]
    )
