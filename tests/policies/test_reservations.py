"""Which cores a reservation takes: those in use until it starts, before those that are idle."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.formats import Group
from flux_trio.policies import Allocation, Grant, Job, Pool, Schedule, Shape, State
from flux_trio.policies.reserving import cores_reserved, earliest_start
from tests.support.scheduling import machine, nodes, slots, units


@pytest.fixture(params=["easy", "conservative"])
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def schedule(policy: str, count: int, cores: int = 1) -> Schedule:
    made = Schedule(policy)
    made.grow(machine(count, cores), -1)
    return made


def submit(to: Schedule, jobid: int, shape: Shape, duration: float) -> None:
    to.submit(Job(jobid, shape, duration, 16, 0.0))


def started(by: Schedule, now: float) -> list[int]:
    return [job.id for job, _ in by.decide(now).started]


def test_idle_nodes_stay_open_when_those_in_use_suffice(policy: str) -> None:
    """Job 3 gets the eight nodes of job 2, so that job 4 gets the two of job 1."""
    made = schedule(policy, 10)
    submit(made, 1, nodes(2), 10.0)
    submit(made, 2, nodes(8), 1001.0)
    submit(made, 3, nodes(8), 10.0)
    submit(made, 4, nodes(2), 5000.0)
    assert started(made, 0.0) == [1, 2]
    made.free(1)
    decisions = made.decide(10.0)
    assert [job.id for job, _ in decisions.started] == [4]
    assert {job.id: start for job, start in decisions.waiting.items()} == {3: 1001.0}


def test_no_more_idle_nodes_are_kept_than_are_needed(policy: str) -> None:
    made = schedule(policy, 10)
    submit(made, 1, nodes(4), 100.0)
    submit(made, 2, nodes(7), 10.0)
    for jobid in (3, 4, 5, 6):
        submit(made, jobid, nodes(1), 5000.0)
    assert started(made, 0.0) == [1, 3, 4, 5]


def test_the_cores_of_a_shared_node_are_kept_in_the_same_way(policy: str) -> None:
    """Job 1 holds cores 0 and 1, job 2 is to get them, so that job 3 gets cores 2 and 3."""
    made = schedule(policy, 1, 4)
    submit(made, 1, slots(1, 2), 100.0)
    submit(made, 2, slots(1, 3), 10.0)
    submit(made, 3, slots(1, 1), 5000.0)
    submit(made, 4, slots(1, 1), 5000.0)
    assert started(made, 0.0) == [1, 3]


def test_a_node_that_is_in_use_is_taken_before_an_idle_one(policy: str) -> None:
    """The three nodes that job 1 uses in part are reserved, and the idle one is not."""
    made = schedule(policy, 4, 4)
    made.mark(1, machine(4, 4).difference(machine(1, 4)).difference(machine(4, 2)))
    submit(made, 2, nodes(3, 4), 10.0)
    submit(made, 3, nodes(1, 4, whole=True), 5000.0)
    assert started(made, 0.0) == [3]


def test_what_has_a_reservation_before_it_counts_as_in_use() -> None:
    """Node 0 is promised to job 2 first, so that job 3 follows there and node 2 stays open."""
    made = schedule("conservative", 3)
    made.mark(1, machine(2, 1))
    made.extend(1, 100.0)
    submit(made, 2, nodes(2), 50.0)
    submit(made, 3, nodes(2), 60.0)
    submit(made, 4, nodes(1), 5000.0)
    decisions = made.decide(0.0)
    assert [job.id for job, _ in decisions.started] == [4]
    assert {job.id: start for job, start in decisions.waiting.items()} == {2: 100.0, 3: 150.0}


ALL_CORES = [(rank, core) for rank in range(4) for core in range(4)]
SHAPES = st.one_of(
    st.builds(slots, st.integers(1, 5), st.integers(1, 3)),
    st.builds(nodes, st.integers(1, 4), st.integers(1, 4), whole=st.booleans()),
)
HELD = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(1, 3).map(float),
    min_size=4,
    max_size=16,
)


@settings(max_examples=200)
@given(SHAPES, HELD)
def test_a_reservation_takes_nothing_earlier_if_what_comes_back_last_suffices(
    shape: Shape, held: dict[tuple[int, int], float]
) -> None:
    """`held` is core → end; the cores that come back after `since` are tried alone."""
    state = State()
    state.pool.grow(machine(4, 4), -1)
    for jobid, ((rank, core), end) in enumerate(held.items()):
        allocation = Allocation((Group(1 << rank, 1 << core, 0),), 1)
        state.pool.mark_allocated(allocation)
        state.grants.add(Grant(jobid, allocation, end))
    if state.pool.find(shape) is not None or not state.pool.can_ever_fit(shape):
        return
    start = earliest_start(state, shape, 0.0)
    assert start is not None
    kept = cores_reserved(state, shape, start)
    assert kept is not None
    ends = {(rank, "core", core): held.get((rank, core), 0.0) for rank, core in ALL_CORES}
    mine = {ends[unit] for unit in units(kept)}
    assert max(mine) <= start
    for since in (1.0, 2.0, 3.0):
        alone = Pool()
        alone.grow(machine(4, 4), -1)
        for rank, core in ALL_CORES:
            if not since <= ends[rank, "core", core] <= start:
                alone.mark_allocated(Allocation((Group(1 << rank, 1 << core, 0),), 1))
        if alone.find(shape) is not None:
            assert min(mine) >= since


def test_a_head_without_an_end_in_sight_keeps_no_idle_node(policy: str) -> None:
    made = schedule(policy, 4)
    submit(made, 1, nodes(2), math.inf)
    submit(made, 2, nodes(3), math.inf)
    submit(made, 3, nodes(1), math.inf)
    submit(made, 4, nodes(1), math.inf)
    assert started(made, 0.0) == [1, 3]
