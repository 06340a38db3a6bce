"""Properties of a pause: facts about jobs that are kept twice are the same in both places.

A count is kept beside what it counts, and a core keeps what another one has told it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.formats import Jobspec, format_fluid
from flux_trio.lab.properties.pauses import core_of
from flux_trio.lab.properties.property import at_each_pause
from flux_trio.lab.world.cores_world import CoresWorld


@at_each_pause("counted", "job-manager")
def counts_of_queues_are_those_of_the_jobs(world: CoresWorld) -> str:
    """The job manager counts the active jobs of each queue in the states in which they are."""
    manager = core_of(world, "job-manager", JobManagerCore)
    wanted = Counter(
        (_queue_of(job.current_jobspec_bytes()), job.state.name.lower())
        for job in manager.active()
        if job.state.name
    )
    counts = {
        (queue, state): n
        for queue, states in manager.counts.items()
        for state, n in states.items()
        if n
    }
    return "" if counts == wanted else f"active are {dict(wanted)}, counted are {counts}"


def _queue_of(jobspec: bytes) -> str:
    """Return the queue of a job, "" for the anonymous one."""
    queue = Jobspec.parse(jobspec).attribute("system.queue")
    return queue if isinstance(queue, str) else ""


@at_each_pause("ranked")
def scheduler_and_manager_agree_on_priorities(world: CoresWorld) -> str:
    """A job that waits for resources has the same priority at the scheduler."""
    manager = core_of(world, "job-manager", JobManagerCore)
    for waiting in core_of(world, "sched", SchedCore).schedule.state.queue:
        job = manager.get(waiting.id)
        if job is not None and job.priority != waiting.priority:
            name = format_fluid(job.id, "f58")
            return f"{name} has the priority {job.priority}, at the scheduler {waiting.priority}"
    return ""


@at_each_pause("estimated")
def scheduler_and_manager_agree_on_estimates(world: CoresWorld) -> str:
    """A job shows the start that the scheduler has told last, and none that it has taken back."""
    told = core_of(world, "sched", SchedCore).estimates
    shown = {}
    for job in core_of(world, "job-manager", JobManagerCore).active():
        start = (job.annotations or {}).get("sched", {}).get("t_estimate")
        if start is not None:
            shown[job.id] = start
    return "" if shown == told else f"jobs show the starts {shown}, the scheduler has told {told}"


KEPT_TWICE: Final = (
    counts_of_queues_are_those_of_the_jobs,
    scheduler_and_manager_agree_on_priorities,
    scheduler_and_manager_agree_on_estimates,
)
