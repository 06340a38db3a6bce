"""The clock of a search stands still: a clock that goes on reaches nothing more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from flux_trio.formats import parse_eventlog
from flux_trio.lab import Crash, JobPlan, OwnerRequest, Plan
from flux_trio.protocols.alloc import ALLOC, AllocEvent, AllocState
from flux_trio.protocols.execution import EXECUTION, ExecEvent, ExecState
from tests.explore.search import WORLDS, Search, SmallWorld, search
from tests.explore.search.identity import identity
from tests.explore.search.small_world import Choice, Fire, Strike, WorldState

ONE = Plan(seed=0, nnodes=1, cores=1, jobs=(JobPlan(),))
PLANS = {
    "exec": WORLDS["exec-crash"],
    "sched": msgspec.structs.replace(ONE, faults=(Crash("sched", 1),)),
    "cancel": msgspec.structs.replace(ONE, actions=(OwnerRequest(0.0, "cancel"),)),
    "urgency": msgspec.structs.replace(
        ONE,
        jobs=(JobPlan(), JobPlan(urgency=0)),
        actions=(OwnerRequest(0.0, "urgency", job=1, value=20),),
    ),
}

History = frozenset[tuple[str, ...]]
"""The names of the events of each job of a world at rest."""


class GoingOn(SmallWorld):
    """The clock goes on: of all timers those that are due first fire, at their time."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self._moments: dict[int, tuple[WorldState, float]] = {}
        super().__init__(*args, **more)

    def put_down(self) -> WorldState:
        state = super().put_down()
        self._moments[id(state)] = (state, self.passed)
        return state

    def take_up(self, state: WorldState) -> None:
        super().take_up(state)
        _, self.passed = self._moments[id(state)]

    def choices(self) -> list[Choice]:
        still = [each for each in super().choices() if not isinstance(each, Fire)]
        due = max(self.passed, self._next_moment_of_all())
        return still + [
            Fire(name, place)
            for name, station in sorted(self.stations.items())
            for place in range(len(station.timers_at(due)))
        ]

    def do(self, choice: Choice) -> None:
        if isinstance(choice, Fire):
            self.passed = max(self.passed, self._next_moment_of_all())
        super().do(choice)

    def _next_moment_of_all(self) -> float:
        moments = [each.next_timer for each in self.stations.values()]
        return min((each for each in moments if each is not None), default=-math.inf)


def histories(world: SmallWorld) -> set[History]:
    """What became of the jobs, on every way through a world."""
    first = (world.put_down(), world.passed)
    known = {(identity(first[0], world.machines), world.passed)}
    met, found = [first], set()
    while met:
        state, passed = met.pop()
        world.passed = passed
        world.take_up(state)
        choices = world.choices()
        if all(isinstance(each, Strike) for each in choices):
            found.add(frozenset(history(world)))
        for choice in choices:
            world.passed = passed
            world.take_up(state)
            world.do(choice)
            reached = world.put_down()
            name = (identity(reached, world.machines), world.passed)
            if name not in known:
                known.add(name)
                met.append((reached, world.passed))
    return found


def history(world: SmallWorld) -> Iterator[tuple[str, ...]]:
    world.read_store()
    store = world.disk.store
    for key in store.dir("job"):
        if key.endswith(".eventlog"):
            (text,) = store.lookup([key])
            assert isinstance(text, str)
            yield tuple(each.name for each in parse_eventlog(text))


@pytest.mark.parametrize("name", PLANS)
def test_clock_that_goes_on_reaches_the_same_histories(name: str) -> None:
    plan = PLANS[name]
    assert histories(GoingOn(plan)) == histories(SmallWorld(plan)) != set()


@pytest.mark.parametrize("with_rules", [True, False])
@pytest.mark.parametrize(
    ("plan", "row", "event", "state"),
    [
        ("exec", EXECUTION.rows[ExecState.STARTING], ExecEvent.LOST, ExecState.STARTING),
        ("exec", EXECUTION.rows[ExecState.RUNNING], ExecEvent.LOST, ExecState.RUNNING),
        ("sched", ALLOC.rows[AllocState.PENDING], AllocEvent.LOST, AllocState.PENDING),
    ],
)
def test_clock_that_goes_on_gives_the_same_verdict(
    monkeypatch: pytest.MonkeyPatch,
    plan: str,
    row: dict[Any, Any],
    event: Any,
    state: Any,
    with_rules: bool,
) -> None:
    monkeypatch.setitem(row, event, state)
    still = Search(PLANS[plan], with_rules=with_rules).run().broken
    monkeypatch.setattr(search, "SmallWorld", GoingOn)
    going_on = Search(PLANS[plan], with_rules=with_rules).run().broken
    assert still is not None
    assert going_on is not None
    assert (still.name, len(still.path)) == (going_on.name, len(going_on.path))
