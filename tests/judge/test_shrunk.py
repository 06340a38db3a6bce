"""Jobs on shrunk targets: an exception that crosses the free, and a free that nobody takes up."""

from __future__ import annotations

from pathlib import Path

from flux_trio.faults import run_plan
from flux_trio.faults.plan import plan_from_toml
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import topics
from tests.support.judged import (
    Trace,
    drop,
    edit_record,
    find,
    find_all,
    find_event,
    judge,
    move,
    receipt,
)

PLANS = Path(__file__).parents[1] / "faults" / "plans"
RAISED_IN_THE_TURN = "shrunk-before-ready-and-freed-in-the-turn-of-it"
NOT_TAKEN_UP = "free-of-shrunk-targets-on-its-way-to-a-scheduler-that-ends"


def played(name: str) -> Trace:
    trace: Trace = []
    run_plan(plan_from_toml((PLANS / f"{name}.toml").read_text()), [trace.append])
    return trace


def broken(trace: Trace, clause: str) -> list[str]:
    found = judge(trace, ALL_RULES, cut=True).violations
    return [each.text for each in found if each.clause == clause]


def unlogged() -> Trace:
    """No exception is in an eventlog of the two jobs; the first had ended before the shrink."""
    trace = played(RAISED_IN_THE_TURN)
    ids = [each.message.payload["id"] for each in find_all(trace, topics.JOB_RAISE, "request")]
    assert len(ids) == 2
    return drop(trace, *[find_event(trace, "exception", jobid) for jobid in ids])


def test_an_exception_in_the_turn_of_the_free_crosses_it() -> None:
    trace = played(RAISED_IN_THE_TURN)
    raised, freed = (find(trace, topic) for topic in (topics.JOB_RAISE, topics.SCHED_FREE))
    assert receipt(trace, freed).n < raised.n < find(trace, topics.SCHED_FREE, "response").n
    assert broken(trace, "28.shrink.4") == []


def test_an_exception_after_the_answer_to_the_free_or_none_breaks_the_clause() -> None:
    trace = unlogged()
    never = drop(trace, *find_all(trace, topics.JOB_RAISE, "request"))
    assert len(broken(never, "28.shrink.4")) == 1
    raised = find(trace, topics.JOB_RAISE, "request", nth=1)
    answer = find(trace, topics.SCHED_FREE, "response", id=raised.message.payload["id"])
    assert len(broken(move(trace, raised, after=answer), "28.shrink.4")) == 1


def test_the_broker_answers_what_a_scheduler_that_ended_has_not_taken_up() -> None:
    trace = played(NOT_TAKEN_UP)
    (error,) = find_all(trace, topics.SCHED_FREE, "response", party="broker")
    assert broken(trace, "28.shrink.5") == []
    assert len(broken(edit_record(trace, error, party="sched"), "28.shrink.5")) == 1
