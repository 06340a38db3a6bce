"""The property that priorities follow from urgencies: what breaks it, and who may set others."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from flux_trio import jobtap
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.jobtap.builtins import PriorityDefault
from flux_trio.lab import JobPlan, OwnerRequest, Plan, PluginWrongPriority, run_plan
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.pauses import core_of
from flux_trio.lab.properties.priorities import Priorities
from flux_trio.lab.stories.running import PlanRun
from flux_trio.lab.world.cores_world import EPOCH

BUSY = str(Path(__file__).parents[1] / "planter" / "mistakes" / "busy.py")
WAITING = (JobPlan(run=90.0), JobPlan(run=5.0), JobPlan(run=5.0), JobPlan(run=5.0))
ASKED = (
    OwnerRequest(2.0, "urgency", job=1, value=20),
    OwnerRequest(3.0, "urgency", job=2, value=31),
    OwnerRequest(4.0, "urgency", job=3, value=0),
)

PLUGIN = """
from flux_trio import jobtap

class Ranking(jobtap.Plugin):
    name = "ranking"

    @jobtap.on("{topic}")
    def rank(self, job: jobtap.Job):
        {does}
"""


def plan_of(depth: Depth = "cores", *plugins: str) -> Plan:
    return Plan(1, 1, cores=1, jobs=WAITING, actions=ASKED, depth=depth, plugins=plugins)


@pytest.mark.parametrize("plugins", [(), (BUSY,)])
@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_jobs_with_other_urgencies_keep_the_property(depth: Depth, plugins: tuple[str]) -> None:
    assert run_plan(plan_of(depth, *plugins), properties=[Priorities]).problems == ()


def test_priority_that_is_not_the_urgency_is_found() -> None:
    with PlanRun(plan_of(), properties=[Priorities]) as plan_run:
        watcher = plan_run._watchers[Priorities]
        while plan_run.world.passed < EPOCH + 10.0:
            plan_run.step()
        watcher.pause()
        assert watcher.problem == ""
        manager = core_of(plan_run.world, "job-manager", JobManagerCore)
        ranked = next(each for each in manager.active() if each.urgency == 20)
        manager._parts.ledger.jobs[ranked.id].priority = 16
        watcher.pause()
        assert watcher.problem.endswith("has the urgency 20, and the priority 16")


def test_plugin_that_keeps_the_first_priority_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @jobtap.on("job.state.priority", "job.priority.get")
    def kept(_plugin: jobtap.Plugin, job: jobtap.Job) -> int:
        return job.priority or job.urgency

    monkeypatch.setattr(PriorityDefault, "priority", kept)
    assert run_plan(plan_of("cores", BUSY), properties=[Priorities]).broken == {"priority"}


@pytest.mark.parametrize(
    ("topic", "does"),
    [("job.state.priority", "return 77"), ("job.state.sched", "job.set_priority(77)")],
)
def test_plugin_of_a_file_may_set_priorities(tmp_path: Path, topic: str, does: str) -> None:
    file = tmp_path / "ranking.py"
    file.write_text(PLUGIN.format(topic=topic, does=does), encoding="utf-8")
    with PlanRun(plan_of("cores", str(file)), properties=[Priorities]) as plan_run:
        priorities = set()
        while plan_run.step():
            manager = core_of(plan_run.world, "job-manager", JobManagerCore)
            priorities |= {each.priority for each in manager.active()}
            if 77 in priorities:
                break
        assert 77 in priorities
    assert run_plan(plan_of("cores", str(file)), properties=[Priorities]).problems == ()


@pytest.mark.parametrize("hook", ["job.state.priority", "job.state.sched"])
@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_fault_may_answer_with_another_priority(depth: Depth, hook: str) -> None:
    """A job that is in SCHED keeps the priority until its urgency changes."""
    wrong = PluginWrongPriority(2, hook=hook, priority=777)
    plan = replace(plan_of(depth), faults=(wrong,))
    outcome = run_plan(plan, properties=[Priorities])
    assert outcome.struck == (wrong,)
    assert outcome.problems == ()


def test_fault_may_answer_with_another_priority_when_a_job_is_in_sched_again() -> None:
    """The third question is about a job that an urgency has sent back from SCHED."""
    wrong = PluginWrongPriority(3, hook="job.state.sched", priority=777)
    ranked = (
        OwnerRequest(3.0, "urgency", job=1, value=20),
        OwnerRequest(6.0, "urgency", job=1, value=5),
    )
    plan = Plan(1, 1, cores=1, jobs=(JobPlan(run=20.0), JobPlan(run=5.0)), actions=ranked)
    outcome = run_plan(replace(plan, faults=(wrong,)), properties=[Priorities])
    assert outcome.struck == (wrong,)
    assert outcome.problems == ()
