"""What is stored and what is listed are the same jobs; each property finds what breaks it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flux_trio.cores.kvs.ops import Append, Put
from flux_trio.lab import (
    Drop,
    JobPlan,
    OwnerRequest,
    Plan,
    RestartInstance,
    SentMessage,
    When,
    run_plan,
)
from flux_trio.lab.properties.consistency import (
    OURS,
    a_fatal_exception_ends_its_job,
    eventlogs_are_whole,
    stored_jobs_are_listed,
)
from flux_trio.lab.stories.running import play
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import topics

TWO = Plan(1, jobs=(JobPlan(), JobPlan(run=2.0)))
CANCELED = Plan(1, jobs=(JobPlan(run=90.0),), actions=(OwnerRequest(5.0, "cancel"),))


def played() -> CoresWorld:
    return play(TWO).world


def test_world_of_two_jobs_keeps_the_properties() -> None:
    world = played()
    assert stored_jobs_are_listed(world) == ""
    assert stored_jobs_are_listed(world) == ""  # it leaves nothing behind
    assert eventlogs_are_whole(world) == ""


def test_finished_job_that_is_not_listed_is_found() -> None:
    world = played()
    world.disk.store.commit([Put(f"ended.{1:016x}.{5:016x}", "[1000,1,1,1]")])
    assert "3 jobs are finished, 0 active, listed are ƒ" in stored_jobs_are_listed(world)


def test_list_that_is_not_answered_is_found() -> None:
    world = played()
    world.unload("job-list")
    assert "job-list.list: No service" in stored_jobs_are_listed(world)


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"timestamp":1.0,"name":"validate"}\n', "expected submit"), ("no event\n", "eventlog")],
)
def test_eventlog_that_does_not_begin_with_submit_is_found(text: str, said: str) -> None:
    world = played()
    key = next(key for key in world.disk.store.dir("job") if key.endswith(".eventlog"))
    world.disk.store.commit([Put(key, text)])
    assert said in eventlogs_are_whole(world)


def test_finished_job_that_is_among_the_active_ones_is_found() -> None:
    world = played()
    (ended, *_) = world.disk.store.dir("ended")
    world.disk.store.commit([Append(f"active.{ended[-16:]}", "")])
    assert "is finished, and" in eventlogs_are_whole(world)


@pytest.mark.parametrize(
    ("faults", "found"),
    [((), False), ((Drop(SentMessage(topics.JOB_EXCEPTION_EVENT, type="event")),), True)],
)
def test_job_that_runs_on_after_its_cancel_is_found(
    faults: tuple[Drop, ...], *, found: bool
) -> None:
    """Nobody tells the execution service of the cancel."""
    outcome = run_plan(replace(CANCELED, faults=faults))
    said = a_fatal_exception_ends_its_job(outcome.trace)
    assert ("runs on for 85" in said) is found


@pytest.mark.parametrize("seed", range(20))
def test_held_job_that_no_record_has_told_of_gets_an_urgency_at_last(seed: int) -> None:
    """The instance ends after ingest has stored the jobs, and before the job manager knows them."""
    stored = When(topics.KVS_COMMIT, side="send", type="response", nth=1)
    jobs = (JobPlan(urgency=0), JobPlan(urgency=0))
    plan = Plan(seed, jobs=jobs, faults=(RestartInstance(stored),))
    assert run_plan(plan, properties=OURS).problems == ()
