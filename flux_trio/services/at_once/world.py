"""A world: the cores of modules and clients on one router, in virtual time and without Trio.

A step is one turn of one party, or the next moment when nobody has anything to do. An `Order` says
who is next and what it takes: `InLine` here, and a drawn one in worlds with faults.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, assert_never

from flux_trio.broker import LogBook, LogEntry, Router
from flux_trio.broker.router import BATCH_MAX
from flux_trio.cores.pages import page_size
from flux_trio.cores.turns import (
    ClearTimer,
    CommonAction,
    Core,
    Exit,
    Log,
    Note,
    NoteAll,
    Outgoing,
    RunnerAction,
    SetTimer,
)
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER, Event, Message, Request, Response
from flux_trio.services.at_once.party import Party, Waiting
from flux_trio.trace import Kind, Trace

_MESSAGES: Final = frozenset({Request, Response, Event})

PartyT = TypeVar("PartyT", bound=Party)


class ModuleEnded(Exception):
    """A module cannot go on; the text names it and says why."""


class Order(Protocol[PartyT]):
    """Who is next in a world, and what it takes in its turn. Times are in seconds that passed."""

    def waits(self, party: Party, at: float | None = None) -> None:
        """Note that a message has come for a party; with `at`, that a timer was set."""

    def forget(self, party: PartyT) -> None:
        """Note that a party is gone."""

    def look(
        self, parties: Mapping[str, PartyT], passed: float, moment: float | None
    ) -> tuple[Sequence[PartyT], float | None]:
        """Return who can have a turn, and the next moment at which something happens.

        That is `moment`, or the next timer if it fires before; None: never.
        """

    def next_of(self, ready: Sequence[PartyT], at: float | None, passed: float) -> PartyT | None:
        """Return which of the `ready` parties acts next; None if time passes, to `at`."""

    def messages_for(self, party: PartyT, passed: float) -> list[Waiting]:
        """Return the messages that a party takes in its turn, which begins.

        If there are none, the timers of the party fire.
        """


class InLine:
    """Who got something first goes first.

    A turn takes what waits, up to BATCH_MAX messages; timers that are due get a turn of their own
    after it. That is one of the orders in which Trio runs the services of an instance: so the same
    things happen there at the same times.
    """

    def __init__(self) -> None:
        self._line: OrderedDict[Party, None] = OrderedDict()
        self._timers: list[tuple[float, int, Party]] = []  # a heap; some fire no more
        self._count = 0  # of the timers that were set
        self._fires: Party | None = None  # has taken messages, and may have timers that are due

    def waits(self, party: Party, at: float | None = None) -> None:
        if at is None:
            self._line.setdefault(party)
        else:
            self._count += 1
            heapq.heappush(self._timers, (at, self._count, party))

    def forget(self, party: Party) -> None:
        self._line.pop(party, None)
        if self._fires is party:
            self._fires = None

    def look(
        self, _parties: object, passed: float, moment: float | None
    ) -> tuple[tuple[()], float | None]:
        # who can have a turn stands in the line
        timers = self._timers
        while timers:
            at, _, party = timers[0]
            next_timer = party.next_timer
            if next_timer is not None and next_timer <= at:  # else this one is set no more
                if at > passed:
                    return (), at if moment is None else min(at, moment)
                self._line.setdefault(party)
            heapq.heappop(timers)
        return (), moment

    def next_of(self, _ready: object, _at: float | None, passed: float) -> Party | None:
        fires = self._fires
        if fires is not None and fires.next_timer is not None and fires.next_timer <= passed:
            return fires
        self._fires = None
        return self._line.popitem(last=False)[0] if self._line else None

    def messages_for(self, party: Party, _passed: float) -> list[Waiting]:
        if party is self._fires:
            self._fires = None
            return []
        taken = [party.pop_oldest() for _ in range(min(party.nwaiting, page_size(BATCH_MAX)))]
        if party.nwaiting:
            self._line.setdefault(party)
        self._fires = party if taken else None
        return taken


class World(Generic[PartyT]):
    """Parties on one router; `order` says who is next. `owner` is the instance owner's userid.

    `make_party` makes a party, with the arguments of `Party`. `passed` is the time in seconds since
    the Unix epoch, which begins at `epoch`.
    """

    def __init__(
        self, epoch: float, owner: int, order: Order[PartyT], make_party: Callable[..., PartyT]
    ) -> None:
        self.passed = epoch
        self.order = order
        self.stations: dict[str, PartyT] = {}
        self.trace = Trace(lambda: self.now)
        self.log = LogBook()
        self.router = Router(self.trace)
        self._owner = owner
        self._make_party = make_party
        self._nbefore: Counter[str] = Counter()  # by name: parties in this life
        self._modules: list[str] = []  # that were loaded, in order
        self._is_stopping = False

    @property
    def now(self) -> float:
        """The time on the wall clock, in seconds since the Unix epoch."""
        return self.passed

    # --- parties

    def add(self, name: str, core: Core[Any, Any, Any], userid: int | None = None) -> PartyT:
        """Add a party; without `userid` it is the instance owner's. It has no turn before `start`.

        Other users have a guest's rights.
        """
        user = self._owner if userid is None else userid
        rolemask = ROLE_LOCAL | (ROLE_OWNER if user == self._owner else ROLE_USER)
        nbefore = self._nbefore[name]
        self._nbefore[name] += 1
        party = self._make_party(
            name, core, user, rolemask, self.sender_of, nbefore, self.order.waits
        )
        self.router.add(party.peer)
        self.stations[name] = party
        return party

    def sender_of(self, _message: Message) -> str:
        """Return the party whose place in the order a message has: here all have one."""
        return ""

    def add_module(
        self, name: str, core: Core[Any, Any, Any], services: Iterable[str], events: Iterable[str]
    ) -> None:
        """Add a module and start its core."""
        party = self.add(name, core)
        for service in services:
            self.router.register(party.peer, service)
        for event in events:
            party.subscribe(event)
        self._modules.append(name)
        self.start(party)
        if self.is_loaded(party):
            self._note_module(name, "started")

    def start(self, party: PartyT) -> None:
        """Start the core of a party that was added, and perform its first actions."""
        self.perform(party, party.core.start(self.now))

    def is_loaded(self, party: Party) -> bool:
        """Whether a party is there still."""
        return self.stations.get(party.name) is party

    def remove(self, name: str, reason: str = "") -> bool:
        """Disconnect a party; return whether it was connected.

        `reason` tells the others why it ended by itself; it is empty if it was removed in order.
        """
        party = self.stations.pop(name, None)
        if party is None:
            return False
        self.order.forget(party)
        self._disconnect(party, reason)
        return True

    def _disconnect(self, party: PartyT, reason: str) -> None:
        self.router.remove(party.peer, party.undelivered(), reason)

    def crash(self, name: str, reason: str) -> None:
        """End a module with an error. Here it raises ModuleEnded: nothing starts it again."""
        raise ModuleEnded(f"{name}: {reason}")

    def end(self) -> None:
        """Remove all modules in order, the last one first."""
        self.trace.note(Kind.INSTANCE, "broker", {"what": "ending"})
        for name in reversed(self._modules):
            self.remove(name)
            self._note_module(name, "removed")
            self.settle()

    def _note_module(self, name: str, what: str, **more: Any) -> None:
        self.trace.note(Kind.MODULE, "broker", {"module": name, "what": what, **more})

    def write_log(self, name: str, level: int, text: str) -> None:
        """Write a line of a party to the log."""
        self.log.write(LogEntry(self.now, level, name, text))

    # --- steps

    def run(self) -> None:
        """Go on until `stop` is called, or nothing is left to happen. Raises ModuleEnded."""
        while not self._is_stopping and self.step():
            pass

    def stop(self) -> None:
        """Let `run` return after this turn; in a world with faults, interrupt the turn."""
        self._is_stopping = True

    def settle(self) -> None:
        """Go on until nobody has anything to do now. Raises ModuleEnded."""
        while (party := self.order.next_of(*self._look(), self.passed)) is not None:
            self._begin_turn(party)

    def step(self) -> bool:
        """Let one thing happen; False if nothing is left to happen."""
        ready, at = self._look()
        if (party := self.order.next_of(ready, at, self.passed)) is not None:
            self._begin_turn(party)
            return True
        return self._pass_time(ready, at)

    def _look(self) -> tuple[Sequence[PartyT], float | None]:
        """Return who can have a turn, and the next moment; None: never."""
        return self.order.look(self.stations, self.passed, None)

    def _pass_time(self, _ready: Sequence[PartyT], at: float | None) -> bool:
        """Go to the next moment; return False if there is none."""
        if at is None:
            return False
        self.passed = max(self.passed, at)
        return True

    def _begin_turn(self, party: PartyT) -> None:
        if inputs := self._inputs_of(party):
            self._decide(party, inputs)

    def _inputs_of(self, party: PartyT) -> list[Any]:
        """Take the messages that a party gets in its turn, or the timers that are due."""
        if taken := self.order.messages_for(party, self.passed):
            party.peer.guests.clear()
            self.trace.received_all(party.name, taken)
            return [message for _, message in taken]
        return list(party.pop_due(self.passed))

    def _decide(self, party: PartyT, inputs: Sequence[Any]) -> None:
        self.perform(party, party.core.turn(self.now, inputs))

    # --- actions

    def send(self, party: PartyT, message: Outgoing) -> None:
        """Send a message in the name of a party."""
        self.router.route(party.peer, message)

    def perform(self, party: PartyT, actions: Iterable[CommonAction[Hashable]]) -> None:
        """Perform the actions of a party one by one."""
        for action in actions:
            self._do(party, action)

    def _do(self, party: PartyT, action: CommonAction[Hashable]) -> None:
        if type(action) in _MESSAGES:  # isinstance of a Struct costs several times as much
            self.send(party, action)  # type: ignore[arg-type]
        else:
            self._do_here(party, action)  # type: ignore[arg-type]

    def _do_here(self, party: PartyT, action: RunnerAction[Hashable]) -> None:
        match action:
            case SetTimer(key, at):
                self._set_timer(party, key, at)
            case ClearTimer(key):
                party.clear_timer(key)
            case Log(level, text):
                self.write_log(party.name, level, text)
            case Note(kind, data):
                self.trace.note(kind, party.name, data)
            case NoteAll(notes):
                self.trace.note_all(party.name, notes)
            case Exit(reason):
                self.crash(party.name, reason)
            case _:
                assert_never(action)

    def _set_timer(self, party: PartyT, key: Hashable, at: float) -> None:
        party.set_timer(key, at)
        self.order.waits(party, at if at > self.passed else None)
