"""21.criteria.7: only a turn that the end of the job manager cuts short leaves events unstored."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.rules import rfc21_events
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record

MANAGER, KVS = topics.JOB_MANAGER, topics.KVS
LOG = "job.0000.0000.0000.000{}.eventlog"


@pytest.mark.parametrize("is_cut_short", [True, False])
def test_events_are_unstored_only_if_their_job_manager_ended_between_two_commits_of_a_turn(
    is_cut_short: bool,
) -> None:
    monitor = Monitor(
        [each for each in rfc21_events.RULES.all if each.clause == "21.criteria.7"], {}
    )
    n = 0

    def put(kind: Kind, message: Any = None, data: dict[str, Any] | None = None) -> None:
        nonlocal n
        n += 1
        monitor.observe(Record(n, 1.0, kind, MANAGER, KVS, 0, message, data))

    def log(job: int, *names: str) -> None:
        for name in names:
            put(Kind.EVENT, data={"id": job, "name": name, "context": {}})

    def commit(job: int, *names: str) -> None:
        lines = "".join(f'{{"timestamp":1.0,"name":"{name}"}}\n' for name in names)
        put(Kind.SEND, Request(topics.KVS_COMMIT, {"ops": [["append", LOG.format(job), lines]]}, 1))

    put(Kind.RECV, Request(topics.EXEC_HELLO, {"service": "job-exec"}, 1, routes=("job-exec",)))
    for job in (1, 2):
        log(job, "submit", "validate")
    commit(1, "validate")  # job 2 is in the second commit
    if not is_cut_short:
        put(Kind.RECV, Response(topics.KVS_COMMIT, {}, matchtag=1, routes=(MANAGER,)))
    put(Kind.MODULE, data={"module": MANAGER, "what": "unloaded"})
    owed = [each.text for each in monitor.debts()]
    assert owed == (
        [] if is_cut_short else ["validate event of job 2 is in no eventlog: it was never stored"]
    )
    log(2, "submit", "validate", "depend")
    commit(2, "validate", "depend")
    assert monitor.violations == []
