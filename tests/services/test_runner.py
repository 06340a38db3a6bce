"""The loop that runs a core, and its timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from flux_trio.broker import Handle, LocalHandle, LogBook, Router, ServiceExit
from flux_trio.cores.turns import ClearTimer, Exit, Log, Note, SetTimer, TimerFired
from flux_trio.messages import ROLE_OWNER, Event, Level, Request, respond
from flux_trio.services.runner import Timers, run_core
from flux_trio.trace import Trace
from tests.support.asking import OWNER_USERID
from tests.support.modules import ModuleWorld
from tests.support.setting import SettableClock

# --- timers


class NaiveTimers:
    """The same as a dictionary that is sorted each time."""

    def __init__(self) -> None:
        self.set_at: dict[str, tuple[float, int]] = {}
        self.count = 0

    def set(self, key: str, at: float) -> None:
        self.count += 1
        self.set_at[key] = (at, self.count)

    def clear(self, key: str) -> None:
        self.set_at.pop(key, None)

    def next_at(self) -> float | None:
        return min((at for at, _ in self.set_at.values()), default=None)

    def pop_due(self, now: float) -> list[TimerFired]:
        due = sorted((order, key) for key, order in self.set_at.items() if order[0] <= now)
        for _, key in due:
            del self.set_at[key]
        return [TimerFired(key) for _, key in due]


KEYS = st.sampled_from("abcd")
TIMES = st.integers(0, 9).map(float)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, TIMES),
        st.tuples(st.just("clear"), KEYS),
        st.tuples(st.just("pop_due"), TIMES),
        st.tuples(st.just("next_at")),
    ),
    max_size=60,
)


@given(STEPS)
def test_timers_do_what_a_sorted_dictionary_does(steps: list[tuple[Any, ...]]) -> None:
    timers, naive = Timers(), NaiveTimers()
    for method, *arguments in steps:
        assert getattr(timers, method)(*arguments) == getattr(naive, method)(*arguments)
        assert timers.next_at() == naive.next_at()


def test_timers_set_and_cleared_over_and_over_take_no_room() -> None:
    timers = Timers()
    for n in range(10_000):
        timers.set("often", 1e6 + n)
        timers.set(n, 1e6)
        timers.clear(n)
    assert len(timers._heap) < 1000
    assert timers.next_at() == 1e6 + 9999


def test_timers_of_one_time_fire_in_the_order_they_were_set() -> None:
    timers = Timers()
    for key in ("b", "a", "c", "b"):
        timers.set(key, 5.0)
    assert timers.pop_due(5.0) == [TimerFired("a"), TimerFired("c"), TimerFired("b")]


# --- the loop


class Script:
    """A core that keeps its turns and returns what `answers` makes of each one's inputs."""

    def __init__(
        self,
        answers: Callable[[list[Any]], list[Any]] = lambda _inputs: [],
        first: tuple[Any, ...] = (),
    ) -> None:
        self.turns: list[tuple[float, list[Any]]] = []
        self.started_at: float | None = None
        self._answers = answers
        self._first = list(first)

    def start(self, now: float) -> list[Any]:
        self.started_at = now
        return self._first

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        self.turns.append((now, inputs))
        return self._answers(inputs)


@pytest.fixture
def world(nursery: trio.Nursery) -> ModuleWorld:
    return ModuleWorld(nursery)


