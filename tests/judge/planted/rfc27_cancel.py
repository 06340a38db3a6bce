"""Violations of RFC 27, Cancel and Alloc Cancel."""

from __future__ import annotations

from flux_trio.messages import Response, topics
from flux_trio.trace import Record
from tests.judge.planted.rfc27_impl import more
from tests.support.judged import (
    Trace,
    come_back,
    cut,
    cut_before,
    drop,
    duplicate,
    edit_payload,
    find,
    find_all,
    find_event,
    insert,
    made,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC, CANCEL = topics.SCHED_ALLOC, topics.SCHED_CANCEL


def canceled(trace: Trace) -> Record:
    """The first CANCEL."""
    return find(trace, ALLOC, "response", type=3)


@PLANTED.violation("27.alloccancel.1", "everyday")
def canceled_request_is_denied(trace: Trace) -> Trace:
    trace = edit_payload(trace, canceled(trace), type=2)
    taken_up = receipt(trace, find(trace, CANCEL))
    return insert(trace, taken_up, *come_back("sched"))


@PLANTED.violation("27.alloccancel.1", "everyday")
def canceled_request_is_forgotten(trace: Trace) -> Trace:
    return drop(trace, canceled(trace))


@PLANTED.violation("27.alloccancel.2", "everyday")
def cancel_with_a_note(trace: Trace) -> Trace:
    return edit_payload(trace, canceled(trace), note="as you wish")


@PLANTED.violation("27.alloccancel.4", "limited_mode")
def cancels_twice(trace: Trace) -> Trace:
    return duplicate(trace, canceled(trace))


@PLANTED.violation("27.alloccancel.4", "limited_mode")
def canceled_request_never_comes_again(trace: Trace) -> Trace:
    jobid = canceled(trace).message.payload["id"]
    return cut_before(trace, find(trace, ALLOC, "request", id=jobid, nth=-1))


@PLANTED.violation("27.cancel.1", "everyday")
def cancel_without_payload(trace: Trace) -> Trace:
    return more(trace, find(trace, CANCEL), payload=None)


@PLANTED.violation("27.cancel.2", "everyday")
def cancel_of_an_id_of_text(trace: Trace) -> Trace:
    return more(trace, find(trace, CANCEL), payload={"id": "f1"})


@PLANTED.violation("27.cancel.4", "everyday")
def cancel_itself_is_answered(trace: Trace) -> Trace:
    answer = Response(CANCEL, {})
    return insert(trace, find(trace, CANCEL), *made("sched", "job-manager", answer))


@PLANTED.violation("27.cancel.5", "everyday")
def request_stays_open_after_cancel(trace: Trace) -> Trace:
    return cut_before(trace, canceled(trace))


@PLANTED.violation("27.cancel.6", "cancels_that_cross")
def cancel_of_nothing_is_answered(trace: Trace) -> Trace:
    success = find(trace, ALLOC, "response", type=0)
    answer = Response(ALLOC, {"id": success.message.payload["id"], "type": 3})
    taken_up = receipt(trace, find(trace, CANCEL, id=success.message.payload["id"]))
    return insert(trace, taken_up, *made(success.party, "job-manager", answer))


@PLANTED.violation("27.cancel.7", "cancels_that_cross")
def success_that_crossed_is_forgotten(trace: Trace) -> Trace:
    return cut(trace, receipt(trace, find(trace, ALLOC, "response", type=0)))


@PLANTED.violation("27.cancel.8", "cancels_that_cross")
def canceled_once_is_denied_for_ever(trace: Trace) -> Trace:
    again = find_all(trace, ALLOC, "response", type=0)[-1]
    assert again.message.payload["id"] == canceled(trace).message.payload["id"]
    trace = edit_payload(trace, again, type=2)
    return cut(trace, trace[again.n - 1])


@PLANTED.violation("27.cancel.10", "limited_mode")
def better_job_waits_behind_others(trace: Trace) -> Trace:
    cancel = find(trace, CANCEL)
    assert find_event(trace, "priority", nth=4).n < cancel.n
    return cut_before(trace, cancel)
