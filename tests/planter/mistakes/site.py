"""Setups of the worlds that mistakes are played in, and properties that the plugins of a site keep.

A site that relies on a limit has a property for it, as with `flux-trio fuzz --property`. The confs
are those of `worlds.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

from msgspec.structs import replace

from flux_trio.formats import Jobspec, job_key
from flux_trio.lab import CoresWorld, Plan, Setup, Watcher, watching
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.world.jobs import States
from flux_trio.lab.world.plugin_files import PluginFile
from flux_trio.protocols import JobEvent, JobState
from flux_trio.trace import Kind, Record
from tests.planter.mistakes.worlds import CLOSED, RUNNING_MAX, WINDOW, Worlds

PROPERTIES: Final = {
    "multifactor.py": (f"{__name__}:limit_is_kept",),
    "reservation.py": (f"{__name__}:window_is_kept",),
    "access.py": (f"{__name__}:queue_is_closed",),
}
"""By plugin: the properties of a user that its worlds have."""

COUNTED: Final = (JobState.PRIORITY, JobState.SCHED, JobState.RUN, JobState.CLEANUP)
"""The states of jobs that count against a limit."""
OVERRULES: Final = "plugin-wrong-priority"
"""The fault by which another plugin decides on a priority."""
WINDOW_END: Final = datetime.fromisoformat(WINDOW[1]).timestamp()


class _WithoutFaults(Setup):
    """A setup whose worlds have no faults."""

    def plan_of(self, seed: int) -> Plan:
        return replace(super().plan_of(seed), faults=())


def make_setup(
    worlds: Worlds, plugins: tuple[str | PluginFile, ...], properties: tuple[str, ...]
) -> Setup:
    """Return the setup of a world."""
    kind = Setup if worlds.has_faults else _WithoutFaults
    return kind(properties, plugins, cast(Depth, worlds.depth))


class _Events(Watcher):
    """Looks at the events of jobs."""

    def observe(self, record: Record) -> None:
        if record.kind == Kind.EVENT and record.data is not None:
            data = record.data
            self.event(record.t, data["id"], data["name"], data["context"])

    def event(self, t: float, jobid: int, name: str, context: Mapping[str, Any]) -> None:
        """Take the event `name` of a job."""
        raise NotImplementedError

    def jobspec_of(self, jobid: int) -> Jobspec:
        """Return the jobspec as it was submitted."""
        (raw,) = self.world.disk.store.lookup([job_key(jobid, "jobspec")])
        return Jobspec.parse(cast(str, raw).encode())


@watching("limit")
class limit_is_kept(_Events):  # noqa: N801 - read as a sentence
    """The user has at most as many running jobs as the accounts say, and some if others wait."""

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._states = States(lambda: world.disk.store)
        self._known: set[int] = set()

    def observe(self, record: Record) -> None:
        self._states.observe(record)
        super().observe(record)

    def event(self, t: float, jobid: int, name: str, context: Mapping[str, Any]) -> None:
        self._known.add(jobid)
        if name == JobEvent.ALLOC:
            running = self._running()
            if running > RUNNING_MAX:
                self.found(f"{running} jobs run or are being cleaned up, and {RUNNING_MAX} may")

    def pause(self) -> None:
        states = self._states_now()
        counted = states[JobState.PRIORITY] + states[JobState.SCHED] + self._running()
        if counted > RUNNING_MAX:
            self.found(f"{counted} jobs count, and {RUNNING_MAX} may")
        if states[JobState.DEPEND] and not any(states[each] for each in COUNTED):
            self.found(f"{states[JobState.DEPEND]} jobs wait for a limit, and no job counts")

    def _states_now(self) -> Counter[JobState | None]:
        return Counter(self._states.state_of(each) for each in self._known)

    def _running(self) -> int:
        """Return how many jobs have resources: one that is canceled while it waits has none."""
        jobs = map(self._states.job_of, self._known)
        return sum(job is not None and job.has_resources for job in jobs)


@watching("window")
class window_is_kept(_Events):  # noqa: N801 - read as a sentence
    """No job without a duration gets resources before the end of the window.

    One whose urgency was changed may: a job that is expedited has no priority of a plugin. So may
    all when a plugin that is asked later has given a priority of its own. At the end, when no job
    is held by its user, no job is left without a priority.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._changed: set[int] = set()
        self._held: set[int] = set()
        self._is_overruled = False

    def observe(self, record: Record) -> None:
        if record.kind == Kind.FAULT and record.data is not None:
            self._is_overruled |= record.data["type"] == OVERRULES
        super().observe(record)

    def event(self, t: float, jobid: int, name: str, context: Mapping[str, Any]) -> None:
        if name == JobEvent.PRIORITY and context["priority"] == 0:
            self._held.add(jobid)
        elif name in (JobEvent.PRIORITY, JobEvent.EXCEPTION, JobEvent.CLEAN):
            self._held.discard(jobid)
        if name in (JobEvent.JOBSPEC_UPDATE, JobEvent.URGENCY):
            self._changed.add(jobid)
        is_early = name == JobEvent.ALLOC and t < WINDOW_END and not self._is_overruled
        if is_early and jobid not in self._changed and not self.jobspec_of(jobid).duration:
            self.found(f"job {jobid} has no duration and runs into the window")

    def rest(self) -> None:
        if self._held:
            self.found(f"the window is over, and {len(self._held)} jobs have priority 0")


@watching("closed")
class queue_is_closed(_Events):  # noqa: N801 - read as a sentence
    """No job of a queue is accepted to which nobody has access."""

    def event(self, t: float, jobid: int, name: str, context: Mapping[str, Any]) -> None:
        if name == JobEvent.VALIDATE and self.jobspec_of(jobid).queue == CLOSED:
            self.found(f"job {jobid} is accepted in {CLOSED}")
