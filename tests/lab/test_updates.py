"""The property that a job gets resources that were requested with its present jobspec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.lab import (
    AlsoAsked,
    ChangedKey,
    Fault,
    JobPlan,
    OwnerRequest,
    Plan,
    SentMessage,
    When,
    run_plan,
)
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.properties.updates import Requested
from flux_trio.lab.stories.running import PlanRun
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record

DURATION = "attributes.system.duration"
JOBSPEC = {"attributes": {"system": {"duration": 10.0}}}
GRANTED = When("sched.alloc", type="response")
UPDATED = (OwnerRequest(0.0, "duration", seconds=60.0, when=GRANTED),)


@pytest.fixture
def watcher() -> Iterator[Any]:
    with PlanRun(Plan(1), properties=[Requested]) as plan_run:
        yield plan_run._watchers[Requested]


def sent(topic: str, **more: Any) -> Record:
    return Record(1, 0.0, Kind.SEND, "job-manager", message=Request(topic, {"id": 5, **more}))


def event(name: str, **context: Any) -> Record:
    data = {"id": 5, "name": name, "context": context}
    return Record(2, 0.0, Kind.EVENT, "job-manager", data=data)


def observe_all(watcher: Any, records: tuple[Record, ...]) -> None:
    for n, record in enumerate(records, 1):
        watcher.observe(msgspec.structs.replace(record, n=n))


UPDATE = event("jobspec-update", **{DURATION: 60.0})
ALLOC = event("alloc")
REQUEST = sent(topics.SCHED_ALLOC, jobspec=JOBSPEC)
GRANT = Record(
    2, 0.0, Kind.RECV, "job-manager", message=Response(topics.SCHED_ALLOC, {"id": 5, "type": 0})
)
ASKED_TO_UPDATE = Record(
    2, 0.0, Kind.RECV, "job-manager", message=Request(topics.JOB_UPDATE, {"id": 5})
)
TURN = (sent(topics.KVS_LOOKUP), ASKED_TO_UPDATE)
GONE = Record(3, 0.0, Kind.MODULE, "broker", data={"module": "job-manager", "what": "crashed"})


def test_resources_for_an_older_jobspec_are_found(watcher: Any) -> None:
    observe_all(watcher, (REQUEST, GRANT, *TURN, UPDATE, ALLOC))
    assert watcher.problem.endswith(f"were requested with {DURATION} 10.0, and it is 60.0")


def test_resources_for_a_request_that_was_not_canceled_by_the_next_pause_are_found(
    watcher: Any,
) -> None:
    observe_all(watcher, (REQUEST, UPDATE))
    watcher.pause()
    observe_all(watcher, (GRANT, ALLOC))
    assert watcher.problem.endswith(f"were requested with {DURATION} 10.0, and it is 60.0")


def test_request_that_was_canceled_by_the_next_pause_is_in_order(watcher: Any) -> None:
    observe_all(watcher, (REQUEST, UPDATE, sent(topics.SCHED_CANCEL)))
    watcher.pause()
    observe_all(watcher, (GRANT, ALLOC))
    assert watcher.problem == ""


@pytest.mark.parametrize(
    "records",
    [
        (REQUEST, ALLOC),
        (REQUEST, ALLOC, UPDATE),  # later it is a matter of the expiration
        (UPDATE, ALLOC),  # of a plugin
        (REQUEST, UPDATE, GRANT, ALLOC),  # they have crossed
        (REQUEST, GRANT, UPDATE, ALLOC),  # the update may have been received first
        (REQUEST, GRANT, *TURN, UPDATE, sent(topics.SCHED_CANCEL), ALLOC),
        (REQUEST, GRANT, *TURN, UPDATE, GONE, REQUEST, ALLOC),  # the update was never stored
    ],
)
def test_other_resources_are_in_order(watcher: Any, records: tuple[Record, ...]) -> None:
    observe_all(watcher, records)
    assert watcher.problem == ""


@pytest.mark.parametrize(
    "record",
    [
        Record(2, 0.0, kind, "job-manager", message=message(topic, payload))
        for topic in (topics.SCHED_ALLOC, topics.SCHED_CANCEL)
        for payload in ({}, {"id": []}, {"id": 5}, {"id": {}, "type": 0}, "no object", None)
        for kind, message in ((Kind.SEND, Request), (Kind.RECV, Response))
    ],
)
def test_messages_without_what_they_should_have_are_not_read(watcher: Any, record: Record) -> None:
    observe_all(watcher, (REQUEST, record, ALLOC))
    assert watcher.problem == ""


def test_request_of_a_client_is_not_one_of_the_job_manager(watcher: Any) -> None:
    observe_all(watcher, (UPDATE, msgspec.structs.replace(REQUEST, party="client"), ALLOC))
    assert watcher.problem == ""


@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize(
    "fault",
    [
        ChangedKey(SentMessage(topics.SCHED_ALLOC, type="response"), "id", []),
        ChangedKey(SentMessage(topics.SCHED_ALLOC, type="response"), "id", {}),
        AlsoAsked(SentMessage("job-exec.start", type="response"), topics.SCHED_ALLOC, {}),
    ],
    ids=str,
)
def test_party_that_sends_no_job_id_is_the_only_one_blamed(fault: Fault, depth: Depth) -> None:
    outcome = run_plan(Plan(1, jobs=(JobPlan(),), faults=(fault,), depth=depth), properties=OURS)
    assert outcome.problems == ()
    assert outcome.excused != ()


def test_update_that_crosses_a_grant_lets_the_job_be_requested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = [
        Plan(seed, jobs=(JobPlan(run=90.0, limit=10.0),), actions=UPDATED) for seed in range(9)
    ]
    for plan in plans:
        assert run_plan(plan, properties=[Requested]).problems == ()
    monkeypatch.setattr(SchedulerSide, "jobspec_changed", lambda *_: None)
    broken = [run_plan(plan, properties=[Requested]).broken for plan in plans]
    assert any("current" in each for each in broken)


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_request_that_waits_on_with_an_older_jobspec_is_found(
    monkeypatch: pytest.MonkeyPatch, depth: Depth
) -> None:
    """The job waits for seconds when it is updated, and nobody cancels its request."""
    jobs = (JobPlan(run=5.0), JobPlan(run=5.0, limit=10.0))
    updated = (OwnerRequest(1.0, "duration", job=1, seconds=60.0),)
    plan = Plan(1, 1, cores=1, jobs=jobs, actions=updated, depth=depth)
    assert run_plan(plan, properties=[Requested]).problems == ()
    monkeypatch.setattr(SchedulerSide, "jobspec_changed", lambda *_: None)
    rerank = lambda side, job: side.requests.rerank(job)  # noqa: E731 - a method
    monkeypatch.setattr(SchedulerSide, "_reconsider_sent", rerank)
    assert "current" in run_plan(plan, properties=[Requested]).broken
