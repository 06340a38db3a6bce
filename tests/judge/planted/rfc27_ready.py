"""Violations of RFC 27, Ready."""

from __future__ import annotations

from flux_trio.messages import Errno, Flag, Request, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import Record
from tests.support.judged import (
    REMOVED,
    Trace,
    cut,
    cut_before,
    drop,
    edit,
    find,
    insert,
    made,
    move,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
HELLO, READY = topics.SCHED_HELLO, topics.SCHED_READY


def ready(trace: Trace) -> Record:
    """The first sched-ready."""
    return find(trace, READY, "request")


def answer(trace: Trace) -> Record:
    """The answer to the first sched-ready."""
    return find(trace, READY, "response")


PLANTED.bad_key("27.ready.4", "everyday", ready, "mode", [REMOVED, 1])
PLANTED.bad_key("27.ready.5", "everyday", ready, "mode", ["single", "limited=8"])
PLANTED.bad_key("27.ready.9", "limited_mode", ready, "limit")
PLANTED.bad_key("27.ready.10", "limited_mode", ready, "limit", [0, 2147483648, "42"])
PLANTED.bad_key("27.ready.10", "everyday", ready, "limit", [-1])  # of mode unlimited, too
PLANTED.bad_key("27.ready.12", "everyday", answer, "count", [REMOVED, "0", -1])
PLANTED.bad_key("27.ready.7", "limited_mode", ready, "limit", [1])


@PLANTED.violation("27.ready.1", "everyday")
def no_ready_after_hello(trace: Trace) -> Trace:
    end = find(trace, HELLO, "response", errnum=Errno.ENODATA)
    return cut(trace, receipt(trace, end))


@PLANTED.violation("27.ready.2", "everyday")
def ready_before_the_answers_to_hello(trace: Trace) -> Trace:
    end = find(trace, HELLO, "response", errnum=Errno.ENODATA)
    return move(trace, ready(trace), before=end)


@PLANTED.violation("27.ready.3", "everyday")
def ready_without_payload(trace: Trace) -> Trace:
    return edit(trace, ready(trace), payload=None)


@PLANTED.violation("27.ready.6", "everyday")
def unlimited_mode_stops(trace: Trace) -> Trace:
    return cut_before(trace, find(trace, topics.SCHED_ALLOC, "request", nth=2))


@PLANTED.violation("27.ready.8", "limited_mode")
def an_answer_makes_no_room(trace: Trace) -> Trace:
    return cut(trace, receipt(trace, find(trace, topics.SCHED_ALLOC, "response", type=0, nth=1)))


@PLANTED.violation("27.ready.11", "everyday")
def valid_ready_is_refused(trace: Trace) -> Trace:
    trace = edit(trace, answer(trace), payload="no", errnum=Errno.EINVAL)
    trace = cut(trace, receipt(trace, answer(trace)))
    gone = Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE)
    return insert(trace, trace[-1], *made("sched", "job-manager", gone))


@PLANTED.violation("27.ready.13", "scheduler_reload")
def asks_before_ready_is_answered(trace: Trace) -> Trace:
    again = find(trace, READY, "response", nth=1)
    request = find(trace[again.n :], topics.SCHED_ALLOC, "request")
    return move(trace, request, before=again)


@PLANTED.violation("27.ready.13", "everyday", cut=True)
def asks_before_there_is_a_scheduler(trace: Trace) -> Trace:
    hello = find(trace, HELLO, "request")
    request = find(trace, topics.SCHED_ALLOC, "request")
    return move(trace, request, before=hello)[: hello.n]


@PLANTED.violation("27.ready.15", "refused_ready")
def refused_scheduler_says_hello_again(trace: Trace) -> Trace:
    gone = find(trace, topics.JOB_MANAGER_DISCONNECT)
    again = Request(HELLO, None, 3, int(Flag.STREAMING))
    return insert(trace, gone, *made("by-hand", "job-manager", again), before=True)


@PLANTED.violation("27.ready.15", "refused_ready")
def refused_scheduler_stays(trace: Trace) -> Trace:
    return drop(trace, find(trace, topics.JOB_MANAGER_DISCONNECT))
