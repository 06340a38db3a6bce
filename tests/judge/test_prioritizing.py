"""27.prioritize.1 has a time: a new priority is sent within a second, or before the last answer."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.judge import judge_trace
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Response, topics
from tests.judge.test_knowing import forwarded
from tests.support.judged import (
    CLAUSES,
    Trace,
    cut,
    cut_before,
    drop,
    edit,
    find,
    find_event,
    insert,
    judge,
    made,
    receipt,
    texts_of,
)
from tests.support.scenarios import trace_of

CLAUSE = "27.prioritize.1"


def unsent(scenario: str) -> Trace:
    """A job's priority is changed while its request is open, and the scheduler is not told."""
    trace = trace_of(scenario)
    return drop(trace, find(trace, topics.SCHED_PRIORITIZE, "request"))


def test_an_answer_that_comes_seconds_later_does_not_excuse_it() -> None:
    trace = unsent("everyday")
    (text,) = texts_of(trace, CLAUSE)
    assert "has priority 20 and the scheduler knows 16" in text
    judgement = judge_trace(forwarded(trace), ALL_RULES, CLAUSES)
    assert CLAUSE in {each.clause for each in judgement.violations}


def test_an_answer_that_crosses_it_does() -> None:
    assert texts_of(unsent("cancels_that_cross"), CLAUSE) == []


def test_it_is_due_since_the_priority_event_and_not_since_the_request() -> None:
    trace = unsent("everyday")
    raised = find(trace, topics.JOB_URGENCY, "response")
    monitor = judge(cut(trace, receipt(trace, raised)), ALL_RULES, cut=True)
    (debt,) = [each for each in monitor.debts() if each.clause == CLAUSE]
    since = trace[debt.because[0] - 1]
    assert (since.data or {})["name"] == "priority"
    assert (since.data or {})["context"] == {"priority": 20}


def answered(payload: Any, topic: str = topics.SCHED_ALLOC) -> Trace:
    """The scheduler says so, before the priority is changed that it is not told."""
    trace = unsent("everyday")
    raised = receipt(trace, find(trace, topics.JOB_URGENCY, "request"))
    answer = made("sched", topics.JOB_MANAGER, Response(topic, payload))
    return insert(trace, raised, *answer, before=True)


STRANGER = 1
"""The id of no job."""


@pytest.mark.parametrize(
    ("payload", "topic"),
    [
        ("text", topics.SCHED_ALLOC),
        ({"type": 1, "annotations": {}}, topics.SCHED_ALLOC),
        ({"id": STRANGER, "type": 0}, topics.SCHED_ALLOC),
        ({"id": STRANGER, "type": 1, "annotations": {}}, topics.SCHED_ALLOC),
        ({"id": STRANGER}, topics.SCHED_FREE),
    ],
)
def test_after_a_wrong_answer_scheduling_may_be_suspended(payload: Any, topic: str) -> None:
    assert texts_of(answered(payload, topic), CLAUSE) == []


@pytest.mark.parametrize(
    ("payload", "is_wrong"),
    [({"type": 7}, True), ({"type": 1}, True), ({"type": 1, "annotations": {}}, False)],
)
def test_an_answer_to_an_open_request_may_be_wrong(payload: Any, is_wrong: bool) -> None:
    jobid = find(unsent("everyday"), topics.JOB_URGENCY, "request").message.payload["id"]
    assert (texts_of(answered({"id": jobid} | payload), CLAUSE) == []) is is_wrong


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_another_answer_after_success_is_wrong(kind: int) -> None:
    """readings: Late and stray answers."""
    holder = find_event(unsent("everyday"), "alloc").data["id"]
    assert texts_of(answered({"id": holder, "type": kind, "annotations": {}}), CLAUSE) == []


def held(*, told: bool) -> list[str]:
    """The clauses broken by a trace in which urgency 0 is told by sched.prioritize, or not."""
    trace = trace_of("backfill")
    cancel = find(trace, topics.SCHED_CANCEL, "request")
    answer = find(trace, topics.SCHED_ALLOC, "response", type=3, id=cancel.message.payload["id"])
    trace = cut_before(trace, answer)
    if not told:
        trace = drop(trace, cancel)
    else:
        payload = {"jobs": [[cancel.message.payload["id"], 0]]}
        trace = edit(trace, cancel, topic=topics.SCHED_PRIORITIZE, payload=payload)
    monitor = judge(trace, ALL_RULES, cut=True)
    return [each.clause for each in (*monitor.violations, *monitor.debts()) if not each.may_wait]


def test_urgency_0_may_be_told_by_a_new_priority() -> None:
    """readings: Urgency 0. Not at all is a violation."""
    assert held(told=True) == []
    assert CLAUSE in held(told=False)
