"""The pool against a naive one of plain sets, and case by case."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flux_trio.formats import Group, Idset, ResourceSet, parse_constraint
from flux_trio.policies import Allocation, Pool, PoolError, Shape
from flux_trio.policies.bits import lowest, ranks_of
from tests.support.scheduling import Unit, machine, nodes, slots, units


def pool_of(*parts: ResourceSet, online: int = -1) -> Pool:
    pool = Pool()
    for part in parts:
        pool.grow(part, online)
    return pool


def one_core(rank: int, core: int = 0) -> Allocation:
    return Allocation((Group(1 << rank, 1 << core, 0),), 1)


def allocated(pool: Pool, shape: Shape) -> ResourceSet:
    allocation = pool.allocate(shape)
    assert allocation is not None
    return allocation.resource_set(pool.hosts, {}, 0.0, 0.0)


class TestPlacement:
    def test_one_core_is_the_lowest_of_the_lowest_rank(self) -> None:
        pool = pool_of(machine(4, 4))
        assert allocated(pool, slots(1)).summary() == "rank0/core0"

    def test_one_core_goes_where_the_fewest_are_free(self) -> None:
        pool = pool_of(machine(4, 4))
        pool.mark_allocated(Allocation((Group(0b100, 0b11, 0),), 2))
        assert allocated(pool, slots(1)).summary() == "rank2/core2"

    def test_slots_take_few_nodes_and_the_rest_fits_tightly(self) -> None:
        pool = pool_of(machine(4, 4))
        pool.mark_allocated(Allocation((Group(0b1000, 0b111, 0),), 3))
        assert allocated(pool, slots(5)).summary() == "rank0/core[0-3] rank3/core3"

    def test_a_slot_is_on_one_node(self) -> None:
        pool = pool_of(machine(4, 4))
        assert allocated(pool, slots(3, 2)).summary() == "rank0/core[0-3] rank1/core[0-1]"
        assert pool.find(slots(1, 5)) is None

    def test_nodes_are_taken_once_each(self) -> None:
        pool = pool_of(machine(4, 4))
        assert allocated(pool, nodes(3)).summary() == "rank[0-2]/core0"
        assert pool.find(nodes(5)) is None

    def test_whole_nodes_must_be_idle(self) -> None:
        """14.vertex.3: and the job gets all that they have."""
        pool = pool_of(machine(4, 4))
        pool.mark_allocated(one_core(1))
        assert allocated(pool, nodes(2, whole=True)).summary() == "rank[0,2]/core[0-3]"
        assert pool.find(nodes(2, whole=True)) is None

    def test_gpus_come_with_their_slots(self) -> None:
        pool = pool_of(machine(2, 4, 2))
        assert (
            allocated(pool, slots(3, 1, 1)).summary() == "rank0/core[0-1],gpu[0-1] rank1/core0,gpu0"
        )
        assert pool.find(slots(2, 1, 1)) is None

    def test_a_job_without_gpus_goes_where_none_are(self) -> None:
        pool = pool_of(machine(1, 4, 2), machine(1, 8, first=1))
        assert allocated(pool, slots(1)).summary() == "rank1/core0"

    def test_ranks_that_are_down_are_not_used(self) -> None:
        """28.offline.3: and are again when they are online (28.online.3)."""
        pool = pool_of(machine(2, 1), online=0b10)
        assert allocated(pool, slots(1)).summary() == "rank1/core0"
        assert pool.find(slots(1)) is None
        assert pool.can_ever_fit(slots(2))
        pool.online(0b01)
        assert allocated(pool, slots(1)).summary() == "rank0/core0"

    def test_a_constraint_limits_the_ranks(self) -> None:
        big = machine(2, 2, properties={"big": Idset.of([1])})
        pool = pool_of(big)
        wanted = slots(1, constraint=parse_constraint({"properties": ["big"]}))
        assert allocated(pool, wanted).summary() == "rank1/core0"
        assert pool.room(wanted) == 1
        assert pool.room_when_idle(wanted) == 2
        pool.grow(machine(1, 2, first=2, properties={"big": Idset.of([2])}), -1)
        assert pool.room_when_idle(wanted) == 4  # what a constraint selects is found anew
        pool.shrink(0b10)
        assert pool.room_when_idle(wanted) == 2


class TestTakingAndGiving:
    def test_freeing_twice_is_an_error_and_harms_nothing(self) -> None:
        pool = pool_of(machine(2, 2))
        allocation = pool.allocate(slots(1))
        assert allocation is not None
        pool.give(allocation)
        with pytest.raises(PoolError, match="core0 of rank0 is free already"):
            pool.give(allocation)
        assert pool.room(slots(1)) == 4

    def test_an_error_in_the_last_part_undoes_the_first(self) -> None:
        pool = pool_of(machine(2, 2))
        pool.mark_allocated(one_core(1))
        with pytest.raises(PoolError, match="core0 of rank1 is allocated already"):
            pool.mark_allocated(Allocation((Group(0b01, 0b11, 0), Group(0b10, 0b01, 0)), 3))
        assert pool.room(slots(1)) == 3

    def test_what_is_not_in_the_inventory_is_left_out(self) -> None:
        """27.hello.12: R may name ranks and cores that are not ours."""
        pool = pool_of(machine(1, 2))
        strange = Allocation((Group(0b11, 0b101, 1),), 1)
        pool.mark_allocated(strange)
        assert pool.room(slots(1)) == 1
        pool.give(strange)
        assert pool.room(slots(1)) == 2

    def test_shrunk_ranks_do_not_come_back_with_a_free_or_online(self) -> None:
        """28.shrink.3."""
        pool = pool_of(machine(2, 1))
        allocation = pool.allocate(nodes(2))
        assert allocation is not None
        pool.shrink(0b01)
        pool.give(allocation)
        pool.online(0b11)
        assert pool.room_when_idle(slots(1)) == pool.room(slots(1)) == 1

    def test_what_is_grown_and_held_is_not_free(self) -> None:
        pool = pool_of(machine(1, 2))
        pool.grow(machine(2, 4), -1, held=[one_core(0, 3), one_core(1, 1)])
        assert pool.room(slots(1)) == 6
        pool.give(one_core(1, 1))
        assert pool.room(slots(1)) == 7

    def test_grow_says_who_is_up(self) -> None:
        pool = pool_of(machine(2, 1))
        pool.grow(machine(2, 1, first=1), 0b100)
        assert pool.up == 0b101


class Naive:
    """A pool that looks at every core."""

    def __init__(self, resources: ResourceSet) -> None:
        self.total = units(Allocation.of(resources))
        self.free = set(self.total)
        self.up = set(resources.ranks)

    def room(self, shape: Shape) -> int:
        room = 0
        for rank in self.up:
            cores, gpus = (
                len([unit for unit in self.free if unit[:2] == (rank, kind)])
                for kind in ("core", "gpu")
            )
            if shape.whole and [u for u in self.total - self.free if u[0] == rank]:
                continue
            fits = min(cores // shape.cores, gpus // shape.gpus if shape.gpus else cores)
            room += min(fits, 1) if shape.by_node else fits
        return room

    def check(self, shape: Shape, taken: set[Unit]) -> None:
        """Whether `taken` is what `shape` asks for, and to be had."""
        assert taken <= self.free
        ranks = {unit[0] for unit in taken}
        assert ranks <= self.up
        got = 0
        for rank in ranks:
            here = {unit for unit in taken if unit[0] == rank}
            cores = len([unit for unit in here if unit[1] == "core"])
            if shape.whole:
                assert here == {unit for unit in self.total if unit[0] == rank}
            else:
                assert cores % shape.cores == 0
                assert len(here) - cores == cores // shape.cores * shape.gpus
            got += 1 if shape.by_node else cores // shape.cores
        assert got == shape.count


SHAPES = st.one_of(
    st.builds(slots, st.integers(1, 12), st.integers(1, 3), st.integers(0, 1)),
    st.builds(nodes, st.integers(1, 5), st.integers(1, 3), st.integers(0, 1), whole=st.booleans()),
)
STEPS = st.lists(
    st.one_of(
        SHAPES.map(lambda shape: ("allocate", shape)),
        st.integers(0, 30).map(lambda number: ("free", number)),
        st.integers(0, 63).map(lambda ranks: ("online", ranks)),
        st.integers(0, 63).map(lambda ranks: ("offline", ranks)),
    ),
    max_size=25,
)


@settings(max_examples=120)
@given(STEPS)
def test_the_pool_does_what_a_naive_one_does(steps: list[tuple[str, object]]) -> None:
    """Nothing is handed out twice or when down; whatever fits is found; free restores."""
    mixed = machine(3, 4, 2).union(machine(3, 3, first=3))
    pool, naive = pool_of(mixed), Naive(mixed)
    held: list[Allocation] = []
    for what, argument in steps:
        if isinstance(argument, Shape):
            assert pool.room(argument) == naive.room(argument)
            allocation = pool.allocate(argument)
            assert (allocation is not None) == (naive.room(argument) >= argument.count)
            if allocation is not None:
                naive.check(argument, units(allocation))
                naive.free -= units(allocation)
                held.append(allocation)
        elif what == "free" and held:
            allocation = held.pop(int(str(argument)) % len(held))
            pool.give(allocation)
            naive.free |= units(allocation)
        elif what == "online":
            pool.online(int(str(argument)))
            naive.up |= set(ranks_of(int(str(argument))))
        elif what == "offline":
            pool.offline(int(str(argument)))
            naive.up -= set(ranks_of(int(str(argument))))
    for allocation in held:
        pool.give(allocation)
    pool.online(-1)
    assert pool.room(slots(1)) == 21


@given(st.integers(0, 1 << 200), st.integers(1, 60))
def test_lowest_takes_the_lowest_bits(bits: int, count: int) -> None:
    assert list(ranks_of(lowest(bits, count))) == list(ranks_of(bits))[:count]


@given(st.sets(st.integers(0, 3000), max_size=1500))
@example(set(range(700, 900)))
@example(set(range(0, 3000, 100)))
def test_ranks_of_lists_the_bits(ranks: set[int]) -> None:
    assert list(ranks_of(sum([1 << rank for rank in ranks]))) == sorted(ranks)


class TestShape:
    def test_words(self) -> None:
        assert slots(1).describe() == "1 slot with 1 core each"
        assert (
            nodes(2, 4, 1, whole=True).describe() == "2 whole nodes of at least 4 cores and 1 gpu"
        )
