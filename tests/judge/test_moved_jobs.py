"""A moved job is in the queue of its last jobspec-update; a request is for the queue that it names.

A request waits for a commit: it may be sent after the next update of its job.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from flux_trio.judge.engine.rule import Rule
from flux_trio.judge.rules import at_rest, rfc27_criteria
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind
from tests.support.judged import ByHand

MANAGER, SCHED, OWNER = topics.JOB_MANAGER, topics.SCHED, "owner"
STARTED, STOPPED = "batch", "debug"
CANCEL = 3


class Story(ByHand):
    """The scheduler is ready; one of two queues is stopped. Job 1 has the greatest priority."""

    def __init__(self, rules: Iterable[Rule], *clauses: str) -> None:
        super().__init__(rules, clauses, step_s=0.0)
        self.put(Kind.CONFIG, data={"queues": {STARTED: {}, STOPPED: {}}})
        self.put(Kind.RECV, Request(topics.SCHED_HELLO, {}, 1, routes=(SCHED,)))
        self.put(Kind.RECV, Request(topics.SCHED_READY, {"mode": "unlimited"}, 2, routes=(SCHED,)))
        ready = Response(topics.SCHED_READY, {"count": 0}, matchtag=2, routes=(SCHED,))
        self.put(Kind.SEND, ready)
        self.switch(3, start=False)

    def switch(self, matchtag: int, *, start: bool, queue: str = STOPPED) -> None:
        self.ask_to_switch(matchtag, start=start, queue=queue)
        answer = Response(topics.JOB_QUEUE_START, {}, matchtag=matchtag, routes=(OWNER,))
        self.put(Kind.SEND, answer)

    def ask_to_switch(self, matchtag: int, *, start: bool, queue: str | None) -> None:
        """Without `queue` all of them are meant."""
        asked = {"name": queue, "all": queue is None, "start": start}
        self.put(Kind.RECV, Request(topics.JOB_QUEUE_START, asked, matchtag, routes=(OWNER,)))

    def submit(self, job: int) -> None:
        self.log("submit", "validate", "depend", job=job)
        self.log("priority", job=job, priority=17 - job)

    def move(self, job: int, queue: str) -> None:
        self.log("jobspec-update", job=job, **{"attributes.system.queue": queue})
        self.log("priority", job=job, priority=17 - job)

    def ask(self, job: int, queue: str) -> None:
        jobspec = {"attributes": {"system": {"queue": queue}}}
        asked = {"id": job, "priority": 17 - job, "jobspec": jobspec}
        self.put(Kind.SEND, Request(topics.SCHED_ALLOC, asked), peer=SCHED)


@pytest.mark.parametrize(
    ("there", "back", "is_stuck"), [(STARTED, STOPPED, False), (STOPPED, STARTED, True)]
)
def test_a_job_that_was_moved_away_and_back_waits_for_the_queue_that_it_is_in(
    there: str, back: str, is_stuck: bool
) -> None:
    story = Story(at_rest.RULES.all)
    story.submit(1)
    story.move(1, there)
    story.move(1, back)
    story.ask(1, there)
    story.put(Kind.SEND, Request(topics.SCHED_CANCEL, {"id": 1}))
    canceled = Response(topics.SCHED_ALLOC, {"id": 1, "type": CANCEL}, routes=(MANAGER,))
    story.put(Kind.RECV, canceled)
    account = {"service": MANAGER, "scheduler": "ready", "outstanding": 0, "waiting": 0}
    story.put(Kind.STATE, data={**account, "jobs": [[1, "SCHED", ""]]})
    stuck = ["invariant.nobody-stuck", "invariant.counters"]
    assert story.named == (stuck if is_stuck else [])


@pytest.mark.parametrize(("named", "is_broken"), [(STARTED, False), (STOPPED, True)])
def test_a_request_for_another_queue_did_not_wait_for_the_start_of_this_one(
    named: str, is_broken: bool
) -> None:
    """27.criteria.5: job 2 is in the stopped queue again when its request is sent."""
    story = Story(rfc27_criteria.RULES.all, "27.criteria.5")
    for job in (1, 2):
        story.submit(job)
        story.move(job, STOPPED)
    story.switch(4, start=True)
    story.ask(2, named)
    story.ask(1, STOPPED)
    assert bool(story.named) is is_broken


@pytest.mark.parametrize(("starts", "is_broken"), [([None], True), ([STARTED, None], False)])
def test_a_queue_whose_start_is_not_answered_may_be_started_before_the_next_request(
    starts: list[str | None], is_broken: bool
) -> None:
    """27.criteria.5: the job manager acts on two requests in one turn, one after the other."""
    story = Story(rfc27_criteria.RULES.all, "27.criteria.5")
    story.switch(4, start=False, queue=STARTED)
    for job, queue in ((1, STOPPED), (2, STARTED)):
        story.submit(job)
        story.move(job, queue)
    for matchtag, queue in enumerate(starts, 5):
        story.ask_to_switch(matchtag, start=True, queue=queue)
    story.ask(2, STARTED)
    story.ask(1, STOPPED)
    assert bool(story.named) is is_broken
