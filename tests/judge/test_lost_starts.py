"""A canceled job whose start was due when the execution service was lost waits for the next one."""

from __future__ import annotations

from flux_trio.judge.rules import at_rest
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import Kind
from tests.support.judged import ByHand

MANAGER, EXEC = topics.JOB_MANAGER, topics.JOB_EXEC
HELLO = ("job-exec",)
LOST = Response(f"{EXEC}.start", "cannot start", Errno.EINVAL, routes=(MANAGER,))
SAID = {
    "lost": LOST,
    "hello": Request(topics.EXEC_HELLO, {"service": EXEC}, 2, routes=("next",)),
    "disconnect": Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE, routes=("next",)),
}


def stuck(*story: str) -> list[str]:
    """Return what nobody-stuck says at the end of a story: of events of a job and what is below."""
    told = ByHand(at_rest.RULES.all, ["invariant.nobody-stuck"])
    told.put(Kind.RECV, Request(topics.EXEC_HELLO, {"service": EXEC}, 1, routes=HELLO))
    told.put(Kind.SEND, Response(topics.EXEC_HELLO, {}, matchtag=1, routes=HELLO))
    for name in ("submit", "validate", "depend", "priority", *story):
        if name in SAID:
            told.put(Kind.RECV, SAID[name])
        else:
            told.log(name)
    account = {"service": MANAGER, "scheduler": "ready", "exec": "", "jobs": []}
    told.put(Kind.STATE, data=account)
    return [each.text for each in told.monitor.violations]


def test_a_canceled_job_whose_start_was_dropped_with_the_service_waits_for_the_next() -> None:
    assert stuck("alloc", "lost", "exception") == []
    assert stuck("alloc", "exception", "lost") == []


def test_start_is_dropped_also_with_a_service_whose_hello_was_not_answered_yet() -> None:
    """The answer waited for the commit of the alloc event, as the start did."""
    assert stuck("lost", "hello", "alloc", "disconnect", "exception") == []
    (text,) = stuck("lost", "hello", "disconnect", "alloc", "exception")
    assert text.endswith("the scheduler is not asked to free its resources")


def test_a_job_that_got_resources_when_there_was_no_service_is_freed_at_once() -> None:
    (text,) = stuck("lost", "alloc", "exception")
    assert text.endswith("the scheduler is not asked to free its resources")


def test_a_job_that_the_lost_service_has_released_is_freed_at_once() -> None:
    (text,) = stuck("alloc", "lost", "exception", "release")
    assert text.endswith("the scheduler is not asked to free its resources")
