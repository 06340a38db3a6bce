"""Violations of RFC 27, Design Criteria."""

from __future__ import annotations

from flux_trio.formats import format_fluid
from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    cut,
    cut_before,
    drop,
    edit_payload,
    edit_r,
    find,
    find_all,
    find_event,
    insert,
    made_event,
    move,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC = topics.SCHED_ALLOC


def text_of_r(trace: Trace, jobid: int) -> str:
    """R of a job as it was stored."""
    key = f"{format_fluid(jobid, 'kvs')}.R"
    for commit in find_all(trace, topics.KVS_COMMIT, "request"):
        for op in commit.message.payload["ops"]:
            if op[:2] == ["put", key]:
                return op[2]
    raise AssertionError(f"no R of job {jobid}")


@PLANTED.violation("27.criteria.2", "everyday")
def does_not_ask_for_a_job_in_sched(trace: Trace) -> Trace:
    return cut_before(trace, find(trace, ALLOC, "request"))


@PLANTED.violation("27.criteria.3", "scheduler_reload")
def new_scheduler_grants_what_runs(trace: Trace) -> Trace:
    told = find(trace, topics.SCHED_HELLO, "response", errnum=0)
    granted = find(trace[told.n :], ALLOC, "response", type=0).message.payload["id"]
    return edit_r(trace, granted, text_of_r(trace, told.message.payload["id"]))


@PLANTED.violation("27.criteria.4", "scheduler_reload")
def running_job_fails_with_the_scheduler(trace: Trace) -> Trace:
    lost = find(trace, topics.JOB_MANAGER_DISCONNECT, party="sched")
    jobid = find_event(trace, "alloc").data["id"]
    failure = made_event(jobid, "exception", type="sched", severity=0, note="lost")
    return insert(trace, lost, failure)


@PLANTED.violation("27.criteria.5", "scheduler_reload")
def lower_priority_first(trace: Trace) -> Trace:
    better = find(trace, ALLOC, "request", priority=20)
    return move(trace, better, after=find(trace, ALLOC, "request", nth=-1))


@PLANTED.violation("27.criteria.5", "queue_stopped", cut=True)
def the_later_job_first_when_its_queue_is_started(trace: Trace) -> Trace:
    """The first of the two is asked for again, at the moment when the queue is started."""
    return _exchanged(trace, find(trace, topics.JOB_QUEUE_START, "request", start=True))


@PLANTED.violation("27.criteria.5", "scheduler_reload", cut=True)
def the_later_job_first_for_the_next_scheduler(trace: Trace) -> Trace:
    return _exchanged(trace, find(trace, topics.SCHED_READY, "response", nth=1))


def _exchanged(trace: Trace, since: Record) -> Trace:
    """The first request after a record comes behind the next; the trace ends with it."""
    first, second = find_all(trace[since.n :], ALLOC, "request")[:2]
    changed = move(trace, first, after=second)
    jobid = first.message.payload["id"]
    return changed[: find(changed[since.n :], ALLOC, "request", id=jobid).n]


@PLANTED.violation("27.criteria.6", "scheduler_reload")
def hello_makes_up_the_time_of_submission(trace: Trace) -> Trace:
    return edit_payload(trace, find(trace, topics.SCHED_HELLO, "response", errnum=0), t_submit=1.5)


@PLANTED.violation("27.criteria.6", "scheduler_reload")
def hello_makes_up_the_priority(trace: Trace) -> Trace:
    return edit_payload(trace, find(trace, topics.SCHED_HELLO, "response", errnum=0), priority=17)


@PLANTED.violation("27.criteria.7", "everyday")
def canceled_job_stays(trace: Trace) -> Trace:
    return cut(trace, find_event(trace, "exception", nth=1))


@PLANTED.violation("27.criteria.8", "everyday")
def new_priority_is_not_told(trace: Trace) -> Trace:
    prioritize = find(trace, topics.SCHED_PRIORITIZE)
    canceled = find(trace, topics.JOB_RAISE, "request")
    return drop(cut_before(trace, canceled), prioritize)
