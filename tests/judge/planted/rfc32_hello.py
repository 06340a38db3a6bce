"""Violations of RFC 32, Hello, and of what ends with an execution service."""

from __future__ import annotations

from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Record
from tests.support.judged import REMOVED, Trace, drop, duplicate, edit, find, insert, made, receipt
from tests.support.planted import Planted

PLANTED = Planted()

EINVAL = Errno.EINVAL


def hello(trace: Trace, nth: int = 0) -> Record:
    """An execution service says hello."""
    return find(trace, topics.EXEC_HELLO, "request", nth=nth)


def answer(trace: Trace, nth: int = 0) -> Record:
    """What it is answered."""
    return find(trace, topics.EXEC_HELLO, "response", nth=nth)


def refused(trace: Trace, nth: int, why: str) -> Trace:
    """An answer to hello is an error; the trace ends with it."""
    end = receipt(trace, answer(trace, nth))
    return edit(trace, answer(trace, nth), errnum=EINVAL, payload=why)[: end.n]


PLANTED.bad_key("32.hello.4", "everyday", hello, "service", [REMOVED, 1, None])


@PLANTED.violation("32.hello.3", "everyday")
def hello_without_an_object(trace: Trace) -> Trace:
    return edit(trace, hello(trace), payload="job-exec")


@PLANTED.violation("32.hello.1", "everyday")
def nobody_says_hello(trace: Trace) -> Trace:
    return drop(trace, hello(trace), answer(trace))


@PLANTED.violation("32.impl.8", "everyday")
def hello_is_answered_with_another_matchtag(trace: Trace) -> Trace:
    return edit(trace, answer(trace), matchtag=77)


@PLANTED.violation("32.impl.8", "execution_taken_over")
def hello_is_never_answered(trace: Trace) -> Trace:
    """The trace ends at rest, before the client leaves."""
    refused = answer(trace, 1)
    leaves = find(trace[refused.n :], topics.JOB_MANAGER_DISCONNECT, "request")
    return drop(trace[: leaves.n - 1], refused)


@PLANTED.violation("32.hello.7", "everyday")
def hello_is_answered_with_a_payload(trace: Trace) -> Trace:
    return edit(trace, answer(trace), payload={})


@PLANTED.violation("32.hello.6", "execution_taken_over", cut=True)
def a_service_that_is_registered_says_hello_again_in_vain(trace: Trace) -> Trace:
    """Before the first job there was."""
    peer, end = hello(trace).party, receipt(trace, answer(trace))
    again = Request(topics.EXEC_HELLO, {"service": "sim-exec"}, 9)
    refusal = Response(topics.EXEC_HELLO, "no", EINVAL, 9)
    said = insert(trace[: end.n], end, *made(peer, "job-manager", again))
    return insert(said, said[-1], *made("job-manager", peer, refusal))


@PLANTED.violation("32.criteria.6", "execution_reload", cut=True)
def a_reloaded_service_is_refused(trace: Trace) -> Trace:
    return refused(trace, 1, "one was here before")


@PLANTED.violation("32.impl.6", "execution_fatality", cut=True)
def a_service_is_refused_after_a_fatality(trace: Trace) -> Trace:
    return refused(trace, 1, "one job has failed")


@PLANTED.violation("32.start.38", "execution_taken_over", cut=True)
def a_finally_released_start_counts_as_outstanding(trace: Trace) -> Trace:
    return refused(trace, 3, "a start is outstanding")


@PLANTED.violation("32.hello.2", "execution_by_hand", cut=True)
def a_service_of_another_name_is_refused(trace: Trace) -> Trace:
    return refused(trace, 0, "only job-exec will do")


@PLANTED.violation("32.hello.5", "everyday", cut=True)
def a_service_of_the_regular_name_is_refused(trace: Trace) -> Trace:
    return refused(trace, 0, "not today")


@PLANTED.violation("32.hello.8", "execution_taken_over", cut=True)
def a_busy_service_is_replaced(trace: Trace) -> Trace:
    accepted = receipt(trace, answer(trace, 1))
    return edit(trace, answer(trace, 1), errnum=0, payload=None)[: accepted.n]


@PLANTED.violation("32.hello.9", "execution_taken_over")
def a_refused_service_goes_on(trace: Trace) -> Trace:
    refusal, again = answer(trace, 1), hello(trace, 1)
    end = receipt(trace, refusal)
    return duplicate(trace[: end.n], again, after=refusal)


@PLANTED.violation("32.impl.7", "execution_fatality")
def a_start_is_sent_after_a_fatality(trace: Trace) -> Trace:
    """Again to the service that failed, which has not said hello since."""
    start = find(trace, "sim-exec.start", "request", nth=1)
    error = find(trace, "sim-exec.start", "response", errnum=Errno.ENOSYS)
    return duplicate(trace, start, after=error)


@PLANTED.violation("32.criteria.7", "execution_taken_over")
def a_start_goes_to_the_service_that_was_replaced(trace: Trace) -> Trace:
    return edit(trace, find(trace, "last-exec.start", "request"), topic="other-exec.start")
