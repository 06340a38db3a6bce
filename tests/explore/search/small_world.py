"""A world whose every step is chosen: which core takes which message, timer or fault next.

The kvs, job-ingest and the clients take what reaches them within the step in which it was sent,
oldest first; job-list is not loaded. Messages between two parties keep their order; no other order
is given, and there is no bound on how long a message is on its way.

The clock stands still: a timer fires at any moment after it was set, before or after all others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from flux_trio.cores.turns import Core, RunnerAction, SetTimer, TimerFired
from flux_trio.lab.catalogue import Crash, Fault, Return, Unload
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.reached import name_of_fault
from flux_trio.lab.plans.workload import JOB_ACTIONS, JobPlan, OwnerRequest
from flux_trio.lab.stories.owner import Owner
from flux_trio.lab.stories.setting import config_of, surroundings_of
from flux_trio.lab.world.clients import Subscribe
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.jobs import Jobs
from flux_trio.lab.world.parties import OWNER
from flux_trio.lab.world.station import Station
from flux_trio.services.at_once import KVS_MODULE, Waiting
from flux_trio.store.stores import MemoryStore, Store
from flux_trio.trace import Sink
from tests.explore.search.numbered import (
    Machine,
    NumberedCore,
    OfClient,
    OfKvs,
    OfModule,
    StateFormat,
)
from tests.explore.search.station import SmallStation, StationState

INGEST: Final = "job-ingest"
LEFT_OUT: Final = ("job-list",)
_OF_LEFT_OUT: Final = ("watch",)
"""Requests that a module which is left out answers: a client would ask again without end."""
UNEXPLORED_TIMERS: Final = ("sign-of-life",)
"""The keys of timers that never fire, since no job depends on them: one is set while any request
waits."""
MORTAL: Final = ("sched", "job-exec", "resource")
"""The modules that faults may end. The cores of the others live as long as the world."""

_PAIRS: Final = {
    "queue-stop": "queue",
    "queue-start": "queue",
    "drain": "drain",
    "undrain": "drain",
    "down": "down",
    "up": "down",
    "exclude": "exclude",
    "include": "exclude",
}


class Take(NamedTuple):
    """A choice: a module takes the next message of a sender."""

    module: str
    sender: str


class Fire(NamedTuple):
    """A choice: the timer at `place` of a module fires; timers are in the order of their times."""

    module: str
    place: int


class Strike(NamedTuple):
    """A choice: the fault at this place of the plan strikes."""

    fault: int


class Load(NamedTuple):
    """A choice: a module that has ended is loaded again."""

    module: str


Choice: TypeAlias = Take | Fire | Strike | Load


@dataclass(slots=True)
class PartyState:
    """The state of a party: the number of its core's state, and the state of its station."""

    name: str
    nbefore: int
    core: int
    station: StationState
    identity: Any = field(default=None, compare=False)
    """What the module `identity` has computed from this state."""


class WorldState(NamedTuple):
    """The state of a world. What has not changed is shared with earlier states."""

    parties: tuple[PartyState, ...]
    ended: tuple[tuple[str, str], ...]
    nbefore: tuple[tuple[str, int], ...]
    left: tuple[int, ...]
    """The places in the plan of the faults that have not struck."""
    tried: str
    """The module that was loaded last, while another one was missing."""
    active: frozenset[int]
    sequence: int
    """The sequence number of the last event, on which nothing depends."""


class UnsuitablePlan(ValueError):
    """Raised for a plan with something that cannot be explored."""


