"""Properties of a pause: the cores of an instance know the same of its jobs.

At a pause nobody has anything to do for a second, and no fault is at work. So each core has acted
on what another one has told it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.faults.properties import at_each_pause
from flux_trio.formats import format_fluid
from flux_trio.protocols import JobState

if TYPE_CHECKING:
    from flux_trio.faults.world import CoresWorld


def _core(world: CoresWorld, name: str) -> Any:
    core = world.stations[name].core
    return getattr(core, "part", core)


@at_each_pause("running")
def running_jobs_are_in_run(world: CoresWorld) -> str:
    """A job runs only while it is in RUN: it has no fatal exception. None of its nodes is down."""
    execution, manager = _core(world, "job-exec"), _core(world, "job-manager")
    resource = _core(world, "resource")
    assert isinstance(execution, ExecCore)
    assert isinstance(manager, JobManagerCore)
    assert isinstance(resource, ResourceCore)
    for jobid, resources in execution.running.items():
        name = format_fluid(jobid, "f58")
        job = manager.get(jobid)
        if job is None or job.state != JobState.RUN:
            state = "not active" if job is None else f"in {job.state.name}"
            return f"{name} runs, and for the job manager it is {state}"
        if resources is not None and (down := resources.ranks & resource.down):
            return f"{name} runs on nodes {down}, which are down"
    return ""


@at_each_pause("held")
def scheduler_and_manager_agree_on_holders(world: CoresWorld) -> str:
    """The scheduler has granted resources to the jobs that have them, and to no other job."""
    scheduler, manager = _core(world, "sched"), _core(world, "job-manager")
    assert isinstance(scheduler, SchedCore)
    assert isinstance(manager, JobManagerCore)
    held = {job.id for job in manager.active() if job.has_resources}
    if scheduler.holders == held:
        return ""
    jobs = ", ".join(format_fluid(jobid, "f58") for jobid in sorted(held ^ scheduler.holders))
    return f"the job manager and the scheduler do not agree on whether {jobs} hold resources"


AT_PAUSES: Final = (running_jobs_are_in_run, scheduler_and_manager_agree_on_holders)
