"""What the owner of a world asks for, at times and at messages; what is owed at a pause."""

from __future__ import annotations

import msgspec
import pytest

from flux_trio.formats import parse_eventlog
from flux_trio.lab import (
    ChangedKey,
    Crash,
    ErrorAnswer,
    Fault,
    JobPlan,
    NoObject,
    NotStreaming,
    OwnerRequest,
    Plan,
    RemovedKey,
    Repeated,
    SentMessage,
    When,
    run_plan,
)
from flux_trio.lab.catalogue.base import LieInPlaceOf
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.world_judge import WorldJudge
from flux_trio.lab.stories.running import PlanRun, play
from flux_trio.lab.world.cores_world import EPOCH, CoresWorld
from flux_trio.messages import Request, Response, topics
from flux_trio.protocols import JobEvent
from flux_trio.trace import Kind, Record

WHICH = SentMessage("*", type="response")
STARTED = When("job-exec.start", side="send", type="response")


def sent(trace: list[Record], topic: str) -> list[Record]:
    return [
        each
        for each in trace
        if each.kind == Kind.SEND
        and isinstance(each.message, Request)
        and each.message.topic == topic
    ]


def allocated(trace: list[Record]) -> list[float]:
    """When jobs got their resources, in seconds since the start of the world."""
    events = [each for each in trace if each.kind == Kind.EVENT and each.data is not None]
    return [each.t - EPOCH for each in events if (each.data or {})["name"] == JobEvent.ALLOC]


def test_request_at_a_message_is_made_when_the_message_comes() -> None:
    cancel = OwnerRequest(at=50.0, what="cancel", job=0, when=STARTED)
    trace = play(Plan(1, jobs=(JobPlan(at=3.0, run=90.0),), actions=(cancel,))).trace
    (asked,) = sent(trace, topics.JOB_RAISE)
    assert asked.t - EPOCH == 3.0
    started = (each for each in trace if getattr(each.message, "topic", "") == STARTED.topic)
    assert asked.n > next(each.n for each in started if isinstance(each.message, Response))


def test_request_at_a_message_that_never_comes_is_not_made() -> None:
    cancel = OwnerRequest(
        at=0.0, what="cancel", job=0, when=When("job-exec.start", nth=9, type="response")
    )
    assert sent(play(Plan(1, jobs=(JobPlan(),), actions=(cancel,))).trace, topics.JOB_RAISE) == []


def test_jobs_of_a_stopped_queue_wait_and_those_of_another_run() -> None:
    jobs = (JobPlan(at=5.0, queue=0), JobPlan(at=5.0, queue=1))
    actions = (OwnerRequest(1.0, "queue-stop", queue=1), OwnerRequest(20.0, "queue-start", queue=1))
    assert allocated(play(Plan(1, queues=2, jobs=jobs, actions=actions)).trace) == [5.0, 20.0]


def test_disabled_queue_takes_no_jobs_until_it_is_enabled() -> None:
    jobs = (JobPlan(at=5.0), JobPlan(at=25.0))
    actions = (OwnerRequest(1.0, "queue-disable"), OwnerRequest(20.0, "queue-enable"))
    assert allocated(play(Plan(1, jobs=jobs, actions=actions)).trace) == [25.0]


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_running_job_ends_when_its_new_duration_is_over(depth: Depth) -> None:
    """27.criteria.12: the scheduler is asked, and the execution service ends the job."""
    jobs = (JobPlan(run=90.0, limit=10.0), JobPlan(run=90.0, limit=10.0))
    actions = (
        OwnerRequest(3.0, "duration", job=0, seconds=30.0),
        OwnerRequest(4.0, "duration", job=1),
        OwnerRequest(5.0, "duration", job=1, seconds=5.5),
    )
    trace = play(Plan(1, jobs=jobs, actions=actions, depth=depth)).trace
    assert len(sent(trace, topics.SCHED_EXPIRATION)) == 3
    ends = [each.t - EPOCH for each in trace if (each.data or {}).get("name") == JobEvent.EXCEPTION]
    assert ends == pytest.approx([6.0, 30.0], abs=0.01)  # the scheduler is asked in whole seconds


def test_job_that_waits_is_requested_again_with_its_new_duration() -> None:
    jobs = (JobPlan(ntasks=8, run=10.0), JobPlan(at=1.0, ntasks=8, run=90.0))
    actions = (OwnerRequest(5.0, "duration", job=1, seconds=20.0),)
    trace = play(Plan(1, jobs=jobs, actions=actions)).trace
    assert len(sent(trace, topics.SCHED_ALLOC)) == 3
    assert sent(trace, topics.SCHED_EXPIRATION) == []
    ends = [each.t - EPOCH for each in trace if (each.data or {}).get("name") == JobEvent.FINISH]
    assert ends == pytest.approx([10.0, 30.0], abs=0.01)


