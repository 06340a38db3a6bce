"""The queue of a job is the one that its last jobspec-update names, whatever is sent after that."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.rules import at_rest
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record

MANAGER, SCHED, OWNER = topics.JOB_MANAGER, topics.SCHED, "owner"
JOB = 1
STARTED, STOPPED = "batch", "debug"
CANCEL = 3
SUBMITTED = ("submit", "validate", "depend", "priority")
MOVED = ("jobspec-update", "priority")


@pytest.mark.parametrize(
    ("there", "back", "is_stuck"), [(STARTED, STOPPED, False), (STOPPED, STARTED, True)]
)
def test_a_job_that_was_moved_away_and_back_waits_for_the_queue_that_it_is_in(
    there: str, back: str, is_stuck: bool
) -> None:
    """Its request of the first queue waits for a commit: it is sent after the second update."""
    monitor = Monitor(at_rest.RULES.all, {})
    n = 0

    def put(kind: Kind, message: Any = None, data: dict[str, Any] | None = None) -> None:
        nonlocal n
        n += 1
        monitor.observe(Record(n, float(n), kind, MANAGER, SCHED, 0, message, data))

    def log(*names: str, queue: str = "") -> None:
        contexts: dict[str, dict[str, Any]] = {
            "priority": {"priority": 16},
            "jobspec-update": {"attributes.system.queue": queue},
        }
        for name in names:
            put(Kind.EVENT, data={"id": JOB, "name": name, "context": contexts.get(name, {})})

    put(Kind.CONFIG, data={"queues": {STARTED: {}, STOPPED: {}}})
    put(Kind.RECV, Request(topics.SCHED_HELLO, {}, 1, routes=(SCHED,)))
    put(Kind.RECV, Request(topics.SCHED_READY, {"mode": "unlimited"}, 2, routes=(SCHED,)))
    put(Kind.SEND, Response(topics.SCHED_READY, {"count": 0}, matchtag=2, routes=(SCHED,)))
    stop = {"name": STOPPED, "start": False}
    put(Kind.RECV, Request(topics.JOB_QUEUE_START, stop, 3, routes=(OWNER,)))
    put(Kind.SEND, Response(topics.JOB_QUEUE_START, {}, matchtag=3, routes=(OWNER,)))
    log(*SUBMITTED)
    log(*MOVED, queue=there)
    log(*MOVED, queue=back)
    asked = {"id": JOB, "priority": 16, "jobspec": {"attributes": {"system": {"queue": there}}}}
    put(Kind.SEND, Request(topics.SCHED_ALLOC, asked))
    put(Kind.SEND, Request(topics.SCHED_CANCEL, {"id": JOB}))
    put(Kind.RECV, Response(topics.SCHED_ALLOC, {"id": JOB, "type": CANCEL}, routes=(MANAGER,)))
    account = {"service": MANAGER, "scheduler": "ready", "outstanding": 0, "waiting": 0}
    put(Kind.STATE, data={**account, "jobs": [[JOB, "SCHED", ""]]})
    said = [each.clause for each in monitor.violations]
    assert said == (["invariant.nobody-stuck", "invariant.counters"] if is_stuck else [])
