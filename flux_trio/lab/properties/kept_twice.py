"""Properties of a pause: facts about jobs that are kept twice are the same in both places.

A count is kept beside what it counts, and a core keeps what another one has told it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.job_index import ENDED, read_ended
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.formats import Jobspec, format_fluid
from flux_trio.jobtap.builtins.alloc_check import AllocCheck
from flux_trio.lab.properties.pauses import core_of
from flux_trio.lab.properties.property import at_each_pause, over_trace
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.protocols import JobEvent, JobState
from flux_trio.trace import Kind, Record


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
    estimates = core_of(world, "sched", SchedCore).estimates
    shown = {}
    for job in core_of(world, "job-manager", JobManagerCore).active():
        start = (job.annotations or {}).get("sched", {}).get("t_estimate")
        if start is not None:
            shown[job.id] = start
    return (
        ""
        if shown == estimates
        else f"jobs show the starts {shown}, the scheduler has told {estimates}"
    )


@at_each_pause("down")
def execution_and_resource_agree_on_nodes(world: CoresWorld) -> str:
    """The execution service takes the same nodes for down as the resource service."""
    known = core_of(world, "job-exec", ExecCore).targets.down
    down = core_of(world, "resource", ResourceCore).down
    return "" if known == down else f"nodes {down or 'none'} are down, for job-exec {known}"


@at_each_pause("history")
def history_has_all_jobs(world: CoresWorld) -> str:
    """The history has each job that is active or stored as ended, once, the latest first."""
    manager = core_of(world, "job-manager", JobManagerCore)
    told = manager.history
    if told is None:
        return ""
    store = world.disk.store
    wanted: dict[int, set[int]] = {}
    for job in manager.active():
        if job.state != JobState.NEW:
            wanted.setdefault(job.userid, set()).add(job.id)
    keys = store.dir(ENDED)
    for key, value in zip(keys, store.lookup(keys), strict=True):
        if isinstance(value, str):
            ended = read_ended(key, value)
            wanted.setdefault(ended.userid, set()).add(ended.id)
    lists = {userid: sorted(jobids, reverse=True) for userid, jobids in wanted.items()}
    found = {userid: jobids for userid, jobids in told.items() if jobids}
    return "" if found == lists else f"the history has {found}, and the jobs are {lists}"


@over_trace("alloc-check", "sched")
def alloc_check_ends_no_job(trace: Sequence[Record]) -> str:
    """The plugin alloc-check finds no two jobs with the same resources."""
    for record in trace:
        data = record.data or {}
        if record.kind != Kind.EVENT or data["name"] != JobEvent.EXCEPTION:
            continue
        if data["context"]["type"] == AllocCheck.name:
            name = format_fluid(data["id"], "f58")
            return f"alloc-check ends {name}, and no other job has what it has"
    return ""


KEPT_TWICE: Final = (
    counts_of_queues_are_those_of_the_jobs,
    scheduler_and_manager_agree_on_priorities,
    scheduler_and_manager_agree_on_estimates,
    execution_and_resource_agree_on_nodes,
    history_has_all_jobs,
    alloc_check_ends_no_job,
)
