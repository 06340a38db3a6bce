"""The order of records that a search leaves out of its states changes no verdict."""

from __future__ import annotations

import msgspec
import pytest

from flux_trio.lab import JobPlan, OwnerRequest, Plan
from flux_trio.protocols.alloc import ALLOC, AllocEvent, AllocState
from flux_trio.trace import Record
from tests.explore.in_order import InOrder, Noting
from tests.explore.search import SmallWorld
from tests.explore.search.judging import Judge
from tests.explore.test_explore import EXEC, SCHED, walk
from tests.planter.mistakes.entries import mistakes
from tests.planter.mistakes.exploring import NAMES
from tests.planter.mistakes.trying import play
from tests.planter.mistakes.worker import Task

ONE = Plan(seed=0, nnodes=1, cores=1, jobs=(JobPlan(),))
CANCEL = msgspec.structs.replace(ONE, actions=(OwnerRequest(0.0, "cancel"),))
HOLD = msgspec.structs.replace(ONE, actions=(OwnerRequest(0.0, "urgency", value=0),))


@pytest.mark.parametrize("plan", [ONE, HOLD], ids=["one", "hold"])
def test_search_without_the_order_meets_the_same_states_of_the_cores(plan: Plan) -> None:
    few, many = Noting(plan), InOrder(plan)
    of_few, of_many = few.run(), many.run()
    assert of_few.is_complete
    assert of_many.is_complete
    assert of_few.broken is None
    assert of_many.broken is None
    assert of_few.nstates < of_many.nstates
    assert few.of_cores == many.of_cores


@pytest.mark.parametrize(
    ("plan", "state", "event"),
    [
        (ONE, AllocState.PENDING, AllocEvent.SUCCESS),
        (HOLD, AllocState.CANCELING, AllocEvent.SUCCESS),
        (CANCEL, AllocState.PENDING, AllocEvent.SUCCESS),
        (CANCEL, AllocState.ALLOCATED, AllocEvent.FREE),
    ],
    ids=["lost-grant", "lost-grant-of-a-hold", "lost-grant-of-a-cancel", "freed-twice"],
)
def test_row_that_is_wrong_is_found_as_early_without_the_order(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, state: AllocState, event: AllocEvent
) -> None:
    monkeypatch.setitem(ALLOC.rows[state], event, state)
    few, many = Noting(plan).run().broken, InOrder(plan).run().broken
    assert few is not None
    assert many is not None
    assert (few.name, len(few.path)) == (many.name, len(many.path))


@pytest.mark.real
def test_planted_mistake_is_found_as_early_without_the_order() -> None:
    (mistake,) = (each for each in mistakes() if each.id == "free-before-the-release")
    place = NAMES.index("cancel")
    found = play(Task(place, place + 1, mistake.edited()), "tests.explore.searching_twice").broken
    few, many = found.split(", ")
    assert few.startswith("32.start.39 after ")
    assert few == many


@pytest.mark.parametrize("plan", [EXEC, SCHED, CANCEL], ids=["exec", "sched", "cancel"])
def test_nothing_grows_old_and_no_debt_is_kept_while_the_clock_stands_still(plan: Plan) -> None:
    trace: list[Record] = []
    judge = Judge()
    world = SmallWorld(plan, [trace.append, judge.observe])
    clock = judge.put_down(world.put_down())[0].standing.clock
    for seed in range(5):
        first = world.put_down()
        stood, _ = judge.put_down(first)
        walk(plan, seed, world, trace)
        left = judge.put_down(first)[0].standing
        assert (left.clock, left.clock.old, left.left, left.first) == (clock, 0, (), ())
        world.take_up(first)
        judge.take_up(stood, first)
