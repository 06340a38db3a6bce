"""A simulated run of the pure cores, in the order in which something comes for them.

Trio runs, because plugins live in its nurseries, but it takes no part: no plugin may wait.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import trio

from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.turns import SetTimer
from flux_trio.formats import FormatError
from flux_trio.instance import more_sinks
from flux_trio.jobtap import PluginError, PluginHost, may_wait, open_host, search_path
from flux_trio.jobtap.builtins import Lifetime, builtin_plugins
from flux_trio.jobtap.failures import attempt, describe
from flux_trio.jobtap.loaded import Loaded
from flux_trio.jobtap.lock_timers import frames_of_plugin
from flux_trio.messages import Response
from flux_trio.process.collector import rare_collections
from flux_trio.services.at_once import (
    InLine,
    JobManagerAtOnce,
    KvsAtOnce,
    ModuleEnded,
    Party,
    RecountedAtRest,
    World,
    module_plans,
    note_config,
)
from flux_trio.services.job_manager import load_all
from flux_trio.sim.replay import Replay, SimulationStalled
from flux_trio.sim.simulated_run import SIMULATED, USERID, Ran, SimulatedRun, note_depth
from flux_trio.sim.stalled_jobs import explained_at_once, reasons
from flux_trio.sim.users import UserBook
from flux_trio.store.stores import MemoryStore

_SUBMIT: Final = "submit"  # the timers of the workload
_SILENT: Final = "silent"


class NeedsTrio(Exception):
    """A plugin may wait, or the run cannot begin: the stack says why, or can."""


def run_on_cores(asked: SimulatedRun) -> Ran:
    """Run to the end.

    Raises SimulationStalled; NeedsTrio before the run has begun; and PluginError if a plugin wants
    to wait after that.
    """
    for plugin in asked.plugins:
        if may_wait(plugin):
            raise NeedsTrio(f"plugin {plugin.name} may wait")
    return trio.run(_replay, asked)


async def _replay(asked: SimulatedRun) -> Ran:
    world = World(asked.epoch, USERID, InLine(), Party)
    world.log.sinks.extend(asked.log_sinks)
    replay = Replay(asked.jobs, asked.progress)
    shares: dict[str, float] = {}
    errors: list[Exception] = []  # raised outside: inside, a nursery would wrap them
    core = JobManagerCore(USERID, asked.config)
    manager = JobManagerAtOnce(core, UserBook(asked.userids).find, asked.epoch)
    given = manager.given(USERID, lambda: world.trace.has_sinks)

    def fail(error: Exception) -> None:
        errors.append(error)
        world.stop()

    with rare_collections():
        async with open_host(given, asked.config) as host:
            host.jobs = core
            try:
                await _load_plugins(host, asked, fail)
                manager.use(host, host, RecountedAtRest(host))
                _boot(world, asked, manager)
                is_whole, raised = attempt(_run, world, asked, replay)
                if raised is not None:
                    raise _failure_of_policy(raised) or raised
                if not is_whole:
                    waits = await _waits(world, core, host, replay.first_left())
                    raise replay.stalled(world.log, waits)
            except (NeedsTrio, SimulationStalled) as error:
                errors.append(error)
            except ModuleEnded as ended:
                errors.append(SimulationStalled(str(ended)))
            if not errors:
                shares = await asked.first_shares(host.names(), host.query)
                world.end()
    if errors:
        raise errors[0]
    return replay.facts(), shares


async def _load_plugins(
    host: PluginHost, asked: SimulatedRun, report: Callable[[Exception], object]
) -> None:
    """Load all plugins; `report` is called if one of them wants to wait later.

    Raises NeedsTrio if one of them may wait, or cannot be loaded.
    """
    # no job of a log has what they wait for
    builtins = builtin_plugins(Lifetime(asked.machine.expiration), asked.machine)
    try:
        await load_all(host, [*builtins, *asked.plugins], asked.config, search_path({}))
    except PluginError as error:
        raise NeedsTrio(str(error)) from error
    for loaded in host.plugins:
        if loaded.plugin not in builtins and (loaded.tasks.running or may_wait(loaded.plugin)):
            raise NeedsTrio(f"plugin {loaded.name} may wait")
        loaded.tasks = _NoTasks(loaded, report)


class _NoTasks:
    """The tasks of a plugin, none of which can start any more."""

    def __init__(self, loaded: Loaded, report: Callable[[Exception], object]) -> None:
        self.running = loaded.tasks.running  # those of builtin plugins
        self._name = loaded.name
        self._report = report

    def new(self, *_: object) -> NoReturn:
        self.start_soon()

    def start_soon(self, *_: object) -> NoReturn:
        text = f"plugin {self._name} waits: simulate it at the depth stack"
        error = PluginError(text)
        self._report(error)
        raise error


def _boot(world: World[Party], asked: SimulatedRun, manager: JobManagerAtOnce) -> None:
    """Load the modules. Raises NeedsTrio for a configuration that one of them refuses."""
    plans = module_plans(
        asked.config,
        asked.machine,
        kvs=lambda: KvsAtOnce(MemoryStore(), KvsCore(edition=asked.config.edition_value)),
        job_manager=lambda: manager,
        missing={},
    )
    try:
        cores = {name: plans[name].make() for name in SIMULATED}
    except FormatError as error:
        raise NeedsTrio(str(error)) from error
    for sink in (*asked.sinks, *(make_sink() for make_sink in more_sinks.get())):
        world.trace.add_sink(sink)
    note_depth(world.trace, "cores")
    note_config(world.trace, asked.config)
    for name, core in cores.items():
        world.add_module(name, core, plans[name].services, plans[name].events)
    world.settle()


def _run(world: World[Party], asked: SimulatedRun, replay: Replay) -> bool:
    """Run until all jobs have ended; return False if nothing happens any more."""
    workload = _Workload(world, replay, asked.userids)
    world.start(workload.party)
    if not replay.is_over:
        world.run()
    for party in workload.parties.values():
        world.remove(party.name)
        world.settle()
    return not workload.is_stalled


async def _waits(
    world: World[Party], core: JobManagerCore, host: PluginHost, jobid: int | None
) -> str:
    """Return why a job waits; "" if nobody knows."""
    if jobid is None:
        return ""
    return "; ".join(reasons(await explained_at_once(world, core, host, jobid)))


def _failure_of_policy(error: BaseException) -> SimulationStalled | None:
    """Return what ends the run, with the stack, if code of a policy of the user has raised it."""
    frames = frames_of_plugin(reversed(traceback.extract_tb(error.__traceback__)))
    if not frames:
        return None
    stack = "".join(traceback.format_list(frames[::-1])).rstrip()
    return SimulationStalled(f"the scheduling policy raised {describe(error)}\n{stack}")


class _Workload:
    """The peers that submit the jobs and follow the journal; see `Core`."""

    def __init__(self, world: World[Party], replay: Replay, userids: Mapping[str, int]) -> None:
        self._world = world
        self._replay = replay
        self._last_response = 0.0  # when something came last
        self._submit_at: float | None = None  # when the timer fires
        self.is_stalled = False  # whether nothing has happened for too long
        self.party = world.add(world.router.unique_name("workload"), self)
        self.parties: dict[str | None, Party] = {None: self.party}  # by user
        for user, userid in userids.items():
            self.parties[user] = world.add(world.router.unique_name(user), self, userid)

    def start(self, now: float) -> list[Any]:
        self._world.send(self.party, self._replay.follow())
        self._last_response = now
        return [*self._submit(now), SetTimer(_SILENT, now + self._replay.silence_s_max)]

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        responses = [each for each in inputs if isinstance(each, Response)]
        if responses:
            self._last_response = now
            self._replay.handle(responses)
            if self._replay.is_over:
                self._world.stop()
        actions = self._submit(now)
        if not responses and any(each.key == _SILENT for each in inputs):
            actions += self._look_again(now)
        return actions

    def _submit(self, now: float) -> list[Any]:
        for user, request in self._replay.due(now):
            self._world.send(self.parties[user], request)
        at = self._replay.next_submit()
        if at is None or at == self._submit_at:
            return []
        self._submit_at = at
        return [SetTimer(_SUBMIT, at)]

    def _look_again(self, now: float) -> list[Any]:
        """Return the timer for the next look, or stop if it has been silent for long."""
        at = (
            max(self._last_response, self._replay.next_submit() or 0.0) + self._replay.silence_s_max
        )
        if at <= now:
            self.is_stalled = True
            self._world.stop()
            return []
        return [SetTimer(_SILENT, at)]
