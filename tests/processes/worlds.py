"""A world of cores whose execution service has a model of the shell host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec

from flux_trio.config import Config, ExecConfig
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.exec.vocabulary import (
    OutputRead,
    ReadOutput,
    ShellConnected,
    ShellFailed,
    ShellInput,
    ShellLost,
    ToShell,
)
from flux_trio.cores.turns import Core
from flux_trio.lab.catalogue import Holds
from flux_trio.lab.plans.drawing import draw_plan
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import JobPlan
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.properties.pauses import (
    no_job_runs_beyond_its_time_limit,
    no_job_runs_on_lost_nodes,
)
from flux_trio.lab.properties.world_judge import WorldJudge
from flux_trio.lab.stories.owner import Owner, jobspec_of
from flux_trio.lab.stories.running import PlanRun
from flux_trio.lab.stories.setting import surroundings_of
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.station import Station
from flux_trio.process.collector import rare_collections
from flux_trio.shell.protocol import ShellNotice, ShellRequest, frame
from flux_trio.trace import Sink
from tests.processes.checks import twice_launched, wrong_at_rest
from tests.processes.host import Habits, ModelHost
from tests.processes.reader import Reader

EXEC = "job-exec"
LOST = "the model has lost the connection"
NO_HOST = "the model starts no host"
AWAY_S = 5.0  # a connection that is to be lost, and a host that is to be killed, last less
FAILED_S = 1.0  # after which the client tries again


@dataclass(frozen=True)
class Troubles:
    """How often something happens to the host, from 0 to 1, and how slow its socket is."""

    loses: float = 0.0  # a connection is lost
    kills: float = 0.0  # a host is killed
    refuses: float = 0.0  # a host cannot be started
    lag_s: float = 0.0  # seconds that a message is on its way at most


PROPERTIES = tuple(
    each
    for each in OURS
    if each not in (no_job_runs_beyond_its_time_limit, no_job_runs_on_lost_nodes)
)
"""A job that is being ended runs on until its grace is over: these two know of none."""


class Connection:
    """One connection of an execution service; what is sent in one direction arrives in order."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.is_open = True
        self.is_cut = False  # the rest of what the service has sent is lost with the connection
        self.sent_until = 0.0
        self.told_until = 0.0


class ProcessWorld(CoresWorld):
    """A world whose jobs have processes. The host outlives the service and the instance."""

    def __init__(self, seed: int, config: Config, *args: Any, **more: Any) -> None:
        super().__init__(seed, config, *args, **more)
        draw = self._of_host = Random(f"host {seed}")
        habits = Habits(
            postpones=draw.choice((0, 0, 0.2)),
            fails=draw.choice((0, 0, 0.1)),
            ignores=draw.choice((0, 0.3)),
            writes_much=draw.choice((0, 0, 0.1)),
        )
        self.troubles = Troubles(
            loses=draw.choice((0, 0.1, 0.4)),
            kills=draw.choice((0, 0, 0.3)),
            refuses=draw.choice((0, 0, 0.2)),
            lag_s=draw.choice((0, 0.001, 0.3)),
        )
        self.host = ModelHost(draw, habits, self.later, self._tell)
        self.nlost = self.nkilled = self.nrefused = 0
        self._nmade = 0  # services that were started
        self._connection: Connection | None = None
        self._read_until = 0.0

    def make(self, name: str) -> Core[Any, Any, Any]:
        if name != EXEC:
            return super().make(name)
        config = self.config
        core = ExecCore(config.exec, environment={}, has_shell=True, edition=config.edition_value)
        self._nmade += 1
        made = self._nmade
        self.later(self._of_host.choice((0, 0.01, 1.0)), lambda: self._begin(made))
        return core

    def end_troubles(self) -> None:
        """From now on the host launches what it is asked to, and no connection is lost."""
        self.troubles = Troubles(lag_s=self.troubles.lag_s)
        self.host.habits = replace(self.host.habits, postpones=0.0)

    @property
    def is_calm(self) -> bool:
        """Whether no fault is at work, and nobody has anything to do with processes."""
        station = self.stations.get(EXEC)
        core = None if station is None else station.core
        return (
            super().is_calm
            and isinstance(core, ExecCore)
            and not core.jobs.by_id
            and self._connection is not None
            and all(job.is_over for job in self.host.jobs.values())
        )

    def _do_here(self, party: Station, action: Any) -> None:
        match action:
            case ToShell(request):
                self._send_to_host(party, request)
            case ReadOutput():
                self._read(party, action)
            case _:
                super()._do_here(party, action)

    # --- the client of the host

    def _begin(self, made: int) -> None:
        station = self.stations.get(EXEC)
        if station is not None and made == self._nmade:
            self._connect(station)

    def _connect(self, station: Station) -> None:
        if not self.is_loaded(station):
            return
        if self._happens(self.troubles.refuses):
            self.nrefused += 1
            self._post(station, ShellFailed(NO_HOST))
            self.later(FAILED_S, lambda: self._connect(station))
            return
        connection = self._connection = Connection(station)
        if self._happens(self.troubles.loses):
            self._soon(lambda: self._lose(connection))
        if self._happens(self.troubles.kills):
            self._soon(self._kill)
        self._post(station, ShellConnected(), self.host.listing())

    def _lose(self, connection: Connection) -> None:
        if not connection.is_open:
            return
        connection.is_open = False
        if self._connection is connection:
            self._connection = None
        if self.is_loaded(connection.station):
            self.nlost += 1
            self._post(connection.station, ShellLost(LOST))
            pause = self._of_host.choice((0.05, 2.0))
            self.later(pause, lambda: self._connect(connection.station))

    def _kill(self) -> None:
        self.nkilled += 1
        self.host.be_killed()
        if self._connection is not None:
            self._lose(self._connection)

    def _send_to_host(self, station: Station, request: ShellRequest) -> None:
        connection = self._connection
        frame(request)  # it raises if the request is too long
        if connection is not None and connection.station is station:
            connection.sent_until = self._arrival(connection.sent_until)
            self._at(connection.sent_until, lambda: self._arrived(connection, request))

    def _arrived(self, connection: Connection, request: ShellRequest) -> None:
        if not connection.is_open or not self.is_loaded(connection.station):
            connection.is_cut = connection.is_cut or self._happens(0.5)
        if not connection.is_cut:
            self.host.handle(request)

    def _tell(self, notices: list[ShellNotice]) -> None:
        connection = self._connection
        if connection is not None:
            connection.told_until = self._arrival(connection.told_until)
            self._at(connection.told_until, lambda: self._told(connection, notices))

    def _told(self, connection: Connection, notices: list[ShellNotice]) -> None:
        if connection.is_open and self.is_loaded(connection.station):
            self._post(connection.station, *notices)

    def _read(self, station: Station, wanted: ReadOutput) -> None:
        """Read files in the order in which they are wanted."""
        self._read_until = max(self._read_until, self.passed + self._of_host.choice((0, 0.01)))
        self._at(self._read_until, lambda: self._was_read(station, wanted))

    def _was_read(self, station: Station, wanted: ReadOutput) -> None:
        found = self.host.read(wanted)
        if self.is_loaded(station):
            self._post(station, found)

    # --- turns of the service that no message begins

    def _post(self, station: Station, *inputs: ShellInput | OutputRead) -> None:
        self._decide(station, list(inputs))
        self._go_on()

    # --- time and chance

    def _happens(self, share: float) -> bool:
        return self._of_host.random() < share

    def _soon(self, do: Callable[[], object]) -> None:
        self.later(AWAY_S * self._of_host.random(), do)

    def _arrival(self, after: float) -> float:
        return max(after, self.passed + self.troubles.lag_s * self._of_host.random())

    def _at(self, moment: float, do: Callable[[], object]) -> None:
        self.later(moment - self.passed, do)


