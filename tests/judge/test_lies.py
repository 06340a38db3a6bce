"""A party that lies is named, and what the others do about it is nobody's fault."""

from __future__ import annotations

import pytest

from flux_trio.lab import run_plan
from flux_trio.lab.catalogue import (
    ChangedKey,
    Crash,
    NoObject,
    RemovedKey,
    Repeated,
    StrayAnswer,
    UnknownId,
    Withheld,
    WrongType,
)
from flux_trio.lab.catalogue.base import Lie
from flux_trio.lab.catalogue.places import SentMessage, When
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import JobPlan

START = "job-exec.start"
KINDS = range(1, 4)
"""Of one job: its start, its finish and its release."""


def lies(nth: int) -> list[Lie]:
    """Of each kind of lie about the answer `nth` to a start request."""
    which = SentMessage(START, nth, "response")
    return [
        RemovedKey(which, "id"),
        RemovedKey(which, "type"),
        RemovedKey(which, "data"),
        ChangedKey(which, "data", {"final": 1}),
        NoObject(which),
        WrongType(which),
        UnknownId(which),
        Repeated(which),
        StrayAnswer(which),
    ]


@pytest.mark.parametrize("lie", [lie for nth in KINDS for lie in lies(nth)], ids=repr)
def test_an_answer_of_the_execution_service_that_means_nothing_ends_its_streams(lie: Lie) -> None:
    """32.start.23, 32.start.39: the job manager may release and free what is left by itself."""
    jobs = tuple(JobPlan(run=run) for run in (0.0, 2.0, 5.0))
    outcome = run_plan(Plan(1, nnodes=1, cores=1, jobs=jobs, faults=(lie,)))
    assert outcome.problems == ()
    assert outcome.struck == (lie,)
    assert [each for each in outcome.excused if each.startswith("32.")]


@pytest.mark.parametrize("nth", [1, 2])
def test_what_the_execution_service_leaves_out_is_no_fault_while_the_scheduler_is_away(
    nth: int,
) -> None:
    """27.criteria.4: the exception of the running job has a reason other than the scheduler."""
    withheld = Withheld(SentMessage(START, nth, "response"))
    away = Crash("sched", When(START), back=10.0)
    outcome = run_plan(Plan(1, jobs=(JobPlan(run=1.0),), faults=(withheld, away)))
    assert outcome.problems == ()
    assert outcome.struck == (away, withheld)
