"""What was promised holds through the end of a module; each property finds what breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.kvs.ops import Put
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.formats import job_key
from flux_trio.lab import (
    Crash,
    Duplicate,
    Exclude,
    JobPlan,
    NodesUp,
    OwnerRequest,
    Plan,
    Property,
    Reload,
    RestartInstance,
    SentMessage,
    When,
    run_plan,
)
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.across_restarts import (
    ACROSS_RESTARTS,
    Promises,
    Refusals,
    Restarts,
    Unfinished,
)
from flux_trio.lab.properties.consistency import plugins_have_left_all_jobs
from flux_trio.lab.properties.pauses import core_of
from flux_trio.lab.properties.property import Watcher
from flux_trio.lab.stories.running import PlanRun
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.jobs import Jobs
from flux_trio.messages import Response, topics
from flux_trio.protocols import JobEvent, JobState, Switches
from flux_trio.trace import Kind, Record

BUSY = str(Path(__file__).parents[1] / "planter" / "mistakes" / "busy.py")
WAITING = (JobPlan(run=90.0), JobPlan(run=90.0))


@contextmanager
def watched(
    property_: Property, plan: Plan, seconds: float
) -> Iterator[tuple[CoresWorld, Watcher]]:
    """A world that has been watched for so many seconds."""
    with PlanRun(plan, properties=[property_]) as plan_run:
        end = plan_run.world.passed + seconds
        while plan_run.world.passed < end and plan_run.step():
            pass
        yield plan_run.world, plan_run._watchers[property_]


def test_world_whose_modules_end_keeps_the_properties() -> None:
    asked = (
        OwnerRequest(1.0, "queue-stop"),
        OwnerRequest(2.0, "down", rank=1),
        OwnerRequest(3.0, "drain", rank=0),
        OwnerRequest(9.0, "undrain", rank=0),
    )
    faults = tuple(
        Reload(module, When("resource.drain", side=side, type=type_))
        for module, side, type_ in (
            ("job-manager", "send", "request"),
            ("resource", "send", "response"),
            ("job-exec", "recv", "response"),
        )
    )
    plan = Plan(1, 2, jobs=WAITING, actions=asked, faults=faults)
    assert run_plan(plan, properties=ACROSS_RESTARTS).problems == ()


@pytest.mark.parametrize("what", ["queue-stop", "queue-disable"])
def test_queue_that_forgets_what_was_answered_is_found(what: str) -> None:
    with watched(Promises, Plan(1, actions=(OwnerRequest(1.0, what),)), 5.0) as (world, watcher):
        watcher.pause()
        assert watcher.problem == ""
        queues = core_of(world, "job-manager", JobManagerCore)._parts.queues
        queues.by_name[None].switches = Switches()  # as at the first start
        watcher.pause()
        aspect = "started" if what == "queue-stop" else "enabled"
        assert watcher.problem.startswith(f"queue (anonymous) is {aspect}: expected False")


@pytest.mark.parametrize("what", ["down", "drain"])
def test_node_that_is_not_as_was_answered_is_found(what: str) -> None:
    with watched(Promises, Plan(1, 2, actions=(OwnerRequest(1.0, what, rank=1),)), 5.0) as (
        world,
        watcher,
    ):
        watcher.pause()
        assert watcher.problem == ""
        administration = core_of(world, "resource", ResourceCore)._administration
        marks = administration.downs if what == "down" else administration.drains
        marks._marks.clear()
        watcher.pause()
        assert watcher.problem.startswith("node 1 is d")


def test_requests_that_cross_and_nodes_that_are_excluded_promise_nothing() -> None:
    """Who comes first is not known to the client; an exclude undrains."""
    actions = (
        OwnerRequest(1.0, "drain", rank=0),
        OwnerRequest(2.0, "exclude", rank=0),
        OwnerRequest(1.0, "down", rank=1),
        OwnerRequest(1.0, "up", rank=1),
    )
    with watched(Promises, Plan(1, 2, actions=actions), 5.0) as (_, watcher):
        watcher.pause()
        assert watcher.problem == ""
        assert isinstance(watcher, Promises.check)
        assert not {("drained", 0), ("down", 1)} & watcher._sure.keys()
    faults = (Exclude((0,), When("resource.drain", nth=9)),)
    plan = Plan(1, 2, actions=(OwnerRequest(1.0, "drain", rank=0),), faults=faults)
    assert run_plan(plan, properties=[Promises]).problems == ()


def event(jobid: int, name: str) -> Record:
    return Record(1, 0.0, Kind.EVENT, "job-manager", data={"id": jobid, "name": name})


def test_node_that_each_start_takes_down_is_promised_nothing() -> None:
    faults = (
        NodesUp((1,), When("job-manager.submit")),
        RestartInstance(When("job-exec.start", type="response")),
    )
    plan = Plan(1, 2, jobs=(JobPlan(1.0),), faults=faults)
    assert run_plan(plan, properties=(Promises,)).problems == ()


def test_job_that_is_read_back_in_sched_without_flux_restart_is_found() -> None:
    plan = Plan(1, 1, cores=1, jobs=WAITING)
    with watched(Restarts, plan, 5.0) as (world, watcher):
        manager = core_of(world, "job-manager", JobManagerCore)
        (waiting,) = [each.id for each in manager.active() if each.state is JobState.SCHED]
        watcher.observe(event(waiting, JobEvent.ALLOC))
        assert watcher.problem == ""  # it is no other job manager
        world.crash("job-manager")
        watcher.observe(event(waiting, JobEvent.FLUX_RESTART))
        watcher.observe(event(waiting, JobEvent.PRIORITY))
        assert watcher.problem == ""
        world.load("job-manager")
        watcher.observe(event(waiting, JobEvent.PRIORITY))
        assert "its next event is priority, not flux-restart" in watcher.problem


def test_refused_job_that_is_stored_is_found() -> None:
    with watched(Refusals, Plan(1, jobs=WAITING[:1]), 5.0) as (world, watcher):
        (job,) = core_of(world, "job-manager", JobManagerCore).active()
        watcher.observe(event(job.id, JobEvent.INVALIDATE))
        watcher.observe(event(job.id, JobEvent.SUBMIT))  # it was submitted once more
        watcher.rest()
        assert watcher.problem == ""
        watcher.observe(event(job.id, JobEvent.INVALIDATE))
        watcher.rest()
        assert watcher.problem.endswith(".R is stored")


def test_stored_job_that_job_ingest_hears_is_refused_is_found() -> None:
    with watched(Refusals, Plan(1, jobs=WAITING[:1]), 5.0) as (world, watcher):
        (job,) = core_of(world, "job-manager", JobManagerCore).active()
        refused = Response(topics.JOB_SUBMIT, {"errors": [[job.id, "no"]]}, routes=("job-ingest",))
        watcher.observe(Record(1, 0.0, Kind.SEND, "job-manager", message=refused))
        watcher.rest()
        assert "was refused, and " in watcher.problem


def test_job_that_the_execution_service_forgets_is_found_while_the_manager_is_away() -> None:
    crash = Crash("job-manager", When("job-exec.start", type="response"), back=60.0)
    plan = Plan(1, jobs=WAITING[:1], faults=(crash,))
    with watched(Unfinished, plan, 5.0) as (world, watcher):
        assert "job-manager" not in world.stations
        watcher.pause()
        assert watcher.problem == ""
        core_of(world, "job-exec", ExecCore).jobs.by_id.clear()
        watcher.pause()
        assert "job-exec has forgotten" in watcher.problem


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_job_that_a_plugin_has_not_left_is_found(depth: Depth) -> None:
    plan = Plan(1, jobs=(JobPlan(), JobPlan()), plugins=(BUSY,), depth=depth)
    with PlanRun(plan) as plan_run:
        plan_run.play()
        assert plugins_have_left_all_jobs(plan_run.world) == ""
        core = plan_run.world.stations["job-manager"].core
        (busy,) = [each for each in core._host.plugins if each.name == "busy"]  # type: ignore[attr-defined]
        busy.tracker._in[5] = JobState.INACTIVE
        said = plugins_have_left_all_jobs(plan_run.world)
        assert "has not left its state for plugin busy" in said


def test_eventlog_with_an_event_twice_is_not_read() -> None:
    "A commit that comes twice is another property's."
    twice = Duplicate(SentMessage("kvs.commit", party="job-ingest"))
    outcome = run_plan(Plan(1, 2, jobs=(JobPlan(1.0),), faults=(twice,)), properties=(Restarts,))
    assert outcome.problems == ()


@pytest.mark.parametrize("text", ["no event\n", '{"timestamp":1.0,"name":"clean"'])
def test_eventlog_that_is_no_eventlog_is_not_read(text: str) -> None:
    """The property `stored` tells of it."""
    with watched(Restarts, Plan(1, 1, cores=1, jobs=WAITING), 5.0) as (world, watcher):
        manager = core_of(world, "job-manager", JobManagerCore)
        (waiting,) = [each.id for each in manager.active() if each.state is JobState.SCHED]
        world.crash("job-manager")
        world.disk.store.commit([Put(job_key(waiting, "eventlog"), text)])
        world.load("job-manager")
        watcher.observe(event(waiting, JobEvent.PRIORITY))
        assert watcher.problem == ""
        jobs = Jobs()
        jobs.observe(event(waiting, JobEvent.SUBMIT))
        assert jobs.read(world.disk.store) == set()
        assert jobs.active == {waiting}
