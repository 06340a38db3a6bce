"""A submit event may come a second time only if nothing more of the job is known to be stored."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.rules import rfc21_events
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Kind, Record

MANAGER, KVS = topics.JOB_MANAGER, topics.KVS
FAILED = Response(topics.KVS_COMMIT, "the disk fails", Errno.EIO, matchtag=1, routes=(MANAGER,))
STORED = Response(topics.KVS_COMMIT, {}, matchtag=1, routes=(MANAGER,))
ENDED = {"module": MANAGER, "what": "crashed"}
CLAUSES = ["21.events.3", "21.criteria.3"]


@pytest.mark.parametrize(
    ("answer", "ended", "named"),
    [(FAILED, ENDED, []), (None, ENDED, []), (STORED, ENDED, CLAUSES), (FAILED, None, CLAUSES)],
    ids=["refused", "unanswered", "stored", "same job manager"],
)
def test_submit_event_is_told_again_only_by_the_next_manager_if_nothing_is_stored(
    answer: Response | None, ended: dict[str, str] | None, named: list[str]
) -> None:
    rules = [each for each in rfc21_events.RULES.all if each.clause in CLAUSES]
    monitor = Monitor(rules, {})
    n = 0

    def put(kind: Kind, message: Any = None, data: dict[str, Any] | None = None) -> None:
        nonlocal n
        n += 1
        monitor.observe(Record(n, float(n), kind, MANAGER, KVS, 0, message, data))

    def log(*names: str) -> None:
        for name in names:
            put(Kind.EVENT, data={"id": 1, "name": name, "context": {}})

    put(Kind.RECV, Request(topics.EXEC_HELLO, {"service": "job-exec"}, 1, routes=("job-exec",)))
    put(Kind.SEND, Request(topics.KVS_COMMIT, {"ops": []}, 9))
    put(Kind.RECV, Response(topics.KVS_COMMIT, {}, matchtag=9, routes=(MANAGER,)))
    log("submit", "validate")
    put(Kind.SEND, Request(topics.KVS_COMMIT, {"ops": []}, 1))
    if answer is not None:
        put(Kind.RECV, answer)
    if ended is not None:
        put(Kind.MODULE, data=ended)
    log("submit", "validate")
    assert [each.clause for each in monitor.violations] == named
