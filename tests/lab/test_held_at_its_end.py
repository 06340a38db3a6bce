"""Jobs that plugins hold in RUN or CLEANUP, by an epilog or a failure: nothing is due for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab import (
    JobPlan,
    OwnerRequest,
    Plan,
    PluginFile,
    PluginRaises,
    PluginRejects,
    PluginSaysWrong,
    When,
    run_plan,
)
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.stories.running import play
from flux_trio.messages import Request, topics
from flux_trio.trace import Kind, Record
from tests.support.judged import judge

EPILOG = """
import trio
from flux_trio import jobtap

class LongEpilog(jobtap.Plugin):
    @jobtap.on("job.state.cleanup")
    def cleanup(self, job):
        job.epilog_start("clean-up")
        self.start_soon(self.finish, job.id)

    async def finish(self, jobid):
        await trio.sleep(20)
        job = self.jobs.get(jobid)
        if job is not None:
            job.epilog_finish("clean-up")
"""


@pytest.fixture
def epilog(tmp_path: Path) -> PluginFile:
    """A plugin whose epilog takes 20 s."""
    file = tmp_path / "long_epilog.py"
    file.write_text(EPILOG)
    return PluginFile(str(file))


def stack(
    plugin: PluginFile, *jobs: JobPlan, actions: tuple[OwnerRequest, ...] = (), seed: int = 1
) -> Plan:
    return Plan(seed, 1, cores=1, jobs=jobs, actions=actions, plugins=(plugin,), depth="stack")


def clauses(trace: list[Record]) -> set[str]:
    return {each.clause for each in judge(trace, ALL_RULES).violations}


def before_all_is_put_right(trace: list[Record]) -> list[Record]:
    """The trace until the job manager is removed, to be loaded again."""
    gone = next(each.n for each in trace if each.kind == Kind.SEND and each.party == "broker")
    return trace[: gone - 1]


def while_it_runs(trace: list[Record]) -> list[Record]:
    """The trace until the first epilog finishes."""
    finished = next(
        each.n
        for each in trace
        if each.kind == Kind.EVENT and each.data and each.data["name"] == "epilog-finish"
    )
    return trace[: finished - 1]


def without(trace: list[Record], name: str) -> list[Record]:
    """The trace as it would be without these events."""
    return [
        each
        for each in trace
        if not (each.kind == Kind.EVENT and each.data and each.data["name"] == name)
    ]


def test_resources_are_kept_while_an_epilog_runs(epilog: PluginFile) -> None:
    """27.free.1, 27.exceptions.3: a free is due when all epilogs have finished."""
    canceled = JobPlan(run=50.0)
    for plan in (
        stack(epilog, JobPlan()),
        stack(epilog, canceled, actions=(OwnerRequest(5.0, "cancel"),)),
    ):
        assert run_plan(plan, properties=OURS).problems == ()


def test_free_is_due_if_no_epilog_runs(epilog: PluginFile) -> None:
    trace = while_it_runs(play(stack(epilog, JobPlan())).trace)
    assert clauses(trace) == set()
    assert "27.free.1" in clauses(without(trace, "epilog-start"))


def test_waiting_job_is_clean_when_its_epilog_has_finished(epilog: PluginFile) -> None:
    """27.criteria.7: it had no resources."""
    jobs = (JobPlan(run=100.0), JobPlan(1.0))
    plan = stack(epilog, *jobs, actions=(OwnerRequest(5.0, "cancel", job=1),))
    outcome = run_plan(plan, properties=OURS)
    assert outcome.problems == ()
    trace = while_it_runs(outcome.trace)
    assert "27.criteria.7" not in clauses(trace)
    assert "27.criteria.7" in clauses(without(trace, "epilog-start"))


@pytest.mark.parametrize("seed", range(1, 4))
def test_grant_that_crosses_the_cancel_is_freed_although_an_epilog_runs(
    epilog: PluginFile, seed: int
) -> None:
    """21.events.25: the job never had it (readings: A SUCCESS that crosses a cancel)."""
    granted = When(topics.SCHED_ALLOC, type="response", side="send")
    plan = stack(epilog, JobPlan(), actions=(OwnerRequest(3.0, "cancel", when=granted),), seed=seed)
    assert run_plan(plan, properties=OURS).problems == ()


@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize("hook", ["job.state.run", "job.state.cleanup"])
@pytest.mark.parametrize("fault", [PluginRaises, PluginRejects, PluginSaysWrong])
def test_job_is_held_when_a_plugin_fails(depth: Depth, hook: str, fault: Any) -> None:
    """It goes on when the job manager, which is loaded again, asks once more."""
    said = {"said": "x"} if fault is PluginSaysWrong else {}
    failing = fault(hook=hook, **said)
    jobs = (JobPlan(run=2.0), JobPlan(1.0))
    plan = Plan(3, 2, cores=2, jobs=jobs, faults=(failing,), depth=depth)
    outcome = run_plan(plan, properties=OURS)
    assert outcome.struck == (failing,)
    assert outcome.problems == ()


@pytest.mark.parametrize(
    ("hook", "clause"), [("job.state.run", "32.start.1"), ("job.state.cleanup", "27.free.1")]
)
def test_job_that_no_plugin_holds_has_to_go_on(hook: str, clause: str) -> None:
    plan = Plan(3, 2, cores=2, jobs=(JobPlan(run=2.0),), faults=(PluginRaises(hook=hook),))
    trace = before_all_is_put_right(play(plan).trace)
    well = [
        msgspec.structs.replace(each, data={**each.data, "error": None})
        if each.kind == Kind.HOOK and each.data
        else each
        for each in trace
    ]
    assert clauses(trace) == set()
    assert clause in clauses(well)


def test_request_of_a_canceled_job_is_withdrawn_although_a_plugin_holds_it() -> None:
    """27.exceptions.2: upon entering CLEANUP."""
    cancel = (OwnerRequest(5.0, "cancel", job=1),)
    raising = (PluginRaises(hook="job.state.cleanup"),)
    jobs = (JobPlan(run=100.0), JobPlan(1.0))
    trace = play(Plan(1, 1, cores=1, jobs=jobs, actions=cancel, faults=raising)).trace
    canceled = [
        each.t
        for each in trace
        if each.kind == Kind.SEND
        and isinstance(each.message, Request)
        and each.message.topic == topics.SCHED_CANCEL
    ]
    failed = [each.t for each in trace if each.kind == Kind.HOOK]
    assert canceled
    assert failed
    assert canceled[0] < failed[0] + 1.0