async def run(
    world: ModuleWorld, core: Script, perform: Callable[[Any], None] | None = None
) -> None:
    """`core` runs as the module and service `core`."""

    async def main(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register("core")
        if perform is None:
            await run_core(handle, core, task_status=task_status)
        else:
            await run_core(handle, core, perform, task_status=task_status)

    await world.load("core", main)


async def test_actions_of_the_start_are_done_before_the_module_has_started(
    world: ModuleWorld,
) -> None:
    core = Script(first=(Log(Level.INFO, "hello"),))
    await run(world, core)
    assert core.started_at is not None
    assert [str(line) for line in world.log] == ["core.info: hello"]
    assert core.turns == []


async def test_everything_that_waits_is_one_turn_in_order(world: ModuleWorld) -> None:
    core = Script()
    await run(world, core)
    client = world.client()
    for n in range(3):
        client.send("core.x", {"n": n})
    await trio.testing.wait_all_tasks_blocked()
    ((_, inputs),) = core.turns
    assert [request.payload["n"] for request in inputs] == [0, 1, 2]


async def test_actions_are_done_in_the_order_returned(world: ModuleWorld) -> None:
    done: list[Any] = []

    def answers(inputs: list[Any]) -> list[Any]:
        (request,) = inputs
        return [
            "first",
            respond(request, {"n": 1}),
            Event("core.happened", {"n": 2}),
            Note("state", {"n": 3}),
            Log(Level.WARNING, "careful"),
            "last",
        ]

    def perform(action: Any) -> None:
        done.append((action, len(world.records)))

    await run(world, Script(answers), perform)
    client = world.client()
    client.handle.subscribe("core.*")
    assert await client.ask("core.x") == {"n": 1}
    assert [action for action, _ in done] == ["first", "last"]
    told = [
        (record.kind, record.data or (record.message and record.message.payload))
        for record in world.records[done[0][1] : done[1][1]]
    ]
    assert told == [("send", {"n": 1}), ("send", {"n": 2}), ("state", {"n": 3})]
    assert [str(line) for line in world.log] == ["core.warning: careful"]


async def test_posted_results_come_back_as_inputs(world: ModuleWorld) -> None:
    core = Script(lambda inputs: ["work"] if isinstance(inputs[0], Request) else [])
    handles: list[Handle] = []

    async def main(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handles.append(handle)
        handle.register("core")
        await run_core(handle, core, lambda _: handle.post("done"), task_status=task_status)

    await world.load("core", main)
    world.client().send("core.x")
    await trio.testing.wait_all_tasks_blocked()
    assert [inputs[0] for _, inputs in core.turns][1:] == ["done"]


async def test_timers_fire_at_their_time_earliest_first(
    world: ModuleWorld, autojump_clock: MockClock
) -> None:
    core = Script(
        first=(
            SetTimer("late", 1009.0),
            SetTimer("moved", 1001.0),
            SetTimer("soon", 1005.0),
            SetTimer("moved", 1005.0),
            SetTimer("cleared", 1002.0),
            ClearTimer("cleared"),
            ClearTimer("never set"),
        )
    )
    await run(world, core)
    await trio.sleep(60)
    assert core.turns == [
        (1005.0, [TimerFired("soon"), TimerFired("moved")]),
        (1009.0, [TimerFired("late")]),
    ]


async def test_message_before_the_time_is_a_turn_without_the_timer(
    world: ModuleWorld, autojump_clock: MockClock
) -> None:
    core = Script(first=(SetTimer("t", 1005.0),))
    await run(world, core)
    await trio.sleep(2)
    client = world.client()
    client.send("core.x")
    await trio.sleep(10)
    assert [(now, type(inputs[0])) for now, inputs in core.turns] == [
        (1002.0, Request),
        (1005.0, TimerFired),
    ]


async def test_timer_that_is_due_already_fires_behind_what_waits(
    world: ModuleWorld, autojump_clock: MockClock
) -> None:
    core = Script(lambda inputs: [SetTimer("now", 0.0)] if isinstance(inputs[0], Request) else [])
    await run(world, core)
    client = world.client()
    client.send("core.x")
    await trio.sleep(1)
    first, second = core.turns
    assert (len(first[1]), second[1]) == (1, [TimerFired("now")])


async def test_timer_that_is_cleared_by_what_waits_does_not_fire(
    world: ModuleWorld, autojump_clock: MockClock
) -> None:
    "A slow owner finds both the message and the time come."
    core = Script(lambda _inputs: [ClearTimer("end")], first=(SetTimer("end", 1001.0),))
    await run(world, core)
    client = world.client()
    client.send("core.x")
    autojump_clock.jump(5.0)
    await trio.sleep(1)
    (turn,) = core.turns
    assert [type(each) for each in turn[1]] == [Request]


@pytest.mark.parametrize("began", [999.7, 1234.56789, 12345.678])
async def test_time_that_rounds_to_just_before_a_timer_does_not_hold_it_up(
    autojump_clock: MockClock, began: float
) -> None:
    "The instance's clock and Trio's are not of the same grain."
    autojump_clock.jump(began + 0.3)
    router = Router(Trace(lambda: 0.0))
    handle = LocalHandle(
        "core", router, lambda: trio.current_time() - began, LogBook(), OWNER_USERID, ROLE_OWNER
    )
    times = [0.5 + n / 7 for n in range(100)]
    core = Script(first=tuple(SetTimer(at, at) for at in times))
    with trio.move_on_after(60):
        await run_core(handle, core)
    assert sum(len(inputs) for _, inputs in core.turns) == len(times)
    assert all(now >= fired.key for now, inputs in core.turns for fired in inputs)


@pytest.mark.parametrize("by", [-3600.0, 3600.0])
async def test_clock_that_is_set_while_the_actions_are_performed_moves_no_timer(
    autojump_clock: MockClock, by: float
) -> None:
    """The core has counted from the time of its turn."""
    clock = SettableClock()
    handle = LocalHandle("core", Router(Trace(clock)), clock, LogBook(), OWNER_USERID, ROLE_OWNER)
    core = Script(first=("set the clock", SetTimer("t", clock() + 10.0)))
    with trio.move_on_after(7200):
        await run_core(handle, core, lambda _: clock.step(by))
    fired = [now for now, inputs in core.turns if any(isinstance(i, TimerFired) for i in inputs)]
    assert fired == [clock() - (clock.passed() - 10.0)]


async def test_exit_ends_the_module_with_its_reason(world: ModuleWorld) -> None:
    await run(world, Script(lambda _: [Log(Level.INFO, "told"), Exit("no disk"), "not done"]))
    world.client().send("core.x")
    await trio.testing.wait_all_tasks_blocked()
    assert [line.text for line in world.log] == ["told", "module core: no disk"]
    assert "core" not in world.supervisor


async def test_exit_at_the_start_is_raised_to_whoever_runs_the_core(world: ModuleWorld) -> None:
    with pytest.raises(ServiceExit, match="no disk"):
        await run_core(world.handle("core"), Script(first=(Exit("no disk"),)))


async def test_action_that_nobody_performs_is_a_bug_that_says_so(world: ModuleWorld) -> None:
    await run(world, Script(lambda _: ["unknown"]))
    world.client().send("core.x")
    await trio.testing.wait_all_tasks_blocked()
    assert [line.text for line in world.log] == [
        "module core: TypeError: expected an action of this service, got 'unknown'"
    ]


async def test_cancelled_loop_is_cancelled(world: ModuleWorld, autojump_clock: MockClock) -> None:
    with trio.move_on_after(5) as scope:
        await run_core(world.handle("core"), Script(first=(SetTimer("t", 1e6),)))
    assert scope.cancelled_caught
