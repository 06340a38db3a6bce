"""The scheduler's resources: the inventory, and which of it is up and free (RFC 20, RFC 28).

The pool hands out cores and gpus as `Allocation`s and takes them back; it does not know which job
holds them or until when. Costs grow with the number of different node states and with the ranks of
the allocation, not with the number of jobs; the size of the machine matters only in bit-set
operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Final, Protocol

from flux_trio.formats import Constraint, Group, Idset, IndexedTargets, ResourceSet
from flux_trio.policies.bits import lowest_cached
from flux_trio.policies.free_index import FULL, Counts, FreeIndex, counts_of
from flux_trio.policies.placement import Row, pick, pick_with_preference, rows_of, units_in
from flux_trio.policies.shape import NOTHING, Allocation, Children, Shape

CANDIDATES_BYTES_MAX: Final = 64 << 20
"""Bytes of the ranks that satisfy constraints, beyond which the oldest are found again."""

_ENTRY_BYTES: Final = 128  # of a constraint that is kept, beside its ranks


class PoolError(Exception):
    """The caller took resources that are not free, or freed free ones; the pool is unchanged."""


class Free(Protocol):
    """Free cores and gpus of ranks, in the form that a search needs."""

    @property
    def by_free(self) -> Mapping[Counts, int]:
        """(free gpus, free cores) → ranks."""

    def idle_ranks(self) -> int: ...

    def parts(self, ranks: int) -> Iterable[tuple[int, Children]]:
        """Split `ranks`, all of them known, by their free cores and gpus."""


class Pool:
    """Cores and gpus by rank, free or allocated; only ranks that are up are handed out.

    The inventory and the ranks that are up are state. All else is derived: the hosts, the ranks and
    the answers to constraints follow from the inventory, and what is free follows from the
    inventory and the grants. A pool that is taken up is idle, and its `Schedule` takes from it what
    the grants hold.
    """

    def __init__(self) -> None:
        self.inventory: ResourceSet | None = None
        """Everything grown and not shrunk; None if that is empty."""
        self.hosts: Mapping[int, str] = {}
        """Host of each rank of the inventory."""
        self._ranks = 0
        self._up = 0
        self._index = FreeIndex()
        self._candidates = _Candidates(None)

    def __getstate__(self) -> tuple[ResourceSet | None, int]:
        return self.inventory, self._up

    def __setstate__(self, state: tuple[ResourceSet | None, int]) -> None:
        inventory, self._up = state
        self._set_inventory(inventory)
        self._index = FreeIndex()
        for group in inventory.groups if inventory else ():
            total = Children(group.cores, group.gpus)
            self._index.add(group.ranks, total, total)

    def copy(self) -> Pool:
        """Return a copy for trials: it shares the inventory and has its own free resources."""
        return self._twin(self._index.copy())

    def _twin(self, index: FreeIndex) -> Pool:
        twin = Pool()
        twin.inventory, twin.hosts = self.inventory, self.hosts
        twin._ranks, twin._up = self._ranks, self._up
        twin._candidates = self._candidates
        twin._index = index
        return twin

    def with_nothing_free(self) -> Pool:
        """Return a copy in which every core and gpu is taken."""
        return self._twin(self._index.with_nothing_free())

    @property
    def free(self) -> Free:
        return self._index

    def free_allocation(self) -> Allocation:
        ranks_with: dict[Children, int] = {}
        for ranks, children in self._index.parts(self._ranks):
            if children != NOTHING:
                ranks_with[children] = ranks_with.get(children, 0) | ranks
        return Allocation.of_parts(ranks_with)

    def totals(self) -> list[tuple[Children, int]]:
        """Return (cores and gpus of a rank, ranks with exactly these), up or down, free or not."""
        return list(self._index.totals.items())

    @property
    def ranks(self) -> int:
        """Return all ranks, up or down, as a bit set."""
        return self._ranks

    @property
    def up(self) -> int:
        """Return the ranks that are online, as a bit set."""
        return self._up

    # Inventory (RFC 28)

    def grow(self, resources: ResourceSet, online: int, held: Iterable[Allocation] = ()) -> None:
        """Add `resources`; the ranks in `online` are up.

        New resources that belong to an allocation in `held` are not free. ValueError if a rank's
        host differs from the known host; the pool is then unchanged.
        """
        grown = self.inventory.union(resources) if self.inventory else resources
        self._set_inventory(grown.with_times(resources.starttime, resources.expiration))
        for group in resources.groups:
            for ranks, total, free in self._known(group.ranks):
                new = _minus(Children(group.cores, group.gpus), total)
                self._index.remove(ranks)
                self._index.add(ranks, _plus(total, new), _plus(free, new))
                self._mark_held(ranks, new, held)
        self._up = (self._up & ~resources.ranks.bits) | (online & resources.ranks.bits)

    def expire(self, expiration: float) -> None:
        """Set the end of all resources: seconds since the Unix epoch, 0 for never."""
        if self.inventory:
            times = (self.inventory.starttime, expiration)
            self._set_inventory(self.inventory.with_times(*times))

    def change_properties(self, added: Mapping[str, Idset], removed: Mapping[str, Idset]) -> None:
        """Give ranks properties, or take them away; unknown ranks are ignored."""
        if self.inventory:
            self._set_inventory(self.inventory.with_properties(added, removed))

    def shrink(self, ranks: int) -> None:
        """Forget `ranks`; allocations on them may still be freed. Unknown ranks are ignored."""
        ranks &= self._ranks
        self._index.remove(ranks)
        self._up &= ~ranks
        left = self.inventory.without_ranks(Idset.from_bits(ranks)) if self.inventory else None
        self._set_inventory(left or None)

    def online(self, ranks: int) -> None:
        """Hand out `ranks` again, except shrunk ones."""
        self._up |= ranks & self._ranks

    def offline(self, ranks: int) -> None:
        """Stop handing out `ranks`; allocations on them stay."""
        self._up &= ~ranks

    def _set_inventory(self, inventory: ResourceSet | None) -> None:
        self.inventory = inventory
        self.hosts = inventory.hosts if inventory else {}
        self._ranks = inventory.ranks.bits if inventory else 0
        self._candidates = _Candidates(inventory)

    def _known(self, ranks: int) -> list[tuple[int, Children, Children]]:
        """Split `ranks` into (ranks, total, free); a new rank is added with nothing in it."""
        known = 0
        for kind in self._index.totals.values():
            known |= kind
        splits = self._index.splits(ranks & known)
        fresh = ranks & ~known
        if fresh:
            self._index.add(fresh, NOTHING, NOTHING)
            splits.append((fresh, NOTHING, NOTHING))
        return splits

    def _mark_held(self, ranks: int, new: Children, held: Iterable[Allocation]) -> None:
        for allocation in held:
            for group in allocation.groups:
                mine = Group(group.ranks & ranks, group.cores & new.cores, group.gpus & new.gpus)
                for part, _, free in self._index.splits(mine.ranks):
                    self._index.move(part, free, _minus(free, Children(mine.cores, mine.gpus)))

    # Placement

    def candidates(self, constraint: Constraint | None) -> int:
        """Return the ranks that satisfy `constraint`, up or down, as a bit set."""
        if constraint is None or self.inventory is None:
            return self._ranks
        return self._candidates.of(constraint)

    def find(self, shape: Shape) -> Allocation | None:
        """Return where `shape` fits now, without taking it; None if it does not fit."""
        return self.find_in(shape, self._index)

    def find_in(self, shape: Shape, free: Free) -> Allocation | None:
        """Return where `shape` fits in `free`, on ranks that are up; None if it does not fit."""
        picks = pick(self._rows(shape, free), shape)
        return None if picks is None else _allocation(shape, picks, free)

    def find_preferring(self, shape: Shape, free: Free, preferred: Free) -> Allocation | None:
        """Return where `shape` fits in `free`; None if it does not fit.

        `preferred` is a part of `free`. Ranks with resources in `preferred` are taken first, and on
        each rank the cores and gpus in `preferred` are taken first.
        """
        picks = pick_with_preference(self._rows(shape, free), shape, _ranks_in(preferred))
        return None if picks is None else _allocation(shape, picks, free, preferred)

    def allocate(self, shape: Shape) -> Allocation | None:
        """Take resources for `shape` and return them; None if it does not fit."""
        allocation = self.find(shape)
        if allocation is not None:
            self.mark_allocated(allocation)
        return allocation

    def room(self, shape: Shape) -> int:
        """Return how many units of `shape` would fit now."""
        return units_in(self._rows(shape, self._index))

    def room_when_idle(self, shape: Shape, *, up_only: bool = False) -> int:
        """Return how many units of `shape` would fit if nothing were allocated."""
        ranks = self.candidates(shape.constraint) & (self._up if up_only else self._ranks)
        totals = [(counts_of(total), kind) for total, kind in self._index.totals.items()]
        return units_in(rows_of(totals, shape, ranks))

    def can_ever_fit(self, shape: Shape) -> bool:
        """Return whether the whole inventory could take `shape` if idle (RFC 27, Alloc Deny)."""
        return self.room_when_idle(shape) >= shape.count

    def _rows(self, shape: Shape, free: Free) -> list[Row]:
        ranks = (
            self._up if shape.constraint is None else self._up & self.candidates(shape.constraint)
        )
        if shape.whole:
            ranks &= free.idle_ranks()
        return rows_of(free.by_free.items(), shape, ranks)

    # Taking and giving back

    def mark_allocated(self, allocation: Allocation) -> None:
        """Mark `allocation` as not free; PoolError if a part of it is already allocated.

        Resources outside the inventory are skipped: the pool does not own them.
        """
        moves = []
        for ranks, free, cores, gpus in self._shares(allocation):
            if cores & ~free[0] or gpus & ~free[1]:
                mine = Children(cores, gpus)
                raise PoolError(_complaint(ranks, mine, free, "is allocated already"))
            moves.append((ranks, free, Children(free[0] ^ cores, free[1] ^ gpus)))
        self._move(moves)

    def reserve_free(self, allocation: Allocation) -> None:
        """Mark the free part of `allocation` as not free, to protect it for another job."""
        self._move(
            [
                (ranks, free, Children(free[0] & ~cores, free[1] & ~gpus))
                for ranks, free, cores, gpus in self._shares(allocation)
            ]
        )

    def give(self, allocation: Allocation) -> None:
        """Take `allocation` back; PoolError if a part of it is already free.

        Resources that are no longer in the inventory are skipped.
        """
        moves = []
        for ranks, free, cores, gpus in self._shares(allocation):
            if cores & free[0] or gpus & free[1]:
                taken = Children(~free.cores, ~free.gpus)
                mine = Children(cores, gpus)
                raise PoolError(_complaint(ranks, mine, taken, "is free already"))
            moves.append((ranks, free, Children(free[0] | cores, free[1] | gpus)))
        self._move(moves)

    def _shares(self, allocation: Allocation) -> list[tuple[int, Children, int, int]]:
        """Return (ranks, what is free there, the allocation's known cores there, its gpus)."""
        return [
            (ranks, free, group.cores & total[0], group.gpus & total[1])
            for group in allocation.groups
            for ranks, total, free in self._index.splits(group.ranks & self._ranks)
        ]

    def _move(self, moves: list[tuple[int, Children, Children]]) -> None:
        for ranks, free, now_free in moves:
            self._index.move(ranks, free, now_free)


class _Candidates:
    """The ranks of an inventory that satisfy constraints; as many are kept as have room."""

    def __init__(self, inventory: ResourceSet | None) -> None:
        self._inventory = inventory
        self._targets: IndexedTargets | None = None  # made for the first constraint
        self._ranks: dict[Constraint, int] = {}  # the oldest first
        size = _ENTRY_BYTES + (inventory.ranks.bits.bit_length() // 8 if inventory else 0)
        self._most = CANDIDATES_BYTES_MAX // size

    def of(self, constraint: Constraint) -> int:
        ranks = self._ranks.get(constraint)
        if ranks is None:
            if self._targets is None:
                assert self._inventory is not None, "constraints of a pool without an inventory"
                self._targets = self._inventory.targets
            if len(self._ranks) >= self._most:
                del self._ranks[next(iter(self._ranks))]
            ranks = self._ranks[constraint] = constraint.select(self._targets).bits
        return ranks


def _plus(a: Children, b: Children) -> Children:
    return Children(a[0] | b[0], a[1] | b[1])


def _minus(a: Children, b: Children) -> Children:
    return Children(a[0] & ~b[0], a[1] & ~b[1])


def _ranks_in(free: Free) -> int:
    """Return the ranks that have a core or a gpu in `free`."""
    return reduce(or_, [ranks for counts, ranks in free.by_free.items() if counts != FULL], 0)


def _allocation(
    shape: Shape, picks: list[Row], free: Free, preferred: Free | None = None
) -> Allocation:
    """Choose cores and gpus on the picked ranks: those in `preferred` first, then the lowest."""
    ranks_with: dict[Children, int] = {}
    for units, ranks in picks:
        for part, children in free.parts(ranks):
            if shape.whole:
                ranks_with[children] = ranks_with.get(children, 0) | part
                continue
            firsts = [(part, NOTHING)] if preferred is None else preferred.parts(part)
            for some, first in firsts:
                mine = Children(
                    _lowest_of(children.cores, first.cores, units * shape.cores),
                    _lowest_of(children.gpus, first.gpus, units * shape.gpus),
                )
                ranks_with[mine] = ranks_with.get(mine, 0) | some
    return Allocation.of_parts(ranks_with, shape.nslots)


def _lowest_of(bits: int, first: int, count: int) -> int:
    """Return `count` one-bits of `bits`: those in `first` before others, each the lowest first."""
    if not count:
        return 0
    preferred = bits & first
    if not preferred:
        return lowest_cached(bits, count)
    chosen = lowest_cached(preferred, count)
    missing = count - chosen.bit_count()
    return chosen | lowest_cached(bits ^ preferred, missing) if missing else chosen


def _complaint(ranks: int, mine: Children, allowed: Children, what: str) -> str:
    kind, bad = next(
        (kind, Idset.from_bits(has & ~may))
        for kind, has, may in zip(("core", "gpu"), mine, allowed, strict=True)
        if has & ~may
    )
    return f"{kind}{bad.brackets()} of rank{Idset.from_bits(ranks).brackets()} {what}"
