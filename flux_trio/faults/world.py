"""A world: the cores of all modules on one router, in virtual time, ordered by one generator.

A step is one turn of one module, or the next moment when nobody has anything to do. Which module
takes its turn, which of the waiting messages have reached it, and whether time passes meanwhile is
drawn. Messages between two parties keep their order.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any, Final, assert_never

from flux_trio.broker import Router
from flux_trio.config import Config
from flux_trio.cores.turns import (
    ClearTimer,
    ClockStepped,
    CommonAction,
    Core,
    Exit,
    Log,
    Note,
    NoteAll,
    SetTimer,
    TimerFired,
)
from flux_trio.faults.machines import USERID, ModulePlan, module_plans
from flux_trio.faults.station import Station
from flux_trio.formats import ResourceSet
from flux_trio.messages import (
    ROLE_LOCAL,
    ROLE_OWNER,
    Event,
    Message,
    Request,
    Response,
    service_of,
)
from flux_trio.store.stores import MemoryStore, Store
from flux_trio.trace import KILLED, Kind, Sink, Trace

EPOCH: Final = 1_000_000_000.0  # seconds since the Unix epoch; the clock of every world starts here
BATCH_MAX: Final = 4  # messages that a module takes in one turn, at most: drawn from 1
LATE_S_MAX: Final = 2.0  # how much time passes at most while messages wait


class CoresWorld:
    """A running world. `late` is how often time passes while messages wait, from 0 to 1."""

    def __init__(
        self,
        seed: int,
        config: Config,
        inventory: ResourceSet,
        *,
        late: float = 0.0,
        sinks: Iterable[Sink] = (),
    ) -> None:
        self.passed = EPOCH  # seconds, which no setting of the wall clock changes
        self.ahead = 0.0  # by how much the wall clock was set
        self.nsteps = 0
        self.stations: dict[str, Station] = {}
        self.errors: list[str] = []  # what cores raised, with the name of the module
        self.log: list[tuple[float, str, int, str]] = []  # time, module, level, text
        self.trace = Trace(lambda: self.now)
        for sink in sinks:
            self.trace.add_sink(sink)
        self._draw = random.Random(seed)
        self._late = late
        self._router = Router(self.trace)
        self._sender = ""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._strikes: list[Callable[[], None]] = []
        self._away: dict[str, float] = {}  # modules that take nothing in, until when
        store: Store = MemoryStore()
        self._plans: dict[str, ModulePlan] = module_plans(config, inventory, lambda: store)
        self._holders = {
            service: name for name, plan in self._plans.items() for service in plan.services
        }
        tables = config.to_json()
        self.trace.note(Kind.CONFIG, "config", {key: tables[key] for key in ("policy", "queues")})

    @property
    def now(self) -> float:
        """The wall clock, in seconds since the Unix epoch."""
        return self.passed + self.ahead

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of all modules, in the order of their start."""
        return tuple(self._plans)

    # --- modules

    def load(self, name: str) -> None:
        """Start a module, unless it runs."""
        if name in self.stations:
            return
        plan = self._plans[name]
        station = self.add(name, plan.make())
        for service in plan.services:
            self._router.register(station.peer, service)
        for event in plan.events:
            station.peer.subscriptions.add(event)
        self._perform(station, station.core.start(self.now))
        self._note_module(name, "started")

    def add(self, name: str, core: Core[Any, Any]) -> Station:
        """Add a party with the owner's rights, which has no service."""
        station = Station(name, core, USERID, ROLE_LOCAL | ROLE_OWNER, self._sender_of)
        self._sender = name
        self._router.add(station.peer)
        self.stations[name] = station
        return station

    def start(self, station: Station) -> None:
        """Start the core of an added party."""
        self._perform(station, station.core.start(self.now))

    def unload(self, name: str) -> None:
        """Remove a module in order, if it runs."""
        if self._remove(name, ""):
            self._note_module(name, "removed")

    def crash(self, name: str, reason: str = KILLED) -> None:
        """End a module with an error, if it runs."""
        if self._remove(name, f"{name} ended: {reason}"):
            self._note_module(name, "crashed", reason=reason)

    def linger(self, name: str, seconds: float) -> None:
        """Let a module take nothing in for so many seconds."""
        self._away[name] = self.passed + seconds
        self.later(seconds, lambda: None)

    def set_clock(self, by: float) -> None:
        """Set the wall clock `by` seconds ahead; every core is told before its next turn."""
        self.ahead += by
        self.trace.note(Kind.CLOCK, "broker", {"by": by})
        for station in self.stations.values():
            station.stepped += by

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Call `do` after so many seconds."""
        heapq.heappush(self._agenda, (self.passed + seconds, next(self._count), do))

    def at_once(self, do: Callable[[], None]) -> None:
        """Call `do` before anything else happens: even before the turn for which a message came."""
        self._strikes.append(do)

    def _remove(self, name: str, reason: str) -> bool:
        station = self.stations.pop(name, None)
        if station is None:
            return False
        self._away.pop(name, None)
        self._sender = name
        self._router.remove(station.peer, station.undelivered(), reason)
        return True

    def _note_module(self, name: str, what: str, **more: Any) -> None:
        self.trace.note(Kind.MODULE, "broker", {"module": name, "what": what, **more})

    def _sender_of(self, message: Message) -> str:
        """Return the sender; a response of the broker in place of a service counts as its own."""
        if isinstance(message, Response):
            return self._holders[service_of(message.topic)]
        return self._sender

    # --- steps

    def step(self) -> bool:
        """Let one thing happen; False if nothing is left to happen."""
        self.nsteps += 1
        while self._agenda and self._agenda[0][0] <= self.passed:
            heapq.heappop(self._agenda)[2]()
        ready = [each for each in self.stations.values() if self._is_ready(each)]
        at = self._next_moment()
        is_late = at is not None and at <= self.passed + LATE_S_MAX
        if ready and not (self._late and is_late and self._draw.random() < self._late):
            self._turn(self._draw.choice(ready))
            return True
        if at is None:
            return False
        self.passed = max(self.passed, at)
        return True

    def is_loaded(self, station: Station) -> bool:
        """Whether a party is there still."""
        return self.stations.get(station.name) is station

    def _is_ready(self, station: Station) -> bool:
        if self._away.get(station.name, 0.0) > self.passed:
            return False
        at = station.next_timer()
        return bool(station.nwaiting) or (at is not None and at <= self.passed)

    def _next_moment(self) -> float | None:
        """Return when the next timer fires or the next thing of the agenda is due; None: never."""
        moments = [
            at
            for each in self.stations.values()
            if self._away.get(each.name, 0.0) <= self.passed
            and (at := each.next_timer()) is not None
            and at > self.passed
        ]
        if self._agenda:
            moments.append(self._agenda[0][0])
        return min(moments, default=None)

    def _turn(self, station: Station) -> None:
        """Messages that reached the module, or the timers that are due."""
        at = station.next_timer()
        is_due = at is not None and at <= self.passed
        inputs: list[Any] = []
        if station.nwaiting and not (is_due and self._draw.random() < 0.5):
            taken = station.take(self._draw.randint(1, BATCH_MAX), self._draw)
            station.peer.guests.clear()
            self.trace.received_all(station.name, taken)
            self._strike()
            if not self.is_loaded(station):  # a fault at this moment has ended it
                return
            inputs = [message for _, message in taken]
        else:
            inputs = [TimerFired(key) for key in station.pop_due(self.passed)]
        if station.stepped:
            inputs.insert(0, ClockStepped(station.stepped))
            station.stepped = 0.0
        try:
            actions = station.core.turn(self.now, inputs)
        except Exception as error:  # noqa: BLE001 - like the supervisor's: it ends this module only
            self.errors.append(f"{station.name} raised {type(error).__name__}: {error}")
            self.crash(station.name, str(error))
        else:
            self._perform(station, actions)

    def _perform(self, station: Station, actions: list[CommonAction]) -> None:
        for action in actions:
            if not self.is_loaded(station):
                return
            self._do(station, action)
            self._strike()

    def _strike(self) -> None:
        while self._strikes:
            self._strikes.pop(0)()

    def _do(self, station: Station, action: CommonAction) -> None:
        match action:
            case Request() | Response() | Event():
                self._sender = station.name
                self._router.route(station.peer, action)
            case SetTimer(key, at):
                station.set_timer(key, at - self.ahead)
            case ClearTimer(key):
                station.clear_timer(key)
            case Log(level, text):
                self.log.append((self.now, station.name, level, text))
            case Note(kind, data):
                self.trace.note(kind, station.name, data)
            case NoteAll(notes):
                self.trace.note_all(station.name, notes)
            case Exit(reason):
                self.crash(station.name, reason)
            case _:
                assert_never(action)
