"""Violations of RFC 28 in the acquire RPC: its holders, its errors, its end."""

from __future__ import annotations

from flux_trio.messages import Errno, Request, topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    drop,
    edit,
    find,
    find_all,
    find_event,
    insert,
    made,
    made_event,
    new_turn,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()

DISCONNECT = "resource.disconnect"


def answer(trace: Trace, errnum: int | None = None, nth: int = 0) -> Record:
    """A response to resource.acquire."""
    return find(trace, topics.RESOURCE_ACQUIRE, "response", errnum=errnum, nth=nth)


@PLANTED.violation("28.background.1", "two_groups")
def a_group_is_given_twice(trace: Trace) -> Trace:
    grown = answer(trace, 0).message
    return edit(trace, answer(trace, Errno.EBUSY), errnum=0, flags=64, payload=grown.payload)


@PLANTED.violation("28.impl.2", "two_groups")
def another_group_is_refused(trace: Trace) -> Trace:
    return edit(trace, answer(trace, 0, -1), errnum=16, flags=0, payload="busy")


@PLANTED.violation("28.disconnect.3", "canceled_without_scheduler", cut=True)
def a_group_that_was_left_is_refused(trace: Trace) -> Trace:
    last = answer(trace, 0, -1)
    trace = trace[: receipt(trace, last).n]
    return edit(trace, last, errnum=16, flags=0, payload="busy")


@PLANTED.violation("28.background.6", "scheduler_reload")
def acquire_without_the_flag_is_served(trace: Trace) -> Trace:
    return edit(trace, find(trace, topics.RESOURCE_ACQUIRE, "request", nth=1), flags=0)


@PLANTED.violation("28.background.6", "scheduler_reload")
def acquire_is_answered_once(trace: Trace) -> Trace:
    return edit(trace, answer(trace, 0, 1), flags=0)


def _without_group(trace: Trace) -> Record:
    errors = find_all(trace, topics.RESOURCE_ACQUIRE, "response", errnum=Errno.EPROTO)
    return next(each for each in errors if each.message.matchtag == 2)


@PLANTED.violation("28.error.3", "faulty_client")
def acquire_without_group_is_served(trace: Trace) -> Trace:
    return edit(trace, _without_group(trace), errnum=0, payload={"type": "online"})


@PLANTED.violation("28.error.3", "faulty_client")
def acquire_without_group_is_ignored(trace: Trace) -> Trace:
    return drop(_before_it_leaves(trace), _without_group(trace))


def _before_it_leaves(trace: Trace) -> Trace:
    return trace[: find(trace, DISCONNECT, "request").n - 1]


@PLANTED.violation("28.criteria.1", "two_groups")
def what_is_acquired_is_not_told(trace: Trace) -> Trace:
    return drop(_before_it_leaves(trace), answer(trace, 0, -1))


@PLANTED.violation("28.acquire.3", "two_groups")
def the_example_is_refused(trace: Trace) -> Trace:
    return edit(trace, answer(trace, Errno.EBUSY), errnum=int(Errno.EPROTO))


def _goes_on(trace: Trace, error: Record) -> Trace:
    """The scheduler comes back to its inbox after the error, and says hello."""
    trace, now = new_turn(trace, receipt(trace, error), "sched")
    hello = made("sched", "job-manager", Request(topics.SCHED_HELLO, None, 99, 64))
    return insert(trace, now, *hello)


@PLANTED.violation("28.error.2", "nothing_to_acquire")
def a_scheduler_goes_on_without_resources(trace: Trace) -> Trace:
    return _goes_on(trace, answer(trace, Errno.ENOENT))


@PLANTED.violation("28.release.10", "release_refused")
def a_scheduler_goes_on_after_a_release_error(trace: Trace) -> Trace:
    return _goes_on(trace, find(trace, topics.RESOURCE_RELEASE, "response"))


@PLANTED.violation("28.disconnect.1", "scheduler_reload")
def no_disconnect_is_sent(trace: Trace) -> Trace:
    return drop(trace, find(trace, DISCONNECT, "request"))


@PLANTED.violation("28.disconnect.2", "scheduler_reload")
def one_who_has_left_is_answered(trace: Trace) -> Trace:
    """Sent alone: there is nobody to take it up."""
    sent = answer(trace, 0)
    trace, now = new_turn(trace, find(trace, DISCONNECT, "request"), "resource")
    return insert(trace, now, sent)


LEFT = ("job-manager", "resource")


@PLANTED.violation("28.disconnect.4", "scheduler_reload")
def a_running_job_suffers(trace: Trace) -> Trace:
    gone = max(
        (find(trace, f"{service}.disconnect", "request", party="sched") for service in LEFT),
        key=lambda sent: receipt(trace, sent).n,
    )
    jobid = find_event(trace, "alloc").data["id"]
    context = {"type": "scheduler", "severity": 0, "note": "gone", "userid": 1000}
    return insert(trace, gone, made_event(jobid, "exception", **context))


@PLANTED.violation("28.disconnect.5", "scheduler_reload")
def no_hello_is_said_again(trace: Trace) -> Trace:
    return drop(trace, find(trace, topics.SCHED_HELLO, "request", nth=1))
