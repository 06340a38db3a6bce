"""Each fault strikes at its moment and changes what happens."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from flux_trio.lab import (
    ClockJump,
    Crash,
    Fault,
    JobPlan,
    KillInstance,
    Linger,
    Plan,
    PluginRejects,
    When,
    run_plan,
)
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.process.collector import SERVING
from flux_trio.trace import Kind, Record

SECOND_ALLOC = When(topics.SCHED_ALLOC, nth=2)
THREE_JOBS = (JobPlan(), JobPlan(), JobPlan())


def played(*faults: Fault, jobs: tuple[JobPlan, ...] = THREE_JOBS, **plan: Any) -> list[Record]:
    """The trace of a plan of which every property holds."""
    outcome = run_plan(Plan(seed=1, jobs=jobs, faults=faults, **plan))
    assert outcome.problems == ()
    assert list(outcome.struck) == list(faults)
    return [*outcome.trace]


def messages(trace: list[Record], kind: Kind, type_: type, topic: str) -> list[Record]:
    return [
        record
        for record in trace
        if record.kind == kind
        and isinstance(record.message, type_)
        and getattr(record.message, "topic", "") == topic
    ]


def modules(trace: list[Record], name: str) -> list[Record]:
    """What became of a module, in order."""
    notes = [record for record in trace if record.kind == Kind.MODULE and record.data]
    return [record for record in notes if (record.data or {})["module"] == name]


def whats(records: list[Record]) -> list[str]:
    return [(record.data or {})["what"] for record in records]


def ends(trace: list[Record]) -> list[float]:
    """When each job was clean, in seconds since the start."""
    start = trace[0].t
    return [
        record.t - start
        for record in trace
        if record.kind == Kind.EVENT and (record.data or {})["name"] == "clean"
    ]


def test_scheduler_dies_after_the_second_alloc_reached_it_and_before_it_answers() -> None:
    trace = played(Crash("sched", SECOND_ALLOC, back=5.0), cores=1)
    started, crashed, back = modules(trace, "sched")
    assert whats([started, crashed, back]) == ["started", "crashed", "started"]
    taken = messages(trace, Kind.RECV, Request, topics.SCHED_ALLOC)
    assert sum(record.n < crashed.n for record in taken) >= 2
    answers = messages(trace, Kind.SEND, Response, topics.SCHED_ALLOC)
    own = [record.n for record in answers if record.party == "sched"]
    assert [n for n in own if taken[1].n < n < crashed.n] == []
    assert back.t - crashed.t == 5.0
    assert max(ends(trace)) >= 6.0


def test_module_that_lingers_takes_nothing_in_meanwhile() -> None:
    trace = played(Linger("sched", When(topics.SCHED_ALLOC, side="send"), seconds=20.0))
    assert min(ends(trace)) >= 21.0
    assert whats(modules(trace, "sched")) == ["started"]


def test_fault_at_a_step_strikes_before_it() -> None:
    trace = played(Crash("job-list", 3))
    assert whats(modules(trace, "job-list")) == ["started", "crashed", "started"]


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_clock_that_is_set_moves_no_duration(by: float) -> None:
    """Jobs that run for 2 s end 2 s later, whatever the clock says."""
    jobs = (JobPlan(run=2.0), JobPlan(run=2.0, limit=5.0))
    started = When("job-exec.start", type="response", nth=2)
    trace = played(ClockJump(started, by), jobs=jobs)
    assert [end - by for end in ends(trace)] == pytest.approx([2.0, 2.0])
    (noted,) = [record.data for record in trace if record.kind == Kind.CLOCK]
    assert noted == {"by": by}


def test_refused_job_does_not_run_if_the_instance_is_killed_when_its_user_is_told() -> None:
    """33.validation.4"""
    told = When(topics.INGEST_SUBMIT, type="response", side="send")
    trace = played(PluginRejects(), KillInstance(told), jobs=(JobPlan(),))
    events = [record.data for record in trace if record.kind == Kind.EVENT]
    assert [(each or {})["name"] for each in events] == ["submit", "invalidate"]


def test_requests_to_a_module_that_is_away_are_refused_and_made_again() -> None:
    trace = played(Crash("job-ingest", When(topics.INGEST_SUBMIT), back=2.0))
    refused = messages(trace, Kind.SEND, Response, topics.INGEST_SUBMIT)
    assert any(getattr(each.message, "errnum", 0) == Errno.ENOSYS for each in refused)
    assert len(ends(trace)) == len(THREE_JOBS)


def test_worlds_look_for_cycles_as_rarely_as_instances() -> None:
    before, seen = gc.get_threshold(), set[tuple[int, int, int]]()
    run_plan(Plan(seed=1, jobs=THREE_JOBS), [lambda _: seen.add(gc.get_threshold())])
    assert seen == {SERVING}
    assert gc.get_threshold() == before
