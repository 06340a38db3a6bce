"""A canceled job whose start was due when the execution service was lost waits for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flux_trio.judge import Monitor
from flux_trio.judge.rules import at_rest
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import Kind, Record

MANAGER, EXEC = topics.JOB_MANAGER, topics.JOB_EXEC
JOB = 1
HELLO = ("job-exec",)
SUBMITTED: Sequence[tuple[str, dict[str, Any]]] = (
    ("submit", {"userid": 1}),
    ("validate", {}),
    ("depend", {}),
    ("priority", {"priority": 16}),
)
LOST = Response(f"{EXEC}.start", "cannot start", Errno.EINVAL, routes=(MANAGER,))
SAID = {
    "lost": LOST,
    "hello": Request(topics.EXEC_HELLO, {"service": EXEC}, 2, routes=("next",)),
    "disconnect": Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE, routes=("next",)),
}


def stuck(*story: str) -> list[str]:
    """Return what nobody-stuck says at the end of a story: of events of JOB and what is below."""
    rules = [each for each in at_rest.RULES.all if each.clause == "invariant.nobody-stuck"]
    monitor = Monitor(rules, {})

    def put(kind: Kind, message: Any = None, data: dict[str, Any] | None = None) -> None:
        nonlocal n
        n += 1
        monitor.observe(Record(n, float(n), kind, MANAGER, EXEC, 0, message, data))

    n = 0
    put(Kind.RECV, Request(topics.EXEC_HELLO, {"service": EXEC}, 1, routes=HELLO))
    put(Kind.SEND, Response(topics.EXEC_HELLO, {}, matchtag=1, routes=HELLO))
    contexts: dict[str, dict[str, Any]] = {
        "exception": {"type": "cancel", "severity": 0},
        "release": {"ranks": "all", "final": True},
    }
    for name, context in SUBMITTED:
        put(Kind.EVENT, data={"id": JOB, "name": name, "context": context})
    for name in story:
        if name in SAID:
            put(Kind.RECV, SAID[name])
        else:
            put(Kind.EVENT, data={"id": JOB, "name": name, "context": contexts.get(name, {})})
    account = {"service": MANAGER, "scheduler": "ready", "exec": "", "jobs": []}
    put(Kind.STATE, data=account)
    return [each.text for each in monitor.violations]


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