@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize("faults", [(), (Crash("job-list", STARTED, 3.0),)])
def test_eventlog_is_followed_to_its_end(depth: Depth, faults: tuple[Fault, ...]) -> None:
    """A reader whose service ends begins anew with the next one."""
    actions = (OwnerRequest(0.5, "watch"), OwnerRequest(50.0, "watch", job=1))
    jobs = (JobPlan(run=10.0), JobPlan(run=1.0))
    plan = Plan(1, jobs=jobs, actions=actions, depth=depth, faults=faults)
    with PlanRun(plan, judge=WorldJudge()) as plan_run:
        assert plan_run.outcome(is_at_rest=plan_run.play()).problems == ()
        names = {
            place: [event.name for event in parse_eventlog(plan_run.owner.read[jobid])]
            for place, jobid in plan_run.owner.ids.items()
        }
        assert names[0] == names[1]
        assert (names[0][0], names[0][-1]) == (JobEvent.SUBMIT, JobEvent.CLEAN)
        plan_run.owner.read[plan_run.owner.ids[0]] += "{}\n"
        (problem,) = plan_run.outcome(is_at_rest=True).problems
        assert problem.startswith("read: ")


def test_request_that_waits_for_a_queue_is_answered_when_its_jobs_have_ended() -> None:
    jobs = (JobPlan(run=10.0, queue=0), JobPlan(run=20.0, queue=1), JobPlan(urgency=0, queue=0))
    actions = (
        OwnerRequest(1.0, "queue-idle", queue=0),
        OwnerRequest(1.0, "queue-drain", queue=1),
        OwnerRequest(1.0, "queue-drain"),
        OwnerRequest(30.0, "urgency", job=2),
    )
    trace = play(Plan(1, queues=2, jobs=jobs, actions=actions)).trace
    answers = [
        (each.message.topic, each.t - EPOCH)
        for each in trace
        if each.kind == Kind.SEND and isinstance(each.message, Response)
    ]
    at = [t for topic, t in answers if topic in (topics.JOB_IDLE, topics.JOB_DRAIN)]
    assert at == pytest.approx([10.0, 20.0, 31.0], abs=0.01)


def test_what_is_owed_at_a_pause_is_found() -> None:
    """A job that waits is canceled; the trace does not have what the scheduler is told then."""
    jobs = (JobPlan(ntasks=8, run=90.0), JobPlan(at=1.0, ntasks=8))
    found: list[tuple[float, list[str]]] = []

    class Deaf(WorldJudge):
        def observe(self, record: Record) -> None:
            is_answer = isinstance(record.message, Response) and record.t == EPOCH + 10.0
            if not is_answer and getattr(record.message, "topic", "") != topics.SCHED_CANCEL:
                super().observe(record)

        def pause(self, world: CoresWorld) -> None:
            super().pause(world)
            found.append((world.now - EPOCH, [each.clause for each in self.violations]))

    plan = Plan(1, jobs=jobs, actions=(OwnerRequest(10.0, "cancel", job=1),))
    with PlanRun(plan, judge=Deaf()) as plan_run:
        plan_run.run()
    early = [clauses for at, clauses in found if at < 10.0]
    assert early
    assert not any(early)
    assert "27.exceptions.2" in dict(found)[10.0]


def test_nothing_is_owed_at_a_pause_while_a_module_is_away() -> None:
    calm: list[bool] = []
    with PlanRun(Plan(1, jobs=(JobPlan(run=90.0),))) as plan_run:
        plan_run.world.pauses = lambda: calm.append(plan_run.world.is_calm)
        plan_run.world.later(50.0, plan_run.world.crash, "job-exec")
        plan_run.world.load_later("job-exec", 60.0)
        plan_run.run()
    assert calm[0]
    assert calm[-1]
    assert False in calm


@pytest.mark.parametrize(
    ("topic", "lie"),
    [
        (topics.INGEST_SUBMIT, RemovedKey(WHICH, "id")),
        (topics.INGEST_SUBMIT, ChangedKey(WHICH, "id", [])),
        (topics.INGEST_SUBMIT, NoObject(WHICH)),
        (topics.INGEST_SUBMIT, Repeated(WHICH)),
        (topics.INGEST_SUBMIT, ErrorAnswer(WHICH)),
        (topics.INFO_WATCH, RemovedKey(WHICH, "event")),
        (topics.INFO_WATCH, NoObject(WHICH)),
        (topics.INFO_WATCH, NotStreaming(WHICH)),
    ],
    ids=str,
)
def test_owner_does_not_raise_when_a_service_answers_wrongly(topic: str, lie: LieInPlaceOf) -> None:
    lie = msgspec.structs.replace(lie, which=SentMessage(topic, type="response"))
    plan = Plan(1, jobs=(JobPlan(run=2.0),), actions=(OwnerRequest(0.5, "watch"),), faults=(lie,))
    outcome = run_plan(plan)
    assert outcome.struck == (lie,)
    assert "error" not in outcome.broken