class SmallWorld(CoresWorld):
    """The world of a plan, booted; the jobs are submitted, and nobody has taken anything since.

    Of the plan's times none counts, but that jobs with the same time are submitted together, as one
    batch: requests are made at once, those about the same thing in their order and the others by
    clients of their own; faults strike, and modules come back, whenever they are chosen.
    `machines` are those of another world of the plan. Raises UnsuitablePlan.
    """

    make_station = SmallStation
    stations: dict[str, SmallStation]  # type: ignore[assignment]

    def __init__(
        self, plan: Plan, sinks: Iterable[Sink] = (), machines: dict[str, Machine] | None = None
    ) -> None:
        _check(plan)
        self.jobs = Jobs()
        super().__init__(
            plan.seed, config_of(plan), surroundings_of(plan), sinks=[self.jobs.observe, *sinks]
        )
        self.plan = plan
        self.left = tuple(range(len(plan.faults)))
        self._tried = ""
        self.machines: dict[str, Machine] = {} if machines is None else machines
        self._forms: dict[str, StateFormat] = {KVS_MODULE: OfKvs(_in_memory(self.disk.store))}
        self._pool: dict[tuple[str, int], SmallStation] = {}
        self._groups = _groups(plan)
        self._within = (KVS_MODULE, INGEST, OWNER, *self._groups)
        self._last: dict[str, PartyState] = {}
        self._is_put_down = False  # whether `_last` is what the stations have
        self.boot()
        self._settle()
        at_once = tuple([msgspec.structs.replace(each, at=0.0) for each in plan.jobs])
        self._start_client(OWNER, at_once, ())
        self.do_within()

    # --- parties

    def make(self, name: str) -> Core[Any, Any, Any]:
        """Return the core of a module as it is when the module starts."""
        form = self._forms.setdefault(name, OfModule())
        return self._numbered(name, lambda: super(SmallWorld, self).make(name), form)

    def _numbered(self, name: str, make: Any, form: StateFormat) -> NumberedCore:
        machine = self.machines.get(name)
        if machine is None:
            machine = self.machines[name] = Machine(make, form)
        return NumberedCore(machine)

    def boot(self) -> None:
        """Load the modules that are explored."""
        self.is_up = True
        for name in self.modules:
            if name not in LEFT_OUT:
                self.load(name)

    def _settle(self) -> None:
        """Let all take what reaches them, in one order, until nobody has anything to do."""
        while waiting := [each for each in self.stations.values() if each.has_message]:
            for station in waiting:
                while station.has_message:
                    self._take(station, station.pop_oldest())

    def _start_client(
        self, name: str, jobs: tuple[JobPlan, ...], group: tuple[OwnerRequest, ...]
    ) -> None:
        ids = {} if name == OWNER else self._ids()
        core = self._numbered(name, lambda: Owner(jobs, group, ids), OfClient())
        self.start(self.add(name, core))

    def _ids(self) -> dict[int, int]:
        """Return the ids of the jobs that are submitted, by place."""
        core: Any = self.stations[OWNER].core
        ids: dict[int, int] = core.machine.core_in(core.state).ids
        return dict(ids)

    def read_store(self) -> None:
        """Let the store have the values of this state."""
        core: Any = self.stations[KVS_MODULE].core
        core.machine.core_in(core.state)

    def unanswered(self) -> list[str]:
        """Return the clients that wait for an answer, or for the id of a job."""
        clients = [OWNER, *self._groups]
        return [name for name in clients if name not in self.stations or self._waits(name)]

    def _waits(self, name: str) -> bool:
        core: Any = self.stations[name].core
        return bool(core.machine.core_in(core.state).waiting)

    def _start_ready_clients(self) -> bool:
        """Start the clients whose jobs have an id by now; return whether there was one."""
        waiting = [name for name in self._groups if name not in self.stations]
        known = set(self._ids()) if waiting else set()
        ready = [name for name in waiting if known >= _jobs_of(self._groups[name])]
        for name in ready:
            self._start_client(name, (), self._groups[name])
        return bool(ready)

    # --- choices

    def choices(self) -> list[Choice]:
        """Return what may happen next, in an order that is always the same."""
        found: list[Choice] = []
        for name, station in sorted(self.stations.items()):
            if name not in self._within:
                found += [Take(name, sender) for sender in station.senders]
            found += [Fire(name, place) for place in range(len(station.timers_at(math.inf)))]
        for place in self.left:
            fault = self.plan.faults[place]
            if fault.module in self.stations:  # type: ignore[attr-defined]
                found.append(Strike(place))
        # A module that ends by itself since another one is missing would end again, without end.
        found += [Load(name) for name in self._missing() if name != self._tried]
        return found

    def _missing(self) -> list[str]:
        return [name for name in self.modules if name not in self.stations and name not in LEFT_OUT]

    def do(self, choice: Choice) -> None:
        """Let the choice happen."""
        self._is_put_down = False
        match choice:
            case Take(name, sender):
                station = self.stations[name]
                self._take(station, station.pop_from(sender))
            case Fire(name, place):
                station = self.stations[name]
                key = station.timers_at(math.inf)[place]
                station.clear_timer(key)
                self.let_take(station, [TimerFired(key)])
            case Strike(place):
                self.left = tuple(each for each in self.left if each != place)
                self._strike(self.plan.faults[place])
            case Load(name):
                self._tried = name if len(self._missing()) > 1 else ""
                self.load(name)
        self.do_within()

    def _do_here(self, party: Station, action: RunnerAction[Hashable] | Subscribe) -> None:
        if not (isinstance(action, SetTimer) and action.key in UNEXPLORED_TIMERS):
            super()._do_here(party, action)

    def _strike(self, fault: Fault) -> None:
        if self._tried == fault.module:  # type: ignore[attr-defined]
            self._tried = ""
        match fault:
            case Crash(module):
                self.crash(module)
            case Return(module):
                self.let_return(module)
            case Unload(module):
                self.unload(module)

    def do_within(self) -> None:
        """Let the kvs, job-ingest and the clients take what reaches them, oldest first."""
        again = True
        while again:
            again = False
            for name in self._within:
                station = self.stations.get(name)
                if station is None:
                    continue
                while station.has_message:
                    again = True
                    self._take(station, *self._oldest(station))
                if due := self._due(station):
                    again = True
                    for key in due:
                        station.clear_timer(key)
                    self.let_take(station, [TimerFired(key) for key in due])
            again |= self._start_ready_clients()

    def _oldest(self, station: SmallStation) -> list[Waiting]:
        """Return the oldest message; for job-ingest all: submissions of one turn are one batch."""
        taken = [station.pop_oldest()]
        while station.name == INGEST and station.has_message:
            taken.append(station.pop_oldest())
        return taken

    def _due(self, station: SmallStation) -> list[Any]:
        """Return the next timer that is due, if any; of jobs with the same time all."""
        due = station.timers_at(self.passed)
        if station.name != OWNER or not due:
            return due[:1]
        times = [each.at for each in self.plan.jobs]
        return [place for place in due if times[place] == times[due[0]]]  # type: ignore[call-overload]

    def let_take(self, station: SmallStation, inputs: list[Any]) -> None:
        """Let a party have one whole turn with these inputs, which no fault interrupts."""
        self._taken = (station, inputs)
        self._is_stopping = False
        self._go_on()

    def _take(self, station: SmallStation, *taken: Waiting) -> None:
        self.trace.received_all(station.name, taken)
        self.let_take(station, [message for _, message in taken])

    # --- put down and taken up

    def put_down(self) -> WorldState:
        """Return the state of the world."""
        last, self._last = self._last, {}
        for name, station in self.stations.items():
            core: Any = station.core
            nbefore = int(station.peer.routes[1]) if len(station.peer.routes) > 1 else 0
            state = PartyState(name, nbefore, core.state, station.put_down())
            before = last.get(name)
            self._last[name] = state if before is None or before != state else before
        self._is_put_down = True
        return WorldState(
            tuple(self._last.values()),
            tuple(self.router.ended.items()),
            tuple(self._nbefore.items()),
            self.left,
            self._tried,
            frozenset(self.jobs.active),
            self.router.sequence,
        )

    def take_up(self, state: WorldState) -> None:
        """Replace the state by one that `put_down` has returned."""
        self.left = state.left
        self._tried = state.tried
        self.jobs.active = set(state.active)
        self._nbefore.clear()
        self._nbefore.update(dict(state.nbefore))
        self.errors.clear()
        self.log.clear()
        self.logged.clear()
        router = self.router
        router.ended = dict(state.ended)
        router.sequence = state.sequence
        router.peers.clear()
        router.services.clear()
        last = self._last if self._is_put_down else {}
        self._last = {}
        self.stations.clear()
        for party in state.parties:
            name = party.name
            station = self._pool[name, party.nbefore]
            if last.get(name) is not party:
                self._take_up_party(station, party)
            self._last[name] = party
            self.stations[name] = station
            router.peers[name] = station.peer
            for service in station.peer.services:
                router.services[service] = station.peer
        station.peer.subscriptions.changed()
        self._is_put_down = True

    def _take_up_party(self, station: SmallStation, party: PartyState) -> None:
        station.take_up(party.station)
        core: Any = station.core
        core.state = party.core
        plan = self._plans.get(party.name)
        if plan is not None:
            station.peer.services = set(plan.services)

    def add(self, name: str, *args: Any, **more: Any) -> SmallStation:
        """Add a party, and keep its station for states in which it is there again."""
        station = cast(SmallStation, super().add(name, *args, **more))
        self._pool[name, self._nbefore[name] - 1] = station
        return station