class Submitter(Owner):
    """Submits jobs that have processes: each sleeps for the seconds that its plan says."""

    def submission(self, job: JobPlan) -> dict[str, Any]:
        jobspec: dict[str, Any] = jobspec_of(job).to_json()
        del jobspec["attributes"]["system"]["exec"]
        (task,) = jobspec["tasks"]
        task["command"] = ["sleep", str(job.run)]
        return {"jobspec": jobspec, "urgency": job.urgency}


class ProcessRun(PlanRun):
    """Plays a plan in such a world, with somebody who follows the output of jobs."""

    world: ProcessWorld

    def __init__(self, plan: Plan, *args: Any, **more: Any) -> None:
        super().__init__(plan, *args, **more)
        self.reader = Reader(plan.seed, self.owner.ids)
        station = self.world.add("reader", self.reader)
        self.world.start(station)

    def make_world(self, config: Config, sinks: Iterable[Sink]) -> ProcessWorld:
        plan = self.plan
        real = msgspec.structs.replace(config, exec=ExecConfig())
        return ProcessWorld(plan.seed, real, surroundings_of(plan), late=plan.late, sinks=sinks)

    def make_owner(self) -> Owner:
        return Submitter(self.plan.jobs, self.plan.actions, {})

    def put_right(self) -> None:
        self.world.end_troubles()
        super().put_right()


@dataclass(frozen=True)
class Played:
    """What became of a plan: what was wrong, and what the host and the reader saw."""

    problems: tuple[str, ...]
    world: ProcessWorld
    reader: Reader


def play(seed: int, sinks: Iterable[Sink] = ()) -> Played:
    """Play the plan that `seed` draws."""
    with (
        rare_collections(),
        ProcessRun(draw_plan(seed), sinks, PROPERTIES, judge=WorldJudge()) as plan_run,
    ):
        is_at_rest = plan_run.play()
        outcome = plan_run.outcome(is_at_rest=is_at_rest)
        problems = list(outcome.problems)
        problems += twice_launched(plan_run.world.host)
        if is_at_rest and not any(fault.holds is Holds.NO_ERROR for fault in outcome.struck):
            world, reader = plan_run.world, plan_run.reader
            problems += wrong_at_rest(world.host, reader, world.disk.store)
        return Played(tuple(problems), plan_run.world, plan_run.reader)
