"""A request that was refused changes nothing (readings: Refused requests)."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.judge import Monitor, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Record
from tests.support.judged import hand_made, judge, made
from tests.support.scenarios import trace_of

SCHED, EXEC, MANAGER = "sched-theirs", "job-exec", topics.JOB_MANAGER
GUEST = 2
"""The rolemask of a guest."""


def asked(topic: str, content: dict[str, Any], tag: int, errnum: int, **more: Any) -> list[Any]:
    """A request of SCHED and its answer."""
    return [
        made(SCHED, MANAGER, Request(topic, content, tag, routes=(SCHED,), **more)),
        made(MANAGER, SCHED, Response(topic, None, errnum, tag, routes=(SCHED,), **more)),
    ]


HELLO = asked(topics.SCHED_HELLO, {}, 1, Errno.ENODATA, flags=STREAMING)


def facts_after(*messages: Any) -> Any:
    monitor = Monitor(ALL_RULES, load_clauses())
    for record in hand_made(*messages):
        monitor.observe(record)
    return monitor.facts


def test_a_second_ready_that_is_refused_sets_no_mode() -> None:
    """invariant.nobody-stuck: requests are sent without a limit, as before."""
    unlimited = asked(topics.SCHED_READY, {"mode": "unlimited"}, 2, 0)
    limited = asked(topics.SCHED_READY, {"mode": "limited", "limit": 1}, 3, Errno.EPROTO)
    facts = facts_after(*HELLO, *unlimited, *limited)
    assert (facts.is_ready, facts.limit) == (True, None)
    assert not facts_after(*HELLO, *limited).is_ready


def with_guest(hello: Request, errnum: int) -> list[Record]:
    """A story in which a guest says hello, too, and is answered, after the others are there."""
    trace = list(trace_of("everyday"))
    first = next(r for r in trace if getattr(r.message, "topic", "") == "job-exec.start")
    answer = Response(hello.topic, "for the owner alone", errnum, hello.matchtag, 0, 0, 0, ("g",))
    n, t = first.n, first.t
    added = [
        Record(n, t, "send", "g", MANAGER, 0, hello),
        Record(n + 1, t, "recv", MANAGER, "g", n, hello),
        Record(n + 2, t, "send", MANAGER, "g", 0, answer),
        Record(n + 3, t, "recv", "g", MANAGER, n + 2, answer),
    ]
    later = [
        msgspec.structs.replace(
            r, n=r.n + 4 if r.n >= n else r.n, ref=r.ref + 4 if r.ref >= n else r.ref
        )
        for r in trace
    ]
    at = next(at for at, each in enumerate(later) if each.n > n)
    return [*later[:at], *added, *later[at:]]


def test_the_hello_of_a_guest_is_no_hello() -> None:
    """32.hello.2, 32.hello.6: an execution service of a guest is refused, rightly."""
    hello = Request(topics.EXEC_HELLO, {"service": "mine"}, 1, rolemask=GUEST, routes=("g",))
    assert [
        each.clause for each in judge(with_guest(hello, Errno.EPERM), ALL_RULES).violations
    ] == []


def test_the_sched_hello_of_a_guest_is_no_hello() -> None:
    """27.background.1, 27.free.1: the scheduler that is there stays the scheduler."""
    hello = Request(topics.SCHED_HELLO, None, 1, STREAMING, rolemask=GUEST, routes=("g",))
    assert [
        each.clause for each in judge(with_guest(hello, Errno.EPERM), ALL_RULES).violations
    ] == []


def test_an_answer_to_no_request_is_a_reason_to_refuse_a_ready() -> None:
    """27.ready.11: the job manager has suspended scheduling, and waits for another hello."""
    stray = Response(topics.SCHED_ALLOC, {"id": 7, "type": 0, "R": {}})
    ready = asked(topics.SCHED_READY, {"mode": "unlimited"}, 2, Errno.EPROTO)
    trace = hand_made(*HELLO, made(SCHED, MANAGER, stray), *ready)
    found = {each.clause for each in judge(trace, ALL_RULES, cut=True).violations}
    assert "27.ready.11" not in found
