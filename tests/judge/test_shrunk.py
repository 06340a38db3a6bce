"""Jobs on shrunk targets: an exception that crosses the free, and a free that nobody takes up."""

from __future__ import annotations

import pytest

from flux_trio.messages import Errno, Response, topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    drop,
    find,
    find_event,
    insert,
    made,
    move,
    receipt,
    texts_of,
)
from tests.support.scenarios import trace_of


def shrunk() -> tuple[Trace, Record, Record]:
    """A job whose exception is not in its eventlog; who raises it, and the answer to its free."""
    trace = trace_of("excludes")
    jobid = find(trace, topics.JOB_RAISE, "request").message.payload["id"]
    trace = drop(trace, find_event(trace, "exception", jobid))
    raised = find(trace, topics.JOB_RAISE, "request")
    return trace, raised, find(trace, topics.SCHED_FREE, "response", id=jobid)


def test_an_exception_in_the_turn_in_which_the_free_is_taken_up_crosses_it() -> None:
    trace, raised, answer = shrunk()
    assert texts_of(move(trace, raised, before=answer), "28.shrink.4") == []


def test_an_exception_after_the_answer_to_the_free_or_none_breaks_the_clause() -> None:
    trace, raised, answer = shrunk()
    assert len(texts_of(move(trace, raised, after=answer), "28.shrink.4")) == 1
    assert len(texts_of(drop(trace, raised), "28.shrink.4")) == 1


@pytest.mark.parametrize(("party", "times"), [("broker", 0), ("sched", 1)])
def test_the_broker_answers_what_the_scheduler_has_not_taken_up(party: str, times: int) -> None:
    trace, _, answer = shrunk()
    freed = find(trace, topics.SCHED_FREE, "request", id=answer.message.payload["id"])
    gone = Response(topics.SCHED_FREE, "sched is gone", Errno.ENOSYS)
    said = insert(trace, receipt(trace, freed), *made(party, topics.JOB_MANAGER, gone))
    assert len(texts_of(said, "28.shrink.5")) == times
