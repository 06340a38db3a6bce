"""Worlds of the whole stack: real services, broker, plugins and store, and the same from a seed."""

from __future__ import annotations

import threading
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest
import trio

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.lab import (
    Crash,
    JobPlan,
    KillInstance,
    Linger,
    NodesDown,
    Outcome,
    Plan,
    PluginRaises,
    Setup,
    When,
    draw_plan,
    run_plan,
    tell_story,
)
from flux_trio.lab.plans.files import plan_from_toml, plan_to_toml
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.stories.by_hand import ByHand, InState
from flux_trio.lab.world.cores_world import EPOCH
from flux_trio.lab.world.plugin_files import check_files
from flux_trio.messages import topics
from flux_trio.protocols import JobState
from flux_trio.trace import Kind, Record
from tests.support import reborn

SEEDS = 10 if reborn.is_on else 20
IN_ONE = 10  # seeds of one test
TWO = (JobPlan(), JobPlan())


def stack(**fields: object) -> Plan:
    return Plan(1, depth="stack", **fields)  # type: ignore[arg-type]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("first", range(0, SEEDS, IN_ONE))
def test_every_property_holds(first: int) -> None:
    problems: dict[int, tuple[str, ...]] = {}
    for seed in range(first, first + IN_ONE):
        outcome = run_plan(Setup(depth="stack").plan_of(seed), properties=OURS)
        if outcome.problems:
            problems[seed] = outcome.problems
    assert problems == {}


def test_depth_and_store_are_kept_in_the_plan() -> None:
    plan = msgspec.structs.replace(draw_plan(1), depth="stack", store="sqlite")
    assert plan_from_toml(plan_to_toml(plan)) == plan
    assert Plan(1).depth == "cores"
    assert Plan(1).store == "memory"


def test_services_of_the_broker_are_there_at_depth_stack_only() -> None:
    def parties(plan: Plan) -> set[str]:
        names: set[str] = set()
        run_plan(plan, [lambda record: names.add(record.party)])
        return names

    assert parties(stack()) - parties(Plan(1)) >= {"ready"}
    started: list[str] = []

    def note(record: Record) -> None:
        if record.kind == Kind.MODULE:
            started.append((record.data or {})["module"])

    run_plan(stack(), [note])
    assert {"config", "broker"} < set(started)


def broken_world(monkeypatch: pytest.MonkeyPatch, core: type, turns: int) -> Outcome:
    """A core raises, once, after so many turns."""
    left = [turns]
    turn = core.turn  # type: ignore[attr-defined]

    def fail(self: object, now: float, inputs: list[object]) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise ZeroDivisionError("as planned")
        return turn(self, now, inputs)

    monkeypatch.setattr(core, "turn", fail)
    return run_plan(stack(jobs=TWO))


def test_core_that_raises_is_named_and_all_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = broken_world(monkeypatch, SchedCore, 2)
    assert "error: sched raised ZeroDivisionError: as planned" in outcome.problems
    assert "rest" not in outcome.broken
    assert "inactive" not in outcome.broken


def test_instance_that_ends_by_itself_is_named_and_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = broken_world(monkeypatch, KvsCore, 5)
    assert "error: kvs raised ZeroDivisionError: as planned" in outcome.problems
    assert any("the instance has ended" in each for each in outcome.problems)
    assert "rest" not in outcome.broken


def test_story_of_the_stack_shows_what_changed_in_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken_world(monkeypatch, SchedCore, 2)
    monkeypatch.undo()
    crash = Crash("sched", When(topics.SCHED_ALLOC), back=1.0)
    assert tell_story(stack(jobs=TWO, faults=(crash,))) is None
    with ByHand(stack(jobs=TWO)) as hand:
        hand.run()
        dumps = hand.dumps()
    assert set(dumps) == set(hand.world.modules)
    assert all(dumps.values())


