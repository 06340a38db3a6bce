"""Setups of the worlds that mistakes are played in, and properties that the plugins of a site keep.

A site that relies on a limit has a property for it, as with `flux-trio fuzz --property`. The confs
are those of `worlds.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, cast

from msgspec.structs import replace

from flux_trio.faults import CoresWorld, Plan, Setup, Watcher, watching
from flux_trio.faults.jobs import States
from flux_trio.faults.plan import Depth, PluginFile
from flux_trio.formats import Jobspec, job_key
from flux_trio.protocols import JobEvent, JobState
from flux_trio.trace import Kind, Record
from tests.mistakes.worlds import CLOSED, RUNNING_MAX, WINDOW, Worlds

PROPERTIES: Final = {
    "multifactor.py": (f"{__name__}:limit_is_kept",),
    "reservation.py": (f"{__name__}:window_is_kept",),
    "access.py": (f"{__name__}:queue_is_closed",),
}
"""By plugin: the properties of a user that its worlds have."""

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
            self.event(record.t, record.data["id"], record.data["name"])

    def event(self, t: float, jobid: int, name: str) -> None:
        """Take the event `name` of a job."""
        raise NotImplementedError

    def jobspec_of(self, jobid: int) -> Jobspec:
        """Return the jobspec as it was submitted."""
        (raw,) = self.world.disk.store.lookup([job_key(jobid, "jobspec")])
        return Jobspec.parse(cast(str, raw).encode())


@watching("limit")
class limit_is_kept(_Events):  # noqa: N801 - read as a sentence
    """The user has at most as many running jobs as the accounts say."""

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._states = States(lambda: world.disk.store)
        self._known: set[int] = set()

    def observe(self, record: Record) -> None:
        self._states.observe(record)
        super().observe(record)

    def event(self, t: float, jobid: int, name: str) -> None:
        self._known.add(jobid)
        if name == JobEvent.ALLOC:
            running = [each for each in self._known if self._states.state_of(each) == JobState.RUN]
            if len(running) > RUNNING_MAX:
                self.found(f"{len(running)} jobs run, and {RUNNING_MAX} may")


@watching("window")
class window_is_kept(_Events):  # noqa: N801 - read as a sentence
    """No job without a duration gets resources before the end of the window.

    One whose urgency was changed may: a job that is expedited has no priority of a plugin.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._changed: set[int] = set()

    def event(self, t: float, jobid: int, name: str) -> None:
        if name in (JobEvent.JOBSPEC_UPDATE, JobEvent.URGENCY):
            self._changed.add(jobid)
        is_early = name == JobEvent.ALLOC and t < WINDOW_END
        if is_early and jobid not in self._changed and not self.jobspec_of(jobid).duration:
            self.found(f"job {jobid} has no duration and runs into the window")


@watching("closed")
class queue_is_closed(_Events):  # noqa: N801 - read as a sentence
    """No job of a queue is accepted to which nobody has access."""

    def event(self, t: float, jobid: int, name: str) -> None:
        if name == JobEvent.VALIDATE and self.jobspec_of(jobid).queue == CLOSED:
            self.found(f"job {jobid} is accepted in {CLOSED}")
