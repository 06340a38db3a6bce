"""Whoever raises an exception of a job before the scheduler leaves gives a reason for one after."""

from __future__ import annotations

import pytest

from flux_trio.judge.rules import rfc28_stream
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Kind
from tests.support.judged import ByHand

RESOURCE, SCHED, JOB = topics.RESOURCE, topics.SCHED, 1


class Trace(ByHand):
    """A job that holds resources, and a scheduler that has acquired some."""

    def __init__(self) -> None:
        super().__init__(rfc28_stream.RULES.all, ["28.disconnect.4"], step_s=0.001)
        self.put(Kind.RECV, Request(topics.SCHED_HELLO, None, 1, routes=(SCHED,)))
        acquire = Request(topics.RESOURCE_ACQUIRE, {"group": "default"}, 2, STREAMING)
        self.put(Kind.RECV, _by(SCHED, acquire), party=RESOURCE)
        self.log("submit", "validate", "depend", "priority", "alloc")

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
                self.log("exception")
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
        assert trace.named == []
        trace.tell(what)
    assert trace.named == ["28.disconnect.4"] * is_named
