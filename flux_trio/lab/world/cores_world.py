"""A world that falls apart: the cores of all modules, ordered by one generator, and its faults.

Which module takes its turn, which of the waiting messages have reached it, and whether time passes
meanwhile is drawn. Messages between two parties keep their order.

A turn has three parts: messages are taken, the core decides, and its actions are performed one by
one. `stop` interrupts a turn after the message or action that is being dealt with; the next step
goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import Any, Final

from flux_trio.broker import LogEntry, Router
from flux_trio.config import Config
from flux_trio.cores.turns import ClockStepped, CommonAction, Core, Outgoing, RunnerAction
from flux_trio.jobtap.failures import attempt
from flux_trio.lab.world.clients import Subscribe
from flux_trio.lab.world.disk import Disk, KvsOnDisk
from flux_trio.lab.world.machines import USERID, Surroundings, job_manager_of_world
from flux_trio.lab.world.order import Agenda, DrawnOrder
from flux_trio.lab.world.plugin_files import watch_of_world
from flux_trio.lab.world.plugins import Answering, is_late_answer
from flux_trio.lab.world.station import Station
from flux_trio.messages import FluxError, Level, Message, Response, service_of
from flux_trio.protocols import AskHook
from flux_trio.services.at_once import (
    KVS_MODULE,
    JobManagerAtOnce,
    ModulePlan,
    World,
    module_plans,
    note_config,
)
from flux_trio.trace import KILLED, Kind, Sink

EPOCH: Final = 1_000_000_000.0  # seconds since the Unix epoch; the clock of every world starts here
PROMPT_S: Final = 1.0  # a timer that fires sooner is of something that goes on


class CoresWorld(World[Station]):
    """An instance in virtual time: its router, the cores of its modules, and its clients.

    `seed` draws the order in which they act. `late` is how often time passes although messages
    wait, from 0 to 1. `given` has the nodes, the store and the plugins; `sinks` get the records of
    the trace. Faults call its methods, and `step` lets it go on.
    """

    make_station: type[Station] = Station

    def __init__(
        self,
        seed: int,
        config: Config,
        given: Surroundings,
        *,
        late: float = 0.0,
        sinks: Iterable[Sink] = (),
    ) -> None:
        self.order: DrawnOrder
        super().__init__(EPOCH, USERID, DrawnOrder(seed, late), self.make_station)
        self.ahead = 0.0  # by how much the wall clock was set
        self.nsteps = 0
        self.life = 0  # how often the instance has ended
        self.is_up = False
        self.disk = Disk(given.store)
        self.liars: dict[str, None] = {}  # parties that have broken a clause on purpose
        self.errors: list[str] = []  # what cores raised, with the name of the module
        self.logged: list[LogEntry] = []
        self.log.sinks.append(self.logged.append)
        self.records_max = inf
        for sink in sinks:
            self.trace.add_sink(sink)
        self.in_place_of: Callable[[str, Outgoing], list[Outgoing] | None] | None = None
        """A function that returns the messages which a party sends in place of a message, or None
        for the message itself."""
        self.answers: Callable[[AskHook], Answering | None] = lambda _: None
        self.began: Callable[[], None] = lambda: None  # called when the instance begins anew
        self.pauses: Callable[[], None] = lambda: None
        """A function that is called when no party has anything to do for a while."""
        self.inventory = given.inventory
        self.excluded = given.exclude  # the targets that are excluded from the start of each life
        self.missing = given.missing or {}  # those that are down from the start of each, and why
        self.plugins = given.plugins  # files
        self._given = given
        self.config = config
        self._sender = ""
        self.agenda = Agenda()
        self._strikes: deque[Callable[[], object]] = deque()
        self._next_life: deque[Callable[[], object]] = deque()  # what is to be done then
        self._taken: tuple[Station, list[Any]] | None = None  # inputs of the turn under way
        self._todo: deque[tuple[Station, CommonAction[Hashable]]] = deque()  # its actions
        self._watch = watch_of_world()
        self._plans: dict[str, ModulePlan] = module_plans(
            config,
            given.inventory,
            kvs=lambda: KvsOnDisk(self.disk, config.edition_value),
            job_manager=lambda: job_manager_of_world(
                config, given, lambda question: self.answers(question), self._watch
            ),
            exclude=given.exclude,
            missing=given.missing,
        )
        self._holders = {
            service: name for name, plan in self._plans.items() for service in plan.services
        }
        self._note_config()

    def _note_config(self) -> None:
        """Put the configuration into the trace; a life of the instance begins."""
        note_config(self.trace, self.config)

    @property
    def now(self) -> float:
        """The time on the wall clock, which faults may set."""
        return self.passed + self.ahead

    @property
    def has_too_many_records(self) -> bool:
        """Whether the trace has so many records that the world will never come to rest."""
        return self.trace.nrecords > self.records_max

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of all modules, in the order of their start."""
        return tuple(self._plans)

    def is_essential(self, name: str) -> bool:
        """Whether the whole instance ends when this module ends, as with the kvs."""
        return name == KVS_MODULE

    # --- modules

    def boot(self) -> None:
        """Load all modules in order, until a fault ends the instance."""
        self.is_up = True
        life = self.life
        for name in self._plans:
            if self.life == life:
                self.load(name)

    def load(self, name: str) -> None:
        """Start a module; do nothing if it runs, or if the instance is not up."""
        if not self.is_up or name in self.stations:
            return
        plan = self._plans[name]
        self.add_module(name, self.make(name), plan.services, plan.events)

    def make(self, name: str) -> Core[Any, Any, Any]:
        """Return a new core for a module, as it is when the module starts."""
        return self._plans[name].make()

    def add(self, name: str, core: Core[Any, Any, Any], userid: int | None = None) -> Station:
        self._sender = name
        return super().add(name, core, userid)

    def perform(self, party: Station, actions: Iterable[CommonAction[Hashable]]) -> None:
        """Perform the actions of a party one by one; stop when the party is gone."""
        for action in actions:
            if self.is_loaded(party):
                self._do(party, action)
                self.strike()

    def unload(self, name: str, *, is_ending: bool = False) -> bool:
        """Remove a module in order; return False if it does not run or others depend on it.

        When the instance `is_ending`, nobody depends on a module any more.
        """
        if self.is_essential(name) and not is_ending:
            text = f"module {name} is not removed: other modules depend on it"
            self.write_log("broker", Level.ERR, text)
            return False
        if not self.remove(name, ""):
            return False
        self._note_module(name, "removed")
        return True

    def crash(self, name: str, reason: str = KILLED) -> None:
        """End a module with an error, if it runs."""
        if self.remove(name, f"{name} ended: {reason}"):
            self._note_module(name, "crashed", reason=reason)

    def let_return(self, name: str) -> None:
        """Let a module return without being asked to, if it runs."""
        reason = f"returned without being asked to, {KILLED}"
        if self.remove(name, f"{name} ended: {reason}"):
            self._note_module(name, "returned", reason=reason)

    def _disconnect(self, party: Station, reason: str) -> None:
        self._sender = party.name
        if isinstance(party.core, JobManagerAtOnce):
            for action in party.core.end(self.now):
                self._do(party, action)
        super()._disconnect(party, reason)

    def linger(self, name: str, seconds: float) -> None:
        """Let a module take nothing in for so many seconds."""
        self.order.let_hang(name, self.passed + seconds)
        self.later(seconds, lambda: None)

    def slow_down(self, name: str, pause: float, seconds: float) -> None:
        """Let a module take one message a turn and pause after it, for so many seconds."""
        self.order.slow_down(name, pause, self.passed + seconds)

    def fill_inbox(self, name: str, seconds: float) -> None:
        """Refuse requests to a module for so many seconds."""
        station = self.stations.get(name)
        if station is not None:
            station.is_full = True
            self.later(seconds, setattr, station, "is_full", False)

    def taken_by(self, station: Station) -> list[Any]:
        """Return what a module has received and not acted on yet.

        That is empty unless its turn was interrupted between the two.
        """
        return self._taken[1] if self._taken is not None and self._taken[0] is station else []

    def sender_of(self, message: Message) -> str:
        """Return the sender whose messages a message keeps its order with.

        The broker may answer in place of a service that is gone; its answer counts as the
        service's.
        """
        if type(message) is Response:  # isinstance of a Struct costs several times as much
            return self._holders.get(service_of(message.topic), self._sender)
        return self._sender

    # --- the instance

    def end_in_order(self, then: Callable[[], object]) -> None:
        """Remove all modules in order, the last one first; then call `then`."""
        self.trace.note(Kind.INSTANCE, "broker", {"what": "ending"})
        for name in reversed(self.modules):
            self.unload(name, is_ending=True)
        then()

    def close(self) -> None:
        """Close the store and stop the watch of plugins; the world cannot go on after that."""
        self._watch.stop()
        self.disk.close()

    def end_life(self) -> list[Station]:
        """End the instance at once, as if it was killed; return the clients, which live on."""
        self.is_up = False
        self.life += 1
        clients = [each for name, each in self.stations.items() if name not in self._plans]
        self.stations.clear()
        self.order.forget_all()
        self._todo.clear()
        self._taken = None
        self._nbefore.clear()
        self.router = Router(self.trace)
        return clients

    def begin_life(self) -> None:
        """Start the instance again, from what is stored."""
        try:
            self.disk.reopen()
        except FluxError as error:
            text = self.disk.without_directory(str(error))
            self.errors.append(f"before the instance started again: {text}")
            self.disk.reopen()
        self.began()
        self._note_config()
        self.boot()
        while self.is_up and self._next_life:
            self._next_life.popleft()()

    def when_up(self, do: Callable[[], object]) -> None:
        """Call `do` now, or if the instance is down when it has been started again.

        Between two lives of the instance nobody can connect, and nobody sends anything.
        """
        if self.is_up:
            do()
        else:
            self._next_life.append(do)

    # --- time

    def set_clock(self, by: float) -> None:
        """Set the wall clock `by` seconds ahead; each core is told of it in its next turn."""
        self.ahead += by
        self.trace.note(Kind.CLOCK, "broker", {"by": by})
        for station in self.stations.values():
            station.stepped += by

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass at once, as if the machine slept: timers fire late."""
        self.passed += seconds

    def later(self, seconds: float, do: Callable[..., object], *args: Any) -> None:
        """Call `do(*args)` after so many seconds."""
        self.agenda.add(self.passed + seconds, do, args)

    def load_later(self, name: str, seconds: float) -> None:
        """Load a module after so many seconds, unless the instance was killed meanwhile."""
        self.later(seconds, self._load_in, self.life, name)

    def _load_in(self, life: int, name: str) -> None:
        if self.life == life:
            self.load(name)

    def at_once(self, do: Callable[[], object]) -> None:
        """Call `do` before anything else happens: even before the turn for which a message came."""
        self._strikes.append(do)

    def strike(self) -> None:
        """Call what was given to `at_once` since the last time."""
        while self._strikes:
            self._strikes.popleft()()

    # --- steps

    @property
    def is_in_turn(self) -> bool:
        """Whether a turn was interrupted by `stop`."""
        return self._taken is not None or bool(self._todo)

    @property
    def is_stopping(self) -> bool:
        """Whether the turn under way is to be interrupted."""
        return self._is_stopping

    def step(self) -> bool:
        """Let one thing happen; False if nothing is left to happen."""
        self._is_stopping = False
        if self.is_in_turn:
            self._go_on()
            return True
        self.nsteps += 1
        self.agenda.do_due(self.passed)
        self.strike()
        if self._is_spent:
            return True
        return super().step()

    @property
    def _is_spent(self) -> bool:
        """Whether the step that has begun ends before anybody has a turn."""
        return self._is_stopping

    @property
    def is_calm(self) -> bool:
        """Whether no fault is at work: all are there, nobody hangs or lies, the disk is well."""
        return (
            not self.liars
            and self.are_calm(self.modules)
            and not any(each.nwaiting or each.is_full for each in self.stations.values())
            and not self.disk.is_troubled
            and not self.stations[KVS_MODULE].peer.inflight
        )

    def are_calm(self, names: Iterable[str]) -> bool:
        """Whether these parties are there, none hangs or lies, and all have read their messages."""
        found = [self.stations.get(name) for name in names]
        return all(
            each is not None
            and not each.nwaiting
            and not each.is_full
            and each.name not in self.liars
            and self.order.is_prompt(each.name, self.passed)
            and not any(is_late_answer(key) for key in each.timers)
            for each in found
        )

    def release_all(self) -> bool:
        """Release all messages that are held; return whether there was one."""
        released = [station.release_all() for station in self.stations.values()]
        return any(released)

    def _look(self) -> tuple[Sequence[Station], float | None]:
        """Return who can have a turn, and the next moment.

        Then the next timer fires, or the next thing of the agenda is due; None: never.
        """
        return self.order.look(self.stations, self.passed, self.agenda.next_at)

    def _pass_time(self, ready: Sequence[Station], at: float | None) -> bool:
        if not ready and (at is None or at > self.passed + PROMPT_S):
            self.pauses()
        return super()._pass_time(ready, at)

    def _begin_turn(self, party: Station) -> None:
        """Take what comes for the party; then go on, unless a fault stops the turn here."""
        pause = self.order.pause_of(party.name, self.passed)
        if pause is not None:
            self.linger(party.name, pause)
        self._taken = (party, self._inputs_of(party))
        self.strike()
        if not self._is_stopping:
            self._go_on()

    def _go_on(self) -> None:
        """Go on with the turn under way, to its end or until `stop`."""
        if self._taken is not None:
            station, inputs = self._taken
            self._taken = None
            if self.is_loaded(station):  # else a fault at this moment has ended it
                self._decide(station, inputs)
                self.strike()
        stations = self.stations
        while self._todo and not self._is_stopping:
            station, action = self._todo.popleft()
            if stations.get(station.name) is station:  # it is loaded
                self._do(station, action)
                if self._strikes:
                    self.strike()

    def _decide(self, party: Station, inputs: Sequence[Any]) -> None:
        if party.stepped:
            inputs = [ClockStepped(party.stepped), *inputs]
            party.stepped = 0.0
        actions, error = attempt(party.core.turn, self.now, inputs)
        if error is None:
            self._todo.extend([(party, action) for action in actions])
        else:  # as under the supervisor, it ends this module only
            self.errors.append(f"{party.name} raised {type(error).__name__}: {error}")
            self.crash(party.name, str(error))

    def send(self, party: Station, message: Outgoing) -> None:
        sent = None if self.in_place_of is None else self.in_place_of(party.name, message)
        for each in (message,) if sent is None else sent:
            self._sender = party.name
            super().send(party, each)

    def _do_here(self, party: Station, action: RunnerAction[Hashable] | Subscribe) -> None:
        if isinstance(action, Subscribe):
            party.subscribe(action.pattern)
        else:
            super()._do_here(party, action)

    def _set_timer(self, party: Station, key: Hashable, at: float) -> None:
        # the core does not know yet how far the clock was set since its turn
        super()._set_timer(party, key, at - (self.ahead - party.stepped))
