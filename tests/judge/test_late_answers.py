"""What a service says late, of a start request that its successor has, is not its successor's."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.rules import rfc32_answers
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record

MANAGER, EXEC, EARLIER = topics.JOB_MANAGER, topics.JOB_EXEC, "job-exec-2"
JOB = 1
START = f"{EXEC}.{topics.START_METHOD}"
HELLO = Request(topics.EXEC_HELLO, {"service": EXEC}, 1, routes=(EXEC,))
ANSWERS = (("start", {}), ("finish", {"status": 0}), ("release", {"ranks": "0", "final": True}))


@pytest.mark.parametrize(
    ("party", "named"),
    [(EARLIER, []), (EXEC, ["32.start.3", "32.start.37"])],
    ids=["late", "twice"],
)
def test_service_is_not_accused_of_what_an_earlier_one_says_while_there_is_no_job_manager(
    party: str, named: list[str]
) -> None:
    monitor = Monitor(rfc32_answers.RULES.all, {})
    n = 0

    def put(kind: Kind, who: str, message: Any = None, data: dict[str, Any] | None = None) -> None:
        nonlocal n
        n += 1
        peer = EXEC if who == MANAGER else MANAGER
        monitor.observe(Record(n, float(n), kind, who, peer, 0, message, data))

    def answer(who: str) -> None:
        for kind, content in ANSWERS:
            said = {"id": JOB, "type": kind, "data": content}
            put(Kind.SEND, who, Response(START, said, routes=(MANAGER,)))

    start = Request(START, {"id": JOB, "userid": 1, "jobspec": {}, "reattach": True})
    put(Kind.RECV, MANAGER, HELLO)
    put(Kind.SEND, MANAGER, Response(topics.EXEC_HELLO, {}, matchtag=1, routes=(EXEC,)))
    put(Kind.SEND, MANAGER, start)
    put(Kind.RECV, EXEC, start)
    put(Kind.MODULE, MANAGER, data={"module": MANAGER, "what": "crashed"})
    answer(party)
    answer(EXEC)
    assert sorted({each.clause for each in monitor.violations}) == named
