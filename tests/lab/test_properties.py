"""Properties of a user: each is asked when it says, and finds what is planted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flux_trio.cores.kvs.ops import Append
from flux_trio.formats import Event, format_event
from flux_trio.lab import Crash, JobPlan, Plan, SentMessage, When, run_plan, shrink
from flux_trio.lab.catalogue import GrantOverlap
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.properties.property import (
    Watcher,
    after_each_step,
    at_each_pause,
    at_rest,
    no_job_runs_twice,
    over_trace,
    resources_are_accounted_for,
    watching,
)
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

PLAN = Plan(seed=1, jobs=(JobPlan(), JobPlan(run=2.0)))
CRASH = Crash("sched", When(topics.SCHED_ALLOC), back=3.0)
LIE = GrantOverlap(SentMessage(topics.KVS_COMMIT, party="sched"))


def test_worlds_keep_the_properties_that_come_with_them() -> None:
    assert run_plan(PLAN, properties=OURS).problems == ()


def test_property_over_the_trace_sees_all_of_it() -> None:
    seen: list[int] = []

    @over_trace("long")
    def is_short(trace: Sequence[Record]) -> str:
        seen.append(len(trace))
        return "the trace has records"

    outcome = run_plan(PLAN, properties=[is_short])
    assert seen == [len(outcome.trace)]
    assert outcome.problems == ("long: the trace has records",)


def test_property_after_each_step_is_named_once() -> None:
    steps: list[int] = []

    @after_each_step("young")
    def is_young(world: CoresWorld) -> str:
        steps.append(world.nsteps)
        return f"step {world.nsteps}" if world.nsteps >= 10 else ""

    outcome = run_plan(PLAN, properties=[is_young])
    assert steps == list(range(1, 11))
    assert outcome.problems == ("young: step 10",)


def test_property_over_records_sees_each_world_from_its_boot_on() -> None:
    asked: list[str] = []

    @watching("counted")
    class Counted(Watcher):
        def __init__(self, world: CoresWorld) -> None:
            super().__init__(world)
            self.modules = 0

        def observe(self, record: Record) -> None:
            self.modules += record.kind == Kind.MODULE

        def pause(self) -> None:
            asked.append("pause")

        def rest(self) -> None:
            asked.append("rest")
            self.found(f"{self.modules} modules have started")
            self.found("the first problem counts")

    for _ in range(2):  # each world has a watcher of its own
        problems = run_plan(PLAN, properties=[Counted]).problems
        assert problems == ("counted: 7 modules have started",)
    assert asked[-1] == "rest"
    assert "pause" in asked


def test_property_of_a_pause_can_be_about_modules_that_are_well_while_others_are_not() -> None:
    away: list[bool] = []

    @at_each_pause("served", "job-exec", "resource")
    def is_served(world: CoresWorld) -> str:
        away.append("job-manager" not in world.stations)
        assert "job-exec" in world.stations
        return ""

    started = When("job-exec.start", type="response")
    crashes = (Crash("job-manager", started, back=12.0), Crash("job-exec", 300, back=12.0))
    plan = Plan(1, jobs=(JobPlan(run=90.0),), faults=crashes)
    assert run_plan(plan, properties=[is_served]).problems == ()
    assert True in away
    assert False in away


def test_property_at_rest_is_asked_when_everything_was_put_right() -> None:
    @at_rest("there")
    def scheduler_is_there(world: CoresWorld) -> str:
        return "" if "sched" in world.stations else "there is no scheduler"

    plan = Plan(seed=1, faults=(Crash("sched", 5, back=0.0),))
    assert run_plan(plan, properties=[scheduler_is_there]).problems == ()


def test_job_that_ran_twice_is_named() -> None:
    @at_rest("planted")
    def plant(world: CoresWorld) -> str:
        """Give a job a second start event in the store, as if it had run again."""
        store = world.disk.store
        key = next(each for each in store.dir("") if each.endswith("eventlog") and "job." in each)
        store.commit([Append(key, format_event(Event(1.0, "start", {})))])
        return no_job_runs_twice(world)

    outcome = run_plan(PLAN, properties=[plant])
    (problem,) = outcome.problems
    assert problem.startswith("planted: job.")
    assert problem.endswith("has 2 start events")


def test_resources_that_are_never_freed_are_named() -> None:
    trace = run_plan(PLAN).trace
    assert resources_are_accounted_for(trace) == ""
    freed = [each for each in trace if each.kind == Kind.EVENT and each.data is not None]
    last = next(each for each in reversed(freed) if (each.data or {})["name"] == "free")
    said = resources_are_accounted_for([each for each in trace if each is not last])
    assert said.startswith("the resources of ")
    assert said.endswith(" are not free")


@pytest.mark.parametrize(("module", "is_asked"), [("sched", False), ("job-exec", True)])
def test_property_over_the_trace_is_not_asked_about_a_module_that_lies(
    module: str, *, is_asked: bool
) -> None:
    @over_trace("never", module)
    def never(_trace: Sequence[Record]) -> str:
        return "it is asked"

    plan = Plan(seed=1, jobs=(JobPlan(),), faults=(LIE,))
    outcome = run_plan(plan, properties=[never])
    assert outcome.struck == (LIE,)
    assert ("never" in outcome.broken) is is_asked


@pytest.mark.parametrize("said", [True, 42, ["it is late"]])
@pytest.mark.parametrize("makes", [over_trace, after_each_step, at_each_pause, at_rest])
def test_property_that_returns_no_sentence_is_an_error(makes: Any, said: object) -> None:
    prop = makes("odd")(lambda _: said)
    with pytest.raises(TypeError, match=r"^property odd: expected a sentence .*, got ") as raised:
        run_plan(PLAN, properties=[prop])
    assert str(raised.value).endswith(f"got {said!r}")


def test_watcher_that_finds_no_sentence_is_an_error() -> None:
    @watching("odd")
    class Finder(Watcher):
        def rest(self) -> None:
            self.found(True)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"property Finder: expected a sentence .*, got True"):
        run_plan(PLAN, properties=[Finder])


def test_async_function_is_no_property() -> None:
    async def waits(_trace: Sequence[Record]) -> str:
        return ""

    with pytest.raises(TypeError, match="property slow: expected a plain function, got the async"):
        over_trace("slow")(waits)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "once: twice", 3])
def test_property_needs_a_name_that_a_problem_can_begin_with(name: Any) -> None:
    with pytest.raises(ValueError, match=f"a text without a colon, got {name!r}"):
        over_trace(name)(lambda _: "")


def test_plan_that_breaks_a_property_of_a_user_is_made_small() -> None:
    @over_trace("calm")
    def no_module_crashes(trace: Sequence[Record]) -> str:
        ended = [each for each in trace if (each.data or {}).get("what") == "crashed"]
        return "a module crashed" if ended else ""

    plan = Plan(seed=1, jobs=(JobPlan(),) * 8, faults=(Crash("job-list", 50), CRASH))
    small = shrink(
        plan, "", lambda tried: "calm" in run_plan(tried, properties=[no_module_crashes]).broken
    ).plan
    assert len(small.jobs) <= 1
    assert len(small.faults) == 1
