"""At a pause the cores know the same of the jobs; each property finds what breaks it."""

from __future__ import annotations

from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.exec.job import Phase
from flux_trio.cores.sched.core import SchedCore
from flux_trio.faults import JobPlan, Plan
from flux_trio.faults.pauses import running_jobs_are_in_run, scheduler_and_manager_agree_on_holders
from flux_trio.faults.properties import at_each_pause
from flux_trio.faults.running import Game
from flux_trio.faults.world import CoresWorld


def with_one_running() -> CoresWorld:
    """A world in which one job runs, at a pause."""
    paused: list[bool] = []

    @at_each_pause("noted")
    def note(world: CoresWorld) -> str:
        paused.append(bool(_execution(world).running))
        return ""

    with Game(Plan(1, jobs=(JobPlan(run=90.0),)), properties=[note]) as game:
        while not any(paused):
            assert game.step()
        return game.world


def _execution(world: CoresWorld) -> ExecCore:
    core = world.stations["job-exec"].core
    assert isinstance(core, ExecCore)
    return core


def test_running_job_keeps_the_properties() -> None:
    world = with_one_running()
    assert len(_execution(world).running) == 1
    assert running_jobs_are_in_run(world) == ""
    assert scheduler_and_manager_agree_on_holders(world) == ""


def test_job_that_runs_and_is_over_for_the_job_manager_is_found() -> None:
    with Game(Plan(1, jobs=(JobPlan(run=1.0),))) as game:
        game.run()
        core = _execution(game.world)
        running = with_one_running()
        core._jobs.by_id.update(_execution(running)._jobs.by_id)
        (job,) = core._jobs.by_id.values()
        assert job.phase is Phase.RUNNING
        assert "runs, and for the job manager it is in INACTIVE" in running_jobs_are_in_run(
            game.world
        )


def test_job_whose_resources_the_scheduler_does_not_know_of_is_found() -> None:
    world = with_one_running()
    scheduler = world.stations["sched"].core
    assert isinstance(scheduler, SchedCore)
    scheduler._context.schedule.forget_jobs()
    assert "do not agree on whether" in scheduler_and_manager_agree_on_holders(world)


def test_property_of_a_pause_is_asked_at_pauses_only() -> None:
    asked: list[bool] = []

    @at_each_pause("calm")
    def is_calm(world: CoresWorld) -> str:
        asked.append(world.is_calm)
        return "it is calm" if world.now > world.passed - 1 else ""

    with Game(Plan(1, jobs=(JobPlan(run=90.0),)), properties=[is_calm]) as game:
        game.run()
        assert game.broken == {"calm": "it is calm"}
    assert all(asked)
    assert len(asked) == 1
