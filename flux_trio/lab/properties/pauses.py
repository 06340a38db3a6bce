"""Properties of a pause: the cores of an instance know the same of its jobs.

At a pause nobody has anything to do for a second, and no fault is at work. So each core has acted
on what another one has told it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.job_list.core import JobListCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.state import StateError
from flux_trio.formats import format_fluid
from flux_trio.lab.properties.property import at_each_pause
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.policies import POLICIES, Schedule
from flux_trio.policies.state import Grant, Job
from flux_trio.protocols import JobState
from flux_trio.services.policy_files import scheduler_policies

CoreT = TypeVar("CoreT")

ROUNDED_S: Final = 1.001
"""By how many seconds an expiration may be later than expected: one that was changed is rounded up
to whole seconds."""
LATE_S: Final = 1.0
"""The number of seconds during which no party had anything to do when a pause begins."""
EQUAL_S: Final = 0.001
"""Seconds. Two ends that differ by less are equal: sums of seconds since the Unix epoch are not
exact."""


def core_of(world: CoresWorld, name: str, kind: type[CoreT]) -> CoreT:
    """Return the core of a module that is there, with its type."""
    core = world.stations[name].core
    core = getattr(core, "part", core)
    assert isinstance(core, kind)
    return core


def names_of(jobids: Iterable[int]) -> str:
    """Return the ids of jobs as a text, in order."""
    return ", ".join(format_fluid(jobid, "f58") for jobid in sorted(jobids))


@at_each_pause("running")
def running_jobs_are_in_run(world: CoresWorld) -> str:
    """A job runs only while it is in RUN: it has no fatal exception. None of its nodes is down."""
    running = core_of(world, "job-exec", ExecCore).jobs.all_running
    manager = core_of(world, "job-manager", JobManagerCore)
    resource = core_of(world, "resource", ResourceCore)
    for each in running:
        name, resources = format_fluid(each.id, "f58"), each.resources
        job = manager.get(each.id)
        if job is None or job.state != JobState.RUN:
            state = "not active" if job is None else f"in {job.state.name}"
            return f"{name} runs, and for the job manager it is {state}"
        if resources is not None and (down := resources.ranks & resource.down):
            return f"{name} runs on nodes {down}, which are down"
    return ""


@at_each_pause("lost", "job-exec")
def no_job_runs_on_lost_nodes(world: CoresWorld) -> str:
    """The execution service ends the jobs on nodes that it knows to be down, whoever else is away.

    This is about simulated jobs, which end at once.
    """
    core = core_of(world, "job-exec", ExecCore)
    lost = [job.id for job in core.jobs.all_running if core.targets.lost_of(job)]
    return f"{names_of(lost)} runs on nodes that job-exec knows to be down" if lost else ""


@at_each_pause("held")
def scheduler_and_manager_agree_on_holders(world: CoresWorld) -> str:
    """The scheduler has granted resources to the jobs that have them, and to no other job."""
    scheduler = core_of(world, "sched", SchedCore)
    manager = core_of(world, "job-manager", JobManagerCore)
    held = {job.id for job in manager.active() if job.has_resources}
    if scheduler.holders == held:
        return ""
    jobs = names_of(held ^ scheduler.holders)
    return f"the job manager and the scheduler do not agree on whether {jobs} hold resources"


@at_each_pause("expires")
def all_agree_on_expirations(world: CoresWorld) -> str:
    """The scheduler and the execution service know the expiration that is in force for each job.

    It is that of the last resource-update, or that of R, and follows from the job's duration; the
    instance of a world has no end. A job in CLEANUP is left out: what the scheduler agreed to while
    the job ended is not in force. Times are compared as they were written: a setting of the clock
    has moved none of them.
    """
    grants = core_of(world, "sched", SchedCore).schedule.state.grants
    running = core_of(world, "job-exec", ExecCore).jobs.all_running
    known = {
        "the scheduler": {
            grant.id: 0.0 if math.isinf(grant.end) else grant.end - grant.stepped
            for grant in grants
        },
        "the execution service": {
            job.id: job.expiration for job in running if job.resources is not None
        },
    }
    manager = core_of(world, "job-manager", JobManagerCore)
    expirations_in_force = manager.expirations
    for jobid, by_duration in manager.planned.items():
        in_force = expirations_in_force[jobid]
        if abs(in_force - by_duration) > ROUNDED_S:
            name = format_fluid(jobid, "f58")
            return f"{name} expires at {in_force:f}, by its duration at {by_duration:f}"
        for party, expirations in known.items():
            expiration = expirations.get(jobid, in_force)
            if abs(expiration - in_force) > EQUAL_S:
                name = format_fluid(jobid, "f58")
                return f"{name} expires at {in_force:f}, for {party} at {expiration:f}"
    return ""


@at_each_pause("overdue", "job-exec")
def no_job_runs_beyond_its_time_limit(world: CoresWorld) -> str:
    """The execution service ends a job when its time limit has come, whoever else is away."""
    now = world.now - world.stations["job-exec"].stepped  # of that it was not told yet
    for job in core_of(world, "job-exec", ExecCore).jobs.all_running:
        if job.expiration and job.ends_at < now - LATE_S:
            name = format_fluid(job.id, "f58")
            return f"{name} runs, and its time limit was at {job.ends_at:f}"
    return ""


@at_each_pause("asked")
def scheduler_and_manager_agree_on_requests(world: CoresWorld) -> str:
    """The scheduler has the requests of the job manager, and no other one; no job on hold has one.

    27.cancel.10, 27.finalization.4, 33.admin.6
    """
    scheduler = core_of(world, "sched", SchedCore)
    manager = core_of(world, "job-manager", JobManagerCore)
    asked = manager.requested
    if differing := asked ^ scheduler.requested:
        jobs = names_of(differing)
        return f"the job manager and the scheduler do not agree on whether {jobs} is requested"
    jobs_asked = [job for jobid in sorted(asked) if (job := manager.get(jobid)) is not None]
    if held := [job.id for job in jobs_asked if job.priority == 0 or job.state != JobState.SCHED]:
        return f"{names_of(held)} is on hold or has left SCHED, and is requested"
    return ""


@at_each_pause("shown")
def job_list_shows_the_active_jobs(world: CoresWorld) -> str:
    """job-list lists each active job once, in the state that it has for the job manager."""
    shown = core_of(world, "job-list", JobListCore).active
    active = core_of(world, "job-manager", JobManagerCore).active()
    wanted = sorted((job.id, job.state) for job in active if job.state != JobState.NEW)
    if shown is None or sorted(shown) == wanted:
        return ""
    return f"job-list shows {_states(shown)}, and the active jobs are {_states(wanted)}"


def _states(jobs: Iterable[tuple[int, JobState]]) -> str:
    return (
        ", ".join(f"{format_fluid(jobid, 'f58')} {state.name}" for jobid, state in jobs) or "none"
    )


@at_each_pause("idle")
def no_resources_are_idle_that_a_job_waits_for(world: CoresWorld) -> str:
    """A scheduler that remembers no plan, with the same jobs and resources, would start no job.

    No job waits that can never run (28.shrink.7). A policy that `plans_ahead` is not asked: a job
    keeps its place there, and another one behind it may keep resources from it. With EASY, a head
    that waits for a grant without an end keeps the cores that it was given first, and may keep
    these from the jobs behind it.
    """
    schedule = core_of(world, "sched", SchedCore).schedule
    for job in schedule.state.queue:
        if note := schedule.shortfall(job.shape):
            return f"{format_fluid(job.id, 'f58')} waits, and can never run: {note}"
    sched, queues = scheduler_policies(world.config)
    if not schedule.state.queue or any(
        getattr(POLICIES[name], "plans_ahead", False) for name in (sched.policy, *queues.values())
    ):
        return ""
    decided = _anew(schedule, Schedule(sched.policy, queues)).decide(world.now)
    keeping = [head for head, start in decided.waiting.items() if start is None]
    idle = [
        job.id
        for job, _ in decided.started
        if not any(head.queue == job.queue and head.rank < job.rank for head in keeping)
    ]
    return f"{names_of(idle)} waits, and could start" if idle else ""


def _anew(schedule: Schedule, new: Schedule) -> Schedule:
    """Return `new`, which is empty, with the same jobs, resources and grants."""
    new.state.pool = schedule.state.pool.copy()
    for grant in schedule.state.grants:
        new.state.grants.add(Grant(grant.id, grant.allocation, grant.end, grant.stepped))
    new.state.grants.stepped = schedule.state.grants.stepped
    for job in schedule.state.queue:
        new.submit(Job(job.id, job.shape, job.duration, job.priority, job.t_submit, job.queue))
    return new


@at_each_pause("put-down")
def state_of_the_policy_can_be_put_down(world: CoresWorld) -> str:
    """A scheduler decides the same when its state was put down as JSON and taken up again."""
    core = core_of(world, "sched", SchedCore)
    after = world.make("sched")
    assert isinstance(after, SchedCore)
    try:
        text = msgspec.json.encode(core.dump())
        after.load(msgspec.json.decode(text))
        if msgspec.json.encode(after.dump()) != text:
            return f"the state is {text!r:.200}, and another one when it has been taken up"
    except StateError as error:
        return str(error)
    except msgspec.MsgspecError as error:
        return f"the state is not JSON: {error}"
    if started := [job.id for job, _ in after.schedule.decide(world.now).started]:
        return f"{format_fluid(started[0], 'f58')} waits, and starts when the state is taken up"
    return ""


AT_PAUSES: Final = (
    running_jobs_are_in_run,
    no_job_runs_on_lost_nodes,
    scheduler_and_manager_agree_on_holders,
    all_agree_on_expirations,
    no_job_runs_beyond_its_time_limit,
    scheduler_and_manager_agree_on_requests,
    job_list_shows_the_active_jobs,
    no_resources_are_idle_that_a_job_waits_for,
)
