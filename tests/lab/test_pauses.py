"""At a pause the cores know the same of the jobs; each property finds what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from flux_trio.config import DURATION_KEY
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.exec.job import Phase
from flux_trio.cores.job_list.core import JobListCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.job_manager.scheduler.allocs import Requests
from flux_trio.cores.sched.core import SchedCore
from flux_trio.lab import (
    ClockJump,
    JobPlan,
    OwnerRequest,
    Plan,
    PluginHangs,
    When,
    draw_plan,
    run_plan,
)
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.kept_twice import KEPT_TWICE
from flux_trio.lab.properties.pauses import (
    AT_PAUSES,
    all_agree_on_expirations,
    core_of,
    job_list_shows_the_active_jobs,
    no_job_runs_beyond_its_time_limit,
    no_job_runs_on_lost_nodes,
    no_resources_are_idle_that_a_job_waits_for,
    running_jobs_are_in_run,
    scheduler_and_manager_agree_on_holders,
    scheduler_and_manager_agree_on_requests,
)
from flux_trio.lab.properties.property import at_each_pause
from flux_trio.lab.stories.running import PlanRun
from flux_trio.lab.world.cores_world import EPOCH, CoresWorld
from flux_trio.lab.world.plugins import PRIORITIZE
from flux_trio.messages import topics
from flux_trio.protocols import VALIDATE, JobState

RUNNING = Plan(1, jobs=(JobPlan(run=90.0),))
WAITING = Plan(1, 1, cores=1, jobs=(JobPlan(run=90.0), JobPlan(run=90.0, urgency=5)))

WithOneRunning = Callable[..., CoresWorld]


class Paused(Exception):
    """Ends a step in the middle: at depth stack, tasks act in the step in which time passes."""


@at_each_pause("stop")
def stop_while_one_runs(world: CoresWorld) -> str:
    if _execution(world).jobs.all_running:
        raise Paused
    return ""


@pytest.fixture(params=["cores", "stack"])
def with_one_running(request: pytest.FixtureRequest) -> Iterator[WithOneRunning]:
    """Make a world, of each depth, in which one job runs, at a pause.

    With `WAITING` another job waits for its core. A world is open until the next one is made.
    """
    plan_runs: list[PlanRun] = []

    def make(plan: Plan = RUNNING) -> CoresWorld:
        while plan_runs:
            plan_runs.pop().world.close()
        plan = msgspec.structs.replace(plan, depth=request.param)
        plan_runs.append(PlanRun(plan, properties=[stop_while_one_runs]))
        with suppress(Paused):
            plan_runs[0].run()
        return plan_runs[0].world

    yield make
    plan_runs[0].world.close()


def _execution(world: CoresWorld) -> ExecCore:
    core = world.stations["job-exec"].core
    assert isinstance(core, ExecCore)
    return core


def test_running_job_keeps_the_properties(with_one_running: WithOneRunning) -> None:
    world = with_one_running()
    assert len(_execution(world).jobs.all_running) == 1
    assert running_jobs_are_in_run(world) == ""
    assert scheduler_and_manager_agree_on_holders(world) == ""


def test_job_that_runs_and_is_over_for_the_job_manager_is_found(
    with_one_running: WithOneRunning,
) -> None:
    with PlanRun(Plan(1, jobs=(JobPlan(run=1.0),))) as plan_run:
        plan_run.run()
        core = _execution(plan_run.world)
        running = with_one_running()
        core.jobs.by_id.update(_execution(running).jobs.by_id)
        (job,) = core.jobs.by_id.values()
        assert job.phase is Phase.RUNNING
        assert "runs, and for the job manager it is in INACTIVE" in running_jobs_are_in_run(
            plan_run.world
        )


def test_job_whose_resources_the_scheduler_does_not_know_of_is_found(
    with_one_running: WithOneRunning,
) -> None:
    world = with_one_running()
    scheduler = world.stations["sched"].core
    assert isinstance(scheduler, SchedCore)
    scheduler._context.schedule.forget_jobs()
    assert "do not agree on whether" in scheduler_and_manager_agree_on_holders(world)


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative"])
def test_waiting_job_keeps_the_properties(with_one_running: WithOneRunning, policy: str) -> None:
    world = with_one_running(msgspec.structs.replace(WAITING, policy=policy))
    assert len(core_of(world, "sched", SchedCore).requested) == 1
    assert [each(world) for each in AT_PAUSES] == [""] * len(AT_PAUSES)


def test_job_that_runs_on_a_node_that_went_down_is_found_while_the_manager_is_away(
    with_one_running: WithOneRunning,
) -> None:
    assert no_job_runs_on_lost_nodes.modules == ("job-exec",)
    world = with_one_running()
    assert no_job_runs_on_lost_nodes(world) == ""
    _execution(world).targets._down[0] = "it is down"
    assert "runs on nodes that job-exec knows to be down" in no_job_runs_on_lost_nodes(world)


@pytest.mark.parametrize("limit", [0.0, 100.0])
def test_expiration_that_one_side_does_not_know_is_found(
    with_one_running: WithOneRunning, limit: float
) -> None:
    world = with_one_running(Plan(1, jobs=(JobPlan(run=90.0, limit=limit),)))
    assert all_agree_on_expirations(world) == ""
    schedule = core_of(world, "sched", SchedCore).schedule
    (grant,) = schedule.state.grants
    schedule.clock_stepped(3600.0)  # of which the times that were written know nothing
    assert all_agree_on_expirations(world) == ""
    schedule.extend(grant.id, world.now + 50.0)
    assert "for the scheduler at" in all_agree_on_expirations(world)
    world = with_one_running(Plan(1, jobs=(JobPlan(run=90.0, limit=limit),)))
    (job,) = _execution(world).jobs.by_id.values()
    job.expiration = world.now + 50.0
    assert "for the execution service at" in all_agree_on_expirations(world)


def test_expiration_that_does_not_follow_from_the_duration_is_found(
    with_one_running: WithOneRunning,
) -> None:
    world = with_one_running(Plan(1, jobs=(JobPlan(run=90.0, limit=100.0),)))
    (job,) = core_of(world, "job-manager", JobManagerCore)._parts.ledger.running.values()
    job.jobspec_updates = {DURATION_KEY: 50.0}
    assert "by its duration at" in all_agree_on_expirations(world)
    job.state = JobState.CLEANUP  # it ended before its new expiration was agreed
    assert all_agree_on_expirations(world) == ""


def test_job_that_runs_beyond_its_time_limit_is_found(with_one_running: WithOneRunning) -> None:
    world = with_one_running(Plan(1, jobs=(JobPlan(run=90.0, limit=100.0),)))
    assert no_job_runs_beyond_its_time_limit(world) == ""
    (job,) = _execution(world).jobs.by_id.values()
    job.expiration = world.now - 2.0
    assert "runs, and its time limit was at" in no_job_runs_beyond_its_time_limit(world)
    job.stepped = 3600.0
    assert no_job_runs_beyond_its_time_limit(world) == ""


def test_request_that_only_one_side_knows_is_found(with_one_running: WithOneRunning) -> None:
    world = with_one_running(WAITING)
    (waiting,) = core_of(world, "sched", SchedCore).requested
    core_of(world, "sched", SchedCore).schedule.withdraw(waiting)
    assert "do not agree on whether" in scheduler_and_manager_agree_on_requests(world)


def test_request_of_a_job_on_hold_is_found(with_one_running: WithOneRunning) -> None:
    world = with_one_running(WAITING)
    manager = core_of(world, "job-manager", JobManagerCore)
    (waiting,) = manager.requested
    manager._parts.ledger.jobs[waiting].priority = 0
    assert "is on hold or has left SCHED" in scheduler_and_manager_agree_on_requests(world)


def test_job_that_is_listed_twice_or_not_at_all_is_found(with_one_running: WithOneRunning) -> None:
    for count in (0, 2):
        world = with_one_running(WAITING)
        records = core_of(world, "job-list", JobListCore)._records
        (rank,) = records._pending
        records._pending.clear()
        records._pending.update([rank] * count)
        assert "and the active jobs are" in job_list_shows_the_active_jobs(world)
        core_of(world, "job-list", JobListCore)._follower.hindrance = (5, "the journal has ended")
        assert job_list_shows_the_active_jobs(world) == ""  # it may be behind


@pytest.mark.parametrize("policy", ["fifo", "easy"])
def test_job_that_could_start_is_found(with_one_running: WithOneRunning, policy: str) -> None:
    world = with_one_running(msgspec.structs.replace(WAITING, policy=policy))
    scheduler = core_of(world, "sched", SchedCore)
    (running,) = scheduler.holders
    scheduler.schedule.free(running)  # and nobody decides
    assert "waits, and could start" in no_resources_are_idle_that_a_job_waits_for(world)
    (waiting,) = scheduler.requested
    assert {job.id for job in scheduler.schedule.state.queue} == {waiting}  # it only looks


def test_job_that_waits_for_what_will_never_be_there_is_found(
    with_one_running: WithOneRunning,
) -> None:
    world = with_one_running(WAITING)
    core_of(world, "sched", SchedCore).schedule.shrink(0b1)
    assert "can never run: unsatisfiable" in no_resources_are_idle_that_a_job_waits_for(world)


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_property_of_a_pause_is_asked_at_pauses_only(depth: Depth) -> None:
    asked: list[bool] = []

    @at_each_pause("calm")
    def is_calm(world: CoresWorld) -> str:
        asked.append(world.is_calm)
        return "it is calm" if world.now > world.passed - 1 else ""

    plan = Plan(1, jobs=(JobPlan(run=90.0),), depth=depth)
    with PlanRun(plan, properties=[is_calm]) as plan_run:
        plan_run.run()
        assert plan_run.broken == {"calm": "it is calm"}
    assert all(asked)
    assert len(asked) == 1


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_debt_at_a_pause_is_a_violation(monkeypatch: pytest.MonkeyPatch, depth: Depth) -> None:
    """A job manager that gives resources back when the next job is over."""
    withheld: list[tuple[Any, ...]] = []
    free = Requests.free

    def free_earlier(*given: Any) -> None:
        withheld.append(given)
        if len(withheld) > 1:
            for each in withheld:
                free(*each)

    plan = Plan(1, jobs=(JobPlan(run=1.0), JobPlan(run=90.0)), depth=depth)
    assert run_plan(plan).problems == ()
    monkeypatch.setattr(Requests, "free", free_earlier)
    assert "27.free.1" in run_plan(plan).broken


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_clock_that_is_set_back_makes_no_job_overdue(depth: Depth) -> None:
    """The execution service has heard of it, since another job started meanwhile."""
    times: list[float] = []

    @at_each_pause("overdue")
    def overdue(world: CoresWorld) -> str:
        times.append(world.passed - EPOCH)
        return no_job_runs_beyond_its_time_limit(world)

    plan = Plan(
        1,
        jobs=(JobPlan(run=90.0, limit=100.0), JobPlan(at=20.0, run=5.0)),
        actions=(OwnerRequest(10.0, "drain", rank=3),),
        faults=(ClockJump(When(topics.RESOURCE_DRAIN), -3600.0),),
        depth=depth,
    )
    assert run_plan(plan, properties=[overdue]).problems == ()
    assert max(times) >= 25.0


@pytest.mark.parametrize("hook", [VALIDATE, PRIORITIZE])
@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_no_property_of_a_pause_is_asked_while_a_plugin_hangs(depth: Depth, hook: str) -> None:
    times: list[float] = []

    @at_each_pause("noted")
    def note(world: CoresWorld) -> str:
        times.append(world.passed - EPOCH)
        return ""

    hangs = PluginHangs(seconds=50.0, hook=hook)
    plan = Plan(1, jobs=(JobPlan(run=10.0),), faults=(hangs,), depth=depth)
    assert run_plan(plan, properties=[note]).problems == ()
    assert min(times) >= 50.0
    assert len(times) >= 1


KEPT_TWICE_WRONGLY: tuple[tuple[str, type[Any], str, Any], ...] = (
    ("counted", JobManagerCore, "counts", {"": {"run": -1}}),
    ("estimated", SchedCore, "estimates", {7: 1.0}),
)


@pytest.mark.parametrize(("name", "core", "fact", "value"), KEPT_TWICE_WRONGLY)
def test_fact_that_is_kept_twice_and_differs_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, core: type[Any], fact: str, value: Any
) -> None:
    plan = draw_plan(1)
    assert run_plan(plan, properties=KEPT_TWICE).problems == ()
    monkeypatch.setattr(core, fact, property(lambda _: value))
    problems = run_plan(plan, properties=KEPT_TWICE).problems
    assert [each.partition(":")[0] for each in problems] == [name]
