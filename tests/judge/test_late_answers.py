"""What a service says late, of a start request that its successor has, is not its successor's."""

from __future__ import annotations

import pytest

from flux_trio.judge.rules import rfc32_answers
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind
from tests.support.judged import ByHand

MANAGER, EXEC, EARLIER = topics.JOB_MANAGER, topics.JOB_EXEC, "job-exec-2"
JOB = 1
START = f"{EXEC}.{topics.START_METHOD}"
HELLO = Request(topics.EXEC_HELLO, {"service": EXEC}, 1, routes=(EXEC,))
ANSWERS = (("start", {}), ("finish", {"status": 0}), ("release", {"ranks": "0", "final": True}))


@pytest.mark.parametrize(
    ("party", "named"), [(EARLIER, []), (EXEC, ["32.start.37"])], ids=["late", "twice"]
)
def test_service_is_not_accused_of_what_an_earlier_one_says_while_there_is_no_job_manager(
    party: str, named: list[str]
) -> None:
    told = ByHand(rfc32_answers.RULES.all)
    start = Request(START, {"id": JOB, "userid": 1, "jobspec": {}, "reattach": True})
    told.put(Kind.RECV, HELLO)
    told.put(Kind.SEND, Response(topics.EXEC_HELLO, {}, matchtag=1, routes=(EXEC,)))
    told.put(Kind.SEND, start)
    told.put(Kind.RECV, start, party=EXEC)
    told.put(Kind.MODULE, data={"module": MANAGER, "what": "crashed"})
    for who in (party, EXEC):
        for kind, content in ANSWERS:
            said = {"id": JOB, "type": kind, "data": content}
            told.put(Kind.SEND, Response(START, said, routes=(MANAGER,)), party=who)
    assert sorted(set(told.named)) == named
