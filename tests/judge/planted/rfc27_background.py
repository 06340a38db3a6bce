"""Violations of RFC 27, Background."""

from __future__ import annotations

from flux_trio.messages import Response, topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    cut,
    duplicate,
    edit_payload,
    edit_r,
    edit_record,
    find,
    find_event,
    insert,
    made,
    made_event,
    move,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE


def alloc(trace: Trace, nth: int = 0) -> Record:
    """A request for resources."""
    return find(trace, ALLOC, "request", nth=nth)


@PLANTED.violation("27.background.1", "everyday")
def annotates_a_job_that_nobody_asked_for(trace: Trace) -> Trace:
    answer = Response(ALLOC, {"id": 999, "type": 1, "annotations": {"sched": {}}})
    return insert(trace, alloc(trace), *made("sched", "job-manager", answer))


@PLANTED.violation("27.background.1", "everyday")
def answers_free_twice(trace: Trace) -> Trace:
    return duplicate(trace, find(trace, FREE, "response"))


@PLANTED.violation("27.background.2", "everyday")
def nobody_holds_the_name_sched(trace: Trace) -> Trace:
    return edit_record(trace, alloc(trace), peer="")


@PLANTED.violation("27.background.3", "scheduler_reload")
def asks_for_a_job_that_runs(trace: Trace) -> Trace:
    return duplicate(trace, alloc(trace), after=find_event(trace, "start"))


@PLANTED.violation("27.background.4", "everyday")
def frees_a_job_that_runs(trace: Trace) -> Trace:
    return move(trace, find(trace, FREE, "request"), before=find_event(trace, "finish"))


@PLANTED.violation("27.background.5", "everyday")
def fails_a_job_that_waits(trace: Trace) -> Trace:
    canceled = find_event(trace, "exception", nth=1)
    failure = made_event(canceled.data["id"], "exception", type="alloc", severity=0, note="late")
    return insert(trace, find(trace, topics.SCHED_PRIORITIZE), failure)


@PLANTED.violation("27.background.6", "answers_by_hand")
def forgets_a_grant_that_was_overtaken(trace: Trace) -> Trace:
    return cut(trace, receipt(trace, find(trace, ALLOC, "response", type=0, nth=1)))


@PLANTED.violation("27.background.7", "everyday")
def jobspec_without_resources(trace: Trace) -> Trace:
    jobspec = {**alloc(trace).message.payload["jobspec"]}
    del jobspec["tasks"]
    return edit_payload(trace, alloc(trace), jobspec=jobspec)


@PLANTED.violation("27.background.7", "everyday")
def stores_what_is_no_r(trace: Trace) -> Trace:
    return edit_r(trace, alloc(trace).message.payload["id"], "rank0/core0")
