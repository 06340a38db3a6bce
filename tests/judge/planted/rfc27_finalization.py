"""Violations of RFC 27, Finalization and Exceptions."""

from __future__ import annotations

from flux_trio.messages import Errno, Request, topics
from tests.judge.planted.rfc27_impl import goes_on
from tests.support.judged import (
    Trace,
    come_back,
    cut,
    cut_before,
    drop,
    find,
    find_event,
    insert,
    made,
    made_event,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE


@PLANTED.violation("27.finalization.2", "requests_never_taken_up")
def frees_on_after_an_error(trace: Trace) -> Trace:
    return goes_on(trace, ALLOC, Request(FREE, {"id": 999}))


@PLANTED.violation("27.finalization.3", "requests_never_taken_up")
def job_fails_for_want_of_a_scheduler(trace: Trace) -> Trace:
    error = receipt(trace, find(trace, ALLOC, "response", errnum=Errno.ENOSYS))
    jobid = find(trace, ALLOC, "request").message.payload["id"]
    failure = made_event(jobid, "exception", type="alloc", severity=0, note="no scheduler")
    failed = insert(trace, error, failure)
    return cut(failed, failed[error.n])


@PLANTED.violation("27.finalization.4", "scheduler_reload")
def cancels_at_a_scheduler_that_is_gone(trace: Trace) -> Trace:
    gone = find(trace, topics.JOB_MANAGER_DISCONNECT, party="sched")
    request = made("job-manager", "", Request(topics.SCHED_CANCEL, {"id": 999}))[0]
    trace = insert(trace, gone, request)
    return insert(trace, trace[gone.n - 1], *come_back("job-manager"))


@PLANTED.violation("27.finalization.5", "scheduler_reload")
def does_not_ask_again(trace: Trace) -> Trace:
    ready = find(trace, topics.SCHED_READY, "response", nth=1)
    return cut_before(trace, find(trace[ready.n :], ALLOC, "request"))


@PLANTED.violation("27.exceptions.1", "everyday")
def failed_job_goes_on(trace: Trace) -> Trace:
    failed = find_event(trace, "exception")
    return insert(trace, failed, made_event(failed.data["id"], "priority", priority=16))


@PLANTED.violation("27.exceptions.2", "everyday")
def request_of_a_canceled_job_is_left(trace: Trace) -> Trace:
    return cut_before(trace, find(trace, topics.SCHED_CANCEL))


@PLANTED.violation("27.exceptions.3", "everyday")
def resources_of_a_canceled_job_are_kept(trace: Trace) -> Trace:
    jobid = find(trace, topics.JOB_RAISE, "request", nth=-1).message.payload["id"]
    return cut_before(trace, find(trace, FREE, "request", id=jobid))


@PLANTED.violation("27.exceptions.4", "everyday")
def scheduler_cancels_by_itself(trace: Trace) -> Trace:
    return drop(trace, find(trace, topics.SCHED_CANCEL))