def _check(plan: Plan) -> None:
    for fault in plan.faults:
        if not isinstance(fault, Crash | Return | Unload) or fault.module not in MORTAL:
            raise UnsuitablePlan(
                f"expected faults crash, return and unload of {', '.join(MORTAL)}, "
                f"got {name_of_fault(fault)}"
            )
    for action in plan.actions:
        if action.what in _OF_LEFT_OUT:
            without = f"expected actions that do without {', '.join(LEFT_OUT)}, which is not loaded"
            raise UnsuitablePlan(f"{without}, got {action.what}")
    if (plan.depth, plan.store) != ("cores", "memory"):
        where = f"depth {plan.depth} with the store {plan.store}"
        raise UnsuitablePlan(
            f"only the cores, with their store in memory, are explored, not {where}"
        )
    if plan.plugins:
        raise UnsuitablePlan("plugins of files are not explored")


def _in_memory(store: Store) -> MemoryStore:
    assert isinstance(store, MemoryStore), store  # see `_check`
    return store


def _groups(plan: Plan) -> dict[str, tuple[OwnerRequest, ...]]:
    """Return by name of a client the requests that it makes, in order."""
    groups: dict[Any, list[OwnerRequest]] = {}
    for place, action in enumerate(plan.actions):
        at_once = msgspec.structs.replace(action, at=0.0)
        groups.setdefault(_PAIRS.get(action.what, place), []).append(at_once)
    return {f"user{number}": tuple(group) for number, group in enumerate(groups.values(), 1)}


def _jobs_of(group: tuple[OwnerRequest, ...]) -> set[int]:
    return {each.job for each in group if each.what in JOB_ACTIONS}
