"""Whoever raises an exception of a job before the scheduler leaves gives a reason for one after."""

from __future__ import annotations

from typing import Any, Final

import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.rules import rfc28_stream
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Kind, Record

MANAGER, RESOURCE, SCHED, JOB = topics.JOB_MANAGER, topics.RESOURCE, topics.SCHED, 1
FATAL: Final = {"id": JOB, "name": "exception", "context": {"type": "cancel", "severity": 0}}


class Trace:
    """A job that holds resources, and a scheduler that has acquired some."""

    def __init__(self) -> None:
        rules = [each for each in rfc28_stream.RULES.all if each.clause == "28.disconnect.4"]
        self.monitor = Monitor(rules, {})
        self._n = 0
        self.put(Kind.RECV, Request(topics.SCHED_HELLO, None, 1, routes=(SCHED,)))
        acquire = Request(topics.RESOURCE_ACQUIRE, {"group": "default"}, 2, STREAMING)
        self.put(Kind.RECV, _by(SCHED, acquire), party=RESOURCE)
        for name in ("submit", "validate", "depend", "priority", "alloc"):
            self.put(Kind.EVENT, data={"id": JOB, "name": name, "context": {"priority": 16}})

    def put(
        self, kind: Kind, message: Any = None, data: Any = None, *, party: str = MANAGER
    ) -> None:
        self._n += 1
        self.monitor.observe(Record(self._n, self._n / 1000, kind, party, "", 0, message, data))

    def tell(self, what: str) -> None:
        match what:
            case "raised" | "raised again":
                matchtag = 8 if what == "raised" else 9
                asked = Request(topics.JOB_RAISE, {"id": JOB}, matchtag)
                self.put(Kind.RECV, _by("owner", asked))
            case "answered" | "answered again":
                matchtag = 8 if what == "answered" else 9
                self.put(
                    Kind.SEND,
                    Response(topics.JOB_RAISE, None, matchtag=matchtag, routes=("owner",)),
                )
            case "exception":
                self.put(Kind.EVENT, data=FATAL)
            case "left":
                gone = Request(topics.disconnect_of(RESOURCE), None)
                self.put(Kind.RECV, _by(SCHED, Request(topics.JOB_MANAGER_DISCONNECT, None)))
                self.put(Kind.RECV, _by(SCHED, gone), party=RESOURCE)


def _by(sender: str, request: Request) -> Request:
    return Request(
        request.topic, request.payload, request.matchtag, request.flags, routes=(sender,)
    )


@pytest.mark.parametrize(
    ("story", "is_named"),
    [
        ("left, exception", True),
        ("raised, left, exception", False),
        ("left, raised, exception", False),
        ("raised, exception, answered, left, exception", True),
        ("raised, exception, answered, raised again, left, exception", False),
        ("raised, raised again, exception, answered, left, exception", False),
        ("raised, raised again, left, exception, exception", False),
        (
            "raised, raised again, exception, answered, exception, answered again, left, exception",
            True,
        ),
    ],
)
def test_exception_after_the_scheduler_left_has_a_reason(story: str, is_named: bool) -> None:
    trace = Trace()
    for what in story.split(", "):
        assert trace.monitor.violations == []
        trace.tell(what)
    assert [each.clause for each in trace.monitor.violations] == ["28.disconnect.4"] * is_named
