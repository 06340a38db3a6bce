"""The reservation of EASY backfill: the time at which the head can start, and its cores.

The reservation takes the cores that return last before that time. Cores that are free now, or soon,
are useful to other jobs until then; they are reserved only if the others do not suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from flux_trio.policies.placement import units_max
from flux_trio.policies.pool import Pool
from flux_trio.policies.shape import Allocation, Children, Shape
from flux_trio.policies.state import Grant, State


def earliest_start(state: State, shape: Shape, now: float) -> float | None:
    """Return the first time at which `shape` fits if every grant lasts to its end.

    The time is in seconds since the Unix epoch, infinity if grants without an end block the shape.
    An overdue grant counts as ending now. Returns None if `shape` does not fit even without grants:
    the ranks it needs are down.
    """
    if state.pool.room_when_idle(shape, up_only=True) < shape.count:
        return None
    pool = state.pool.copy()
    missing = shape.count - pool.room(shape)
    for end, grants in groupby(state.grants.by_end(), _end):
        for allocation in _merged(grants):
            pool.give(allocation)
            missing -= units_max(shape, allocation)
        if missing <= 0:
            missing = shape.count - pool.room(shape)
        if missing <= 0:
            return max(now, end)
    return None


def cores_reserved(state: State, shape: Shape, start: float) -> Allocation | None:
    """Return the cores to keep for `shape` from `start` on; None if it does not fit then.

    A tier is the set of cores that return at one time. The tiers are added one by one, from those
    that return at `start` back to those that are free now, until `shape` fits. The result uses all
    of the earlier tiers and a part of the last tier.
    """
    before = state.pool.with_nothing_free()  # the pool in which the added tiers are free
    missing = shape.count
    for tier in _tiers(state, start):
        most = sum([units_max(shape, allocation) for allocation in tier])
        if most < missing:
            missing -= most
            _give(before, tier)
            continue
        enough = before.copy()
        _give(enough, tier)
        missing = shape.count - enough.room(shape)
        if missing <= 0:
            return state.pool.find_preferring(shape, enough.free, before.free)
        before = enough
    return None


def _tiers(state: State, start: float) -> Iterator[list[Allocation]]:
    """Yield the resources that return by `start`, latest end first, then those free now."""
    for _, grants in groupby(state.grants.ending_by(start), _end):
        yield _merged(grants)
    yield [state.pool.free_allocation()]


def _end(grant: Grant) -> float:
    return grant.end


def _give(pool: Pool, allocations: list[Allocation]) -> None:
    for allocation in allocations:
        pool.give(allocation)


def _merged(grants: Iterable[Grant]) -> list[Allocation]:
    """Return the resources of the grants in few allocations: one if they share no node."""
    merged: list[Allocation] = []
    ranks_with: dict[Children, int] = {}
    known = 0
    for grant in grants:
        allocation = grant.allocation
        if allocation.ranks & known:
            merged.append(Allocation.of_parts(ranks_with))
            ranks_with, known = {}, 0
        known |= allocation.ranks
        for group in allocation.groups:
            children = Children(group.cores, group.gpus)
            ranks_with[children] = ranks_with.get(children, 0) | group.ranks
    merged.append(Allocation.of_parts(ranks_with))
    return merged
