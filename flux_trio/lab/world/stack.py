"""A world of the whole stack: the real services, broker, plugins and store, under Trio.

The world keeps the time and lets Trio run step by step. What a module sends waits until the world
passes it on: in each step to one module, which then runs until it waits again. Clients are cores
without Trio, as in a world of cores. Each life of the instance is a Trio run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final, cast

import msgspec
import trio

from flux_trio.broker import ModuleNotStarted
from flux_trio.clock import Clock
from flux_trio.config import Config, PluginDirective
from flux_trio.cores.job_manager.calls import User
from flux_trio.instance import Surroundings as OfInstance
from flux_trio.instance import error_of_start, open_instance
from flux_trio.jobtap import Plugin, PluginError, on
from flux_trio.lab.world import parties
from flux_trio.lab.world.machines import USERID, Surroundings
from flux_trio.lab.world.order import BATCHES
from flux_trio.lab.world.plugins import FAULTY, PRIORITIZE, Answering
from flux_trio.lab.world.stack_modules import ModuleStation, WorldOfServices, WorldSupervisor
from flux_trio.lab.world.station import Station
from flux_trio.messages import FluxError, Level, Message, Request, Response, service_of
from flux_trio.protocols import AskHook
from flux_trio.sim import SteppedRun
from flux_trio.trace import KILLED, Kind, Record, Sink

_ALL: Final = 1_000_000
"""Messages that a module gets in one step if all that wait reach it."""

ENDS_MAX: Final = 20
"""Errors of a world after which an instance that ends by itself is not begun again."""


class StackWorld(WorldOfServices):
    """An instance of real services under Trio, in virtual time; see `CoresWorld`.

    It has the methods of a world of cores, so that the same faults and properties fit both.
    """

    def __init__(
        self,
        seed: int,
        config: Config,
        given: Surroundings,
        *,
        late: float = 0.0,
        sinks: Iterable[Sink] = (),
    ) -> None:
        self._last_sender = ""
        self._seed = seed
        self._run: SteppedRun | None = None  # of this life
        self._scope = trio.CancelScope()
        self._supervisor: WorldSupervisor | None = None
        self._nursery: trio.Nursery | None = None
        self._asked_to_end: trio.Event | None = None
        self._loading: dict[str, Callable[[], object] | None] = {}  # and what is to end them then
        self._then: Callable[[], object] | None = None  # when the instance has ended in order
        self._is_woken = False  # whether a fault has given a task work since the tasks ran
        super().__init__(seed, config, given, late=late, sinks=sinks)
        self.trace.add_sink(self._note_sender)

    # --- the instance

    def _note_config(self) -> None:
        """Do nothing: the instance does it."""

    def boot(self) -> None:
        """Start the instance, or load what is missing."""
        if self._run is not None and not self._run.is_over:
            if self.is_up:
                for name in self.modules:
                    self.load(name)
                self._run_tasks()
                return
            self._run.finish()
        self.is_up = True
        self._then = None
        self._loading.clear()
        self.is_falling = False
        self._scope = trio.CancelScope()
        self._run = SteppedRun(self._live, self._seed + self.life, lambda: self.passed)
        self._run_tasks()

    async def _live(self) -> None:
        self._asked_to_end = trio.Event()
        config = self._config_with_plugins()
        hooks = dict.fromkeys((PRIORITIZE, *self._given.hooks))
        given = OfInstance(
            inventory=self.inventory,
            userid=USERID,
            epoch=self.now,
            clock=Clock(lambda: self.now, lambda: self.passed, look_s=inf),
            exclude=self._given.exclude,
            store=lambda: self.disk.store,
            make_token=lambda: "token",
            plugins=[faulty_plugin(hooks, lambda question: self.answers(question))],
            users=_user,
            trace=self.trace,
            log_sinks=[self.log.write],
            make_supervisor=self._make_supervisor,
        )
        with self._scope:
            async with open_instance(config, given):
                await self._asked_to_end.wait()

    def _config_with_plugins(self) -> Config:
        """Return the configuration with the plugins of files; the faulty one is behind them."""
        loaded = (*self._given.builtins, *self._given.plugins)
        if not loaded:
            return self.config
        files = [PluginDirective(load=file.load, conf=file.conf) for file in loaded]
        last = [PluginDirective(remove=FAULTY), PluginDirective(load=FAULTY)]
        changed = msgspec.structs.replace(self.config.job_manager, plugins=[*files, *last])
        return msgspec.structs.replace(self.config, job_manager=changed)

    def _make_supervisor(self, *given: Any) -> WorldSupervisor:
        self.router, self._nursery = given[0], given[1]
        self._supervisor = WorldSupervisor(self, *given)
        return self._supervisor

    def end_life(self) -> list[Station]:
        """End the instance at once, as if it was killed; return the clients, which live on."""
        self.trace = self.trace.hand_over()
        for station in self.stations.values():
            if isinstance(station, ModuleStation):
                station.handle.is_doomed = True
        clients = [each for each in super().end_life() if not isinstance(each, ModuleStation)]
        self._then = None
        self._scope.cancel()
        self._is_woken = True
        return clients

    def end_in_order(self, then: Callable[[], object]) -> None:
        if self._then is None:
            self._then, self.is_falling = then, True
            if self._asked_to_end is not None:
                self._asked_to_end.set()
                self._is_woken = True

    def close(self) -> None:
        if self._run is not None and not self._run.is_over:
            if self.is_up:
                self.end_life()
            self._run.finish()
        super().close()

    # --- modules

    def load(self, name: str) -> None:
        """Start a module, unless it runs or the instance is not there."""
        if not self.is_up or self.is_falling or name in self._loading:
            return
        if self._supervisor is not None and self._nursery is not None:
            self._loading[name] = None
            self._is_woken = True
            self._nursery.start_soon(self._load_again, self._supervisor, name)

    async def _load_again(self, supervisor: WorldSupervisor, name: str) -> None:
        try:
            await supervisor.load_again(name)
        except (ModuleNotStarted, FluxError) as error:
            self.write_log("broker", Level.ERR, str(error))
        finally:
            end = self._loading.pop(name, None)
        if end is not None:
            end()

    def unload(self, name: str, *, is_ending: bool = False) -> bool:
        if self.is_essential(name) and not is_ending:
            return super().unload(name)
        return self._end(name)

    def crash(self, name: str, reason: str = KILLED) -> None:
        if name in self.modules:
            self._end(name, reason)
        else:
            super().crash(name, reason)

    def let_return(self, name: str) -> None:
        self._end(name, returns=True)

    def _end(self, name: str, killed: str = "", *, returns: bool = False) -> bool:
        supervisor = self._supervisor
        if supervisor is None:
            return False
        if name in self._loading and not supervisor.is_there(name):
            self._loading[name] = lambda: supervisor.end(name, killed, returns=returns)
            return True
        self._is_woken = True
        return supervisor.end(name, killed, returns=returns)

    def taken_by(self, station: Station) -> list[Any]:
        if isinstance(station, ModuleStation):
            return station.handle.taken
        return super().taken_by(station)

    def _note_sender(self, record: Record) -> None:
        if record.kind == Kind.SEND:
            self._last_sender = record.party

    def sender_of(self, message: Message) -> str:
        match message:
            case Request():
                return message.sender
            case Response():
                return self._holders.get(service_of(message.topic), self._last_sender)
        return self._last_sender

    # --- steps

    def step(self) -> bool:
        is_interrupted = self.is_stopping and not self.is_in_turn
        self._is_stopping = False
        is_alive = is_interrupted or super().step()
        interrupted, self.going_on = self.going_on, trio.Event()
        interrupted.set()
        self._run_tasks()
        return is_alive or self._has_more()

    @property
    def _is_spent(self) -> bool:
        """See `CoresWorld`; no time passes before the tasks run that have been given work."""
        return super()._is_spent or self._is_woken

    @property
    def is_calm(self) -> bool:
        return super().is_calm and not self.is_falling

    def are_calm(self, names: Iterable[str]) -> bool:
        names = list(names)
        return super().are_calm(names) and all(
            name not in self._loading and self._is_calm_inside(name) for name in names
        )

    def _is_calm_inside(self, name: str) -> bool:
        station = self.stations[name]
        return not isinstance(station, ModuleStation) or station.is_calm

    def _has_more(self) -> bool:
        """Whether a task that somebody has started since the last step has left work."""
        ready, moment = self._look()
        return bool(ready) or moment is not None

    def _run_tasks(self) -> None:
        """Let all tasks run until each one waits."""
        self._is_woken = False
        run = self._run
        if run is None or run.is_over:
            return
        is_over = run.go_on(lambda: self.has_too_many_records)
        if not self.is_up:
            run.finish()
        elif is_over:
            self._ended(run)

    def _ended(self, run: SteppedRun) -> None:
        """The instance has ended by itself.

        Raises PluginError if a plugin cannot be loaded, RuntimeError if no life of it lasts.
        """
        then, self._then = self._then, None
        if then is None:
            error = None if run.error is None else error_of_start(run.error)
            if isinstance(error, PluginError):
                raise error  # no further life would begin either
            self.errors.append(f"the instance has ended: {run.error}")
            if len(self.errors) > ENDS_MAX:
                raise RuntimeError(self.errors[-1]) from run.error
            parties.kill_instance(self, 0.0)
        else:
            then()

    def _look(self) -> tuple[Sequence[Station], float | None]:
        ready, moment = super()._look()
        deadline = inf if self._run is None else self._run.next_deadline
        if deadline == inf:
            return ready, moment
        return ready, deadline if moment is None else min(moment, deadline)

    def _begin_turn(self, station: Station) -> None:
        if not isinstance(station, ModuleStation):
            super()._begin_turn(station)
            return
        pause = self.order.pause_of(station.name, self.passed)
        count = self.order.batch((*BATCHES, _ALL, _ALL)) if pause is None else 1
        for ref, message in self.order.pop_messages(station, count):
            station.handle.pass_in(ref, message)
        if pause is not None:
            self._run_tasks()
            self.linger(station.name, pause)


async def _user(userid: int) -> User:
    return User(f"user{userid}")


def faulty_plugin(topics: Iterable[str], fault_of: Callable[[AskHook], Answering | None]) -> Plugin:
    """Return a plugin whose handlers of `topics` do what a fault says.

    `fault_of` returns the fault of a question; without one a handler returns None.
    """

    def handler_of(topic: str) -> Callable[..., Any]:
        @on(topic)
        def handler(_plugin: Plugin, *_: Any) -> Any:
            fault = fault_of(AskHook(0, topic, None))
            return None if fault is None else fault.act()

        return handler

    handlers = {f"handler_{place}": handler_of(topic) for place, topic in enumerate(topics)}
    return cast(Plugin, type("Faulty", (Plugin,), {"name": FAULTY, **handlers})())
