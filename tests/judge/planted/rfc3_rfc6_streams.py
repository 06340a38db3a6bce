"""Violations of RFC 6 in streams, cancellation and disconnection."""

from __future__ import annotations

from flux_trio.messages import Errno, topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    crash,
    drop,
    duplicate,
    edit,
    edit_payload,
    find,
    find_all,
    insert,
    new_turn,
)
from tests.support.planted import Planted

PLANTED = Planted()


def _ended(trace: Trace) -> Record:
    return find(trace, topics.SCHED_HELLO, "response", errnum=Errno.ENODATA)


@PLANTED.violation("6.request.4", "everyday")
def hello_without_the_flag(trace: Trace) -> Trace:
    return edit(trace, find(trace, topics.SCHED_HELLO, "request"), flags=0)


@PLANTED.violation("6.streaming.1", "faulty_client")
def a_request_without_the_flag_is_refused_otherwise(trace: Trace) -> Trace:
    errors = find_all(trace, topics.RESOURCE_ACQUIRE, "response", errnum=Errno.EPROTO)
    (answer,) = [each for each in errors if each.message.matchtag == 1]
    return edit(trace, answer, errnum=int(Errno.EINVAL))


@PLANTED.violation("6.streaming.2", "everyday")
def a_stream_ends_twice(trace: Trace) -> Trace:
    return duplicate(trace, _ended(trace))


@PLANTED.violation("6.streaming.2", "everyday")
def a_stream_does_not_end(trace: Trace) -> Trace:
    return drop(trace, _ended(trace))


@PLANTED.violation("6.streaming.4", "scheduler_reload")
def a_response_of_a_stream_without_the_flag(trace: Trace) -> Trace:
    return edit(trace, find(trace, topics.SCHED_HELLO, "response", errnum=0), flags=0)


@PLANTED.violation("6.streaming.3", "everyday", cut=True)
def enodata_is_taken_for_a_failure(trace: Trace) -> Trace:
    ready = find(trace, topics.SCHED_READY, "request")
    trace = trace[: ready.n - 1]
    return crash(trace, "sched", "resource", "job-manager", reason="No data available")


@PLANTED.violation("6.cancel.1", "calls")
def a_cancel_without_matchtag(trace: Trace) -> Trace:
    return edit_payload(trace, find(trace, topics.KVS_OWN.cancel, "request"), matchtag="7")


def _canceled(trace: Trace) -> Record:
    return find(trace, topics.KVS_OWN.watch, "response", errnum=Errno.ECANCELED)


@PLANTED.violation("6.cancel.1", "calls")
def a_request_is_canceled_by_nobody(trace: Trace) -> Trace:
    return drop(trace, find(trace, topics.KVS_OWN.cancel, "request"))


@PLANTED.violation("6.matchtag.2", "calls")
def the_request_of_another_is_canceled(trace: Trace) -> Trace:
    other = {"one-2": "two-3", "two-3": "one-2"}[_canceled(trace).peer]
    return edit(trace, _canceled(trace), routes=(other,))


@PLANTED.violation("6.cancel.3", "calls")
def what_is_canceled_goes_on(trace: Trace) -> Trace:
    canceled = _canceled(trace)
    leaves = find(trace, "kvs.disconnect", "request", party=canceled.peer)
    return drop(trace[: leaves.n - 1], canceled)


@PLANTED.violation("6.cancel.3", "calls")
def what_is_canceled_ends_otherwise(trace: Trace) -> Trace:
    """The service has come back to its inbox since the cancel."""
    cancel = find(trace, topics.KVS_OWN.cancel, "request")
    trace = edit(trace, _canceled(trace), errnum=int(Errno.ENODATA))
    trace, _ = new_turn(trace, trace[cancel.n - 1], "kvs")
    return trace


@PLANTED.violation("6.disconnect.1", "scheduler_reload")
def a_service_is_not_told_of_a_disconnect(trace: Trace) -> Trace:
    return drop(trace, find(trace, "resource.disconnect", "request"))


@PLANTED.violation("6.disconnect.2", "scheduler_reload")
def one_who_is_gone_is_answered(trace: Trace) -> Trace:
    """Sent alone: there is nobody to take it up."""
    grow = find(trace, topics.RESOURCE_ACQUIRE, "response")
    trace, now = new_turn(trace, find(trace, "resource.disconnect", "request"), "resource")
    return insert(trace, now, grow)
