"""Plugins that fail, think or lie when a job has come into SCHED: the job is held, or waits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab import (
    JobPlan,
    OwnerRequest,
    Plan,
    PluginHangs,
    PluginRaises,
    PluginRejects,
    PluginSaysWrong,
    PluginWrongPriority,
    run_plan,
)
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.stories.running import play
from flux_trio.lab.world.cores_world import EPOCH
from flux_trio.messages import Request, topics
from flux_trio.trace import Kind, Record
from tests.support.judged import judge

HOOK = "job.state.sched"
PUT_RIGHT = 20.0
FAILING = [
    PluginRaises(hook=HOOK),
    PluginSaysWrong(hook=HOOK, said="high"),
    PluginSaysWrong(hook=HOOK, said=-1),
    PluginRejects(hook=HOOK),
]
DEPTHS = pytest.mark.parametrize("depth", ["cores", "stack"])


def plan_of(fault: Any, depth: Depth = "cores", limit: int = 0) -> Plan:
    """The second job runs until the world is put right; the other one is asked about first."""
    jobs = (JobPlan(run=5.0), JobPlan(0.5, run=PUT_RIGHT - 0.5), JobPlan(3.5, run=5.0))
    return Plan(1, 1, cores=2, limit=limit, jobs=jobs, faults=(fault,), depth=depth)


def asked_for(trace: list[Record]) -> list[float]:
    """When the scheduler was asked for the first job, in seconds."""
    jobid = next(each.data["id"] for each in trace if each.kind == Kind.EVENT and each.data)
    return [
        each.t - EPOCH
        for each in trace
        if each.kind == Kind.SEND
        and isinstance(each.message, Request)
        and each.message.topic == topics.SCHED_ALLOC
        and isinstance(each.message.payload, dict)
        and each.message.payload["id"] == jobid
    ]


def clauses(trace: list[Record], *, cut: bool) -> set[str]:
    return {each.clause for each in judge(trace, ALL_RULES, cut=cut).violations}


def changed(trace: list[Record], **keys: Any) -> list[Record]:
    """The trace with other keys in the records of the faulty plugin."""
    return [
        msgspec.structs.replace(each, data={**each.data, **keys})
        if each.kind == Kind.HOOK and each.data and each.data["plugin"] == "faulty"
        else each
        for each in trace
    ]


@DEPTHS
@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("fault", FAILING)
def test_job_is_held_when_a_plugin_fails(depth: Depth, fault: Any, limit: int) -> None:
    """Its urgency changes when all is put right, so plugins are asked about it again."""
    plan = plan_of(fault, depth, limit)
    outcome = run_plan(plan, properties=OURS)
    assert outcome.struck == (fault,)
    assert outcome.problems == ()
    (at,) = asked_for(outcome.trace)
    assert at >= PUT_RIGHT


def test_job_that_no_plugin_holds_has_to_be_asked_for() -> None:
    trace = [each for each in play(plan_of(FAILING[0])).trace if each.t < EPOCH + 10.0]
    assert clauses(trace, cut=False) & {"27.alloc.1", "27.ready.6", "27.criteria.2"} == set()
    named = clauses(changed(trace, error=None), cut=False)
    assert named >= {"27.alloc.1", "27.ready.6", "27.criteria.2"}


@DEPTHS
@pytest.mark.parametrize("limit", [0, 1])
def test_job_is_not_asked_for_while_a_plugin_thinks(depth: Depth, limit: int) -> None:
    """Others that came later are asked for meanwhile."""
    plan = plan_of(PluginHangs(hook=HOOK, seconds=8.0), depth, limit)
    outcome = run_plan(plan, properties=OURS)
    assert outcome.problems == ()
    assert asked_for(outcome.trace)[0] >= 8.0


def test_job_that_waits_for_no_plugin_has_to_be_asked_for_in_its_order() -> None:
    trace = play(plan_of(PluginHangs(hook=HOOK, seconds=8.0))).trace
    assert "27.criteria.5" not in clauses(trace, cut=True)
    assert "27.criteria.5" in clauses(changed(trace, hook="job.state.priority"), cut=True)


@pytest.mark.parametrize(
    "fault",
    [
        *FAILING,
        PluginSaysWrong(hook=HOOK, said=777),
        PluginWrongPriority(hook=HOOK, priority=777),
        PluginSaysWrong(said=777),
        PluginWrongPriority(hook="job.update", priority=777),
        PluginHangs(hook=HOOK, seconds=8.0),
    ],
)
def test_both_depths_give_jobs_the_same_priorities(fault: Any) -> None:
    """A valid priority is one at each hook that may say one, and a failure at the others."""
    asked = (OwnerRequest(1.0, "duration", job=1, seconds=90.0),)
    said: list[Any] = []
    for depth in ("cores", "stack"):
        plan = msgspec.structs.replace(plan_of(fault, depth), actions=asked)
        outcome = run_plan(plan, properties=OURS)
        assert outcome.problems == ()
        said.append([note for each in outcome.trace if (note := _of_note(each))])
    assert said[0] == said[1]


def _of_note(record: Record) -> Any:
    """The priority that an event gives a job, or the hook in which a plugin has failed."""
    data = record.data or {}
    if record.kind == Kind.EVENT and data["name"] == "priority":
        return data["id"], data["context"]["priority"]
    if record.kind == Kind.HOOK and data["error"]:
        return data["id"], data["hook"]
    return None
