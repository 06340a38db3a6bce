"""A moved job is in the queue of its last jobspec-update; a request is for the queue that it names.

A request waits for a commit: it may be sent after the next update of its job.
"""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.engine.rule import Rule
from flux_trio.judge.rules import at_rest, rfc27_criteria
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record

MANAGER, SCHED, OWNER = topics.JOB_MANAGER, topics.SCHED, "owner"
STARTED, STOPPED = "batch", "debug"
CANCEL = 3
SUBMITTED = ("submit", "validate", "depend", "priority")
MOVED = ("jobspec-update", "priority")


class Story:
    """The scheduler is ready; one of two queues is stopped. Job 1 has the greatest priority."""

    def __init__(self, *rules: Rule) -> None:
        self.monitor = Monitor(rules, {})
        self.n = 0
        self.put(Kind.CONFIG, data={"queues": {STARTED: {}, STOPPED: {}}})
        self.put(Kind.RECV, Request(topics.SCHED_HELLO, {}, 1, routes=(SCHED,)))
        self.put(Kind.RECV, Request(topics.SCHED_READY, {"mode": "unlimited"}, 2, routes=(SCHED,)))
        ready = Response(topics.SCHED_READY, {"count": 0}, matchtag=2, routes=(SCHED,))
        self.put(Kind.SEND, ready)
        self.switch(3, start=False)

    def put(self, kind: Kind, message: Any = None, data: dict[str, Any] | None = None) -> None:
        self.n += 1
        self.monitor.observe(Record(self.n, 1.0, kind, MANAGER, SCHED, 0, message, data))

    def switch(self, matchtag: int, *, start: bool) -> None:
        asked = {"name": STOPPED, "start": start}
        self.put(Kind.RECV, Request(topics.JOB_QUEUE_START, asked, matchtag, routes=(OWNER,)))
        answer = Response(topics.JOB_QUEUE_START, {}, matchtag=matchtag, routes=(OWNER,))
        self.put(Kind.SEND, answer)

    def log(self, job: int, *names: str, queue: str = "") -> None:
        contexts: dict[str, dict[str, Any]] = {
            "priority": {"priority": 17 - job},
            "jobspec-update": {"attributes.system.queue": queue},
        }
        for name in names:
            context = contexts.get(name, {})
            self.put(Kind.EVENT, data={"id": job, "name": name, "context": context})

    def ask(self, job: int, queue: str) -> None:
        jobspec = {"attributes": {"system": {"queue": queue}}}
        asked = {"id": job, "priority": 17 - job, "jobspec": jobspec}
        self.put(Kind.SEND, Request(topics.SCHED_ALLOC, asked))


@pytest.mark.parametrize(
    ("there", "back", "is_stuck"), [(STARTED, STOPPED, False), (STOPPED, STARTED, True)]
)
def test_a_job_that_was_moved_away_and_back_waits_for_the_queue_that_it_is_in(
    there: str, back: str, is_stuck: bool
) -> None:
    story = Story(*at_rest.RULES.all)
    story.log(1, *SUBMITTED)
    story.log(1, *MOVED, queue=there)
    story.log(1, *MOVED, queue=back)
    story.ask(1, there)
    story.put(Kind.SEND, Request(topics.SCHED_CANCEL, {"id": 1}))
    canceled = Response(topics.SCHED_ALLOC, {"id": 1, "type": CANCEL}, routes=(MANAGER,))
    story.put(Kind.RECV, canceled)
    account = {"service": MANAGER, "scheduler": "ready", "outstanding": 0, "waiting": 0}
    story.put(Kind.STATE, data={**account, "jobs": [[1, "SCHED", ""]]})
    said = [each.clause for each in story.monitor.violations]
    assert said == (["invariant.nobody-stuck", "invariant.counters"] if is_stuck else [])


@pytest.mark.parametrize(("named", "is_broken"), [(STARTED, False), (STOPPED, True)])
def test_a_request_for_another_queue_did_not_wait_for_the_start_of_this_one(
    named: str, is_broken: bool
) -> None:
    """27.criteria.5: job 2 is in the stopped queue again when its request is sent."""
    rules = [each for each in rfc27_criteria.RULES.all if each.clause == "27.criteria.5"]
    story = Story(*rules)
    for job in (1, 2):
        story.log(job, *SUBMITTED)
        story.log(job, *MOVED, queue=STOPPED)
    story.switch(4, start=True)
    story.ask(2, named)
    story.ask(1, STOPPED)
    assert bool(story.monitor.violations) is is_broken
