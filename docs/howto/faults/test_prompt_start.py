"""The property holds without faults, and with those that nobody has to do anything about."""

from pathlib import Path

import pytest
from prompt_start import prompt_start, prompt_start_by_durations

from flux_trio.lab import BrokenClause, Crash, Linger, When
from flux_trio.lab.plans.files import plan_from_toml
from flux_trio.testing import PropertyBroken, WorldHarness

HERE = Path(__file__).parent


@pytest.mark.flux_seeds(5)
def test_jobs_start_promptly_without_faults(world: WorldHarness) -> None:
    world.draw()
    world.faults.clear()
    world.configure(late=0.0)
    world.play(prompt_start)


def test_scheduler_that_dies_delays_no_start(world: WorldHarness) -> None:
    world.submit(count=3, run=5.0)
    world.faults.append(Crash("sched", When("sched.alloc", nth=2), back=10.0))
    world.play(prompt_start_by_durations)


def test_job_manager_that_hangs_delays_a_start(world: WorldHarness) -> None:
    world.submit()
    world.faults.append(Linger("job-manager", When("job-exec.start", side="send"), seconds=10.0))
    with pytest.raises(PropertyBroken, match="starts 10 s after its alloc event"):
        world.play(prompt_start_by_durations)


def test_execution_service_that_breaks_a_clause_delays_no_start(world: WorldHarness) -> None:
    world.submit(count=3, run=5.0)
    world.faults.append(BrokenClause("32.start.31"))  # a status that is a text
    world.play(prompt_start_by_durations)


def test_counterexample_is_kept(world: WorldHarness) -> None:
    world.plan = plan_from_toml((HERE / "clock.toml").read_text())
    with pytest.raises(PropertyBroken):
        world.play(prompt_start)
    world.play(prompt_start_by_durations)