def test_no_time_passes_before_a_module_that_comes_back_has_started() -> None:
    """Nothing else is due for 90 seconds, and only a task of Trio's can run."""
    started: list[float] = []

    def note(record: Record) -> None:
        if record.kind == Kind.MODULE and record.data == {"module": "sched", "what": "started"}:
            started.append(record.t - EPOCH)

    crash = Crash("sched", When("job-exec.start"), back=5.0)
    assert run_plan(stack(jobs=(JobPlan(run=90.0),), faults=(crash,)), [note]).problems == ()
    assert started == [0.0, 5.0]


def test_turn_stops_before_the_receiver_acts() -> None:
    with ByHand(stack(jobs=TWO)) as hand:
        stopped = hand.run_until(When(topics.SCHED_ALLOC))
        assert stopped.record is not None
        assert stopped.record.party == "sched"
        hand.crash("sched")
        hand.run()
        assert hand.state_of(0) == hand.state_of(1) == JobState.SCHED
        hand.load("sched")
        hand.run_until(InState(1, JobState.INACTIVE))
        assert hand.outcome().problems == ()


def test_client_of_a_later_life_has_a_name_of_its_own() -> None:
    """One that comes back from before a kill keeps its name, so no later one may have it."""
    faults = (
        Linger("resource", 20, 3.0),
        NodesDown((0,), 20, back=4.0),
        KillInstance(21, back=1.0),
        NodesDown((1,), 60, back=3.0),
    )
    for depth in ("cores", "stack"):
        plan = Plan(1, jobs=(JobPlan(run=5.0),), faults=faults, depth=depth)  # type: ignore[arg-type]
        assert run_plan(plan).problems == ()


ASYNC_PLUGIN = """
    import trio
    from flux_trio import jobtap

    class Slow(jobtap.Plugin):
        @jobtap.on("job.state.priority")
        async def priority(self, job):
            await trio.sleep(3.0)
            return 7
    """


def test_async_plugin_is_played_at_depth_stack(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(dedent(ASYNC_PLUGIN))
    check_files([str(file)], "stack")
    priorities: list[tuple[float, int]] = []
    setup = Setup(plugins=(str(file),), depth="stack")
    plan = stack(jobs=TWO, plugins=setup.plugins, faults=(PluginRaises(nth=2),))
    outcome = run_plan(plan, properties=setup.all_properties())
    assert outcome.problems == ()
    assert list(outcome.struck) == list(plan.faults)
    for each in outcome.trace:
        data = each.data or {}
        if each.kind == Kind.EVENT and data["name"] == "priority":
            priorities.append((each.t - outcome.trace[0].t, data["context"]["priority"]))
    assert priorities[0] == (3.0, 7)


TICKING = """
    import trio
    from flux_trio import jobtap

    class Ticking(jobtap.Plugin):
        ticks = 0

        def loaded(self):
            self.start_soon(self.tick)

        async def tick(self):
            while True:
                await trio.sleep(600.0)
                self.ticks += 1
                self.reprioritize_all()

        @jobtap.on("job.state.priority", "job.priority.get")
        def priority(self, job):
            return {}
    """


@pytest.mark.parametrize(
    ("priority", "ends"),
    [
        ("9", True),
        ("9 if self.ticks >= 60 else 0", True),  # after ten hours
        ("0", False),
        ("jobtap.UNAVAILABLE", False),
    ],
)
def test_plugin_that_acts_for_ever_does_not_keep_a_world_from_rest(
    tmp_path: Path, priority: str, *, ends: bool
) -> None:
    file = tmp_path / "ticking.py"
    file.write_text(dedent(TICKING).format(priority))
    setup = Setup(plugins=(str(file),), depth="stack")
    plan = stack(jobs=TWO, plugins=setup.plugins)
    outcome = run_plan(plan, properties=setup.all_properties())
    assert outcome.problems == ()
    events = [(each.data or {})["name"] for each in outcome.trace if each.kind == Kind.EVENT]
    assert ("clean" in events) == ends
    assert outcome.nsteps < 2_000


def test_world_in_a_trio_run_of_its_own_leaves_no_thread() -> None:
    threads = threading.active_count()
    with ByHand(stack(jobs=TWO, faults=(KillInstance(50, back=1.0),))) as hand:
        hand.run()

    async def works_again() -> float:
        return trio.current_time()

    assert trio.run(works_again) > 0
    assert threading.active_count() == threads
