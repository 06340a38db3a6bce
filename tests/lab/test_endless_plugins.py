"""A plugin that acts for ever ends its world, not the campaign."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flux_trio.lab import JobPlan, Plan, run_plan
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.stories.campaign import Setup, main_property

HEAD = """
from flux_trio import jobtap


class Endless(jobtap.Plugin):
    n = 0

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job):
"""
ASKS_AGAIN = f"""{HEAD}
        self.n += 1
        self.reprioritize_all()
        return self.n % 1000 + 1
"""


def plan_with(text: str, directory: Path) -> Plan:
    file = directory / "endless.py"
    file.write_text(text)
    return Plan(seed=1, jobs=(JobPlan(), JobPlan(at=1.0)), plugins=(str(file),))


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_plugin_that_lets_its_jobs_be_asked_about_for_ever_does_not_come_to_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: Depth
) -> None:
    monkeypatch.setattr("flux_trio.lab.stories.running.RECORDS_MAX", (5_000, 0))
    plan = msgspec.structs.replace(plan_with(ASKS_AGAIN, tmp_path), depth=depth)
    outcome = run_plan(plan, properties=Setup(plugins=plan.plugins).all_properties())
    (text,) = [each for each in outcome.problems if each.startswith("rest: ")]
    assert int(text.split()[-2]) < 10_000
    assert main_property(outcome) == "rest", "what else is broken follows from it"


REJECTS_AND_ACTS = """
import trio
from flux_trio import jobtap


class Acting(jobtap.Plugin):
    @jobtap.on("job.validate")
    def validate(self, job):
        raise jobtap.Reject("no job today")

    def loaded(self):
        self.start_soon(self.follow)

    async def follow(self):
        while True:
            await trio.sleep(2)
            self.reprioritize_all()
"""


def test_refused_job_is_not_waited_for_beside_a_plugin_that_acts_for_ever(tmp_path: Path) -> None:
    """A job that waits is given a day: with a step every two seconds that is too long a world."""
    path = tmp_path / "acting.py"
    path.write_text(REJECTS_AND_ACTS)
    setup = Setup(plugins=(str(path),), depth="stack")
    plan = Plan(1, jobs=(JobPlan(),), plugins=setup.plugins, depth="stack")
    outcome = run_plan(plan, properties=setup.all_properties())
    assert outcome.problems == ()
    assert outcome.nsteps < 20_000
