"""A property of the job manager: without another plugin, a job's priority is its urgency."""

from __future__ import annotations

from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.formats import format_fluid
from flux_trio.jobtap.builtins import PriorityDefault
from flux_trio.lab.properties.pauses import core_of
from flux_trio.lab.properties.property import Watcher, watching
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.plugins import PluginsOfWorld
from flux_trio.lab.world.waiting import is_about_priority
from flux_trio.protocols import PRIORITY_MAX, URGENCY_EXPEDITE, JobState
from flux_trio.trace import Kind, Record


@watching("priority")
class Priorities(Watcher):
    """The priority of a job that waits follows from its urgency, unless a plugin says another one.

    It is 0 for a job that is held, and the greatest for one that is expedited. If a plugin of a
    file, or a fault, has a say in priorities, the jobs are not looked at any more.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._has_others = False

    def observe(self, record: Record) -> None:
        """Note whether another plugin, or a fault, has answered with a priority."""
        data = record.data
        if data is None:
            return
        if record.kind == Kind.HOOK:
            is_answered = data["result"] is not None and is_about_priority(data["hook"])
            if is_answered and data["plugin"] != PriorityDefault.name:
                self._has_others = True
        elif record.kind == Kind.FAULT and is_about_priority(data.get("hook") or ""):
            self._has_others = True

    def pause(self) -> None:
        """Compare the priorities of jobs that wait for resources with their urgencies."""
        if self._has_others or _has_set_priority(self.world):
            self._has_others = True
            return
        for job in core_of(self.world, "job-manager", JobManagerCore).active():
            wanted = PRIORITY_MAX if job.urgency == URGENCY_EXPEDITE else job.urgency
            if job.state == JobState.SCHED and job.priority != wanted:
                name = format_fluid(job.id, "f58")
                self.found(f"{name} has the urgency {job.urgency}, and the priority {job.priority}")


def _has_set_priority(world: CoresWorld) -> bool:
    """Whether a plugin of a file has set a priority; at depth stack, whether one may have."""
    plugins = getattr(world.stations["job-manager"].core, "beside", None)
    if isinstance(plugins, PluginsOfWorld):
        return plugins.has_set_priority
    return bool(world.plugins)
