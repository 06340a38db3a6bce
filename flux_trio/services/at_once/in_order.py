"""Modules that take their turns in order: who got something first goes first, without Trio.

A turn takes what waits, up to BATCH_MAX messages; timers that are due get a turn of their own after
it. Time stands still while something waits, and then goes to the next timer. That is one of the
orders in which Trio runs the services of an instance: so the same things happen there at the same
times. Left out: a disk, users or plugins that let a module wait.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any, Final, assert_never

from flux_trio.broker import LogBook, LogEntry, Peer, Router
from flux_trio.broker.router import BATCH_MAX
from flux_trio.cores.turns import (
    ClearTimer,
    CommonAction,
    Core,
    Exit,
    Log,
    Note,
    NoteAll,
    RunnerAction,
    SetTimer,
    TimerFired,
)
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER, Event, Message, Request, Response
from flux_trio.trace import Kind, Trace

_MESSAGES: Final = frozenset({Request, Response, Event})


class ModuleEnded(Exception):
    """A module cannot go on; the text names it and says why."""


class Seat:
    """A party: its peer at the router, its core, what waits for it, and its timers."""

    __slots__ = ("core", "due", "inbox", "is_ready", "name", "peer", "timers")

    def __init__(self, name: str, core: Core[Any, Any, Any]) -> None:
        self.name = name
        self.core = core
        self.inbox: list[tuple[int, Message]] = []
        self.is_ready = False  # whether it is in line for a turn
        self.timers: dict[Hashable, tuple[float, int]] = {}  # time and number of each that is set
        self.due: list[tuple[Hashable, tuple[float, int]]] = []  # those that fire now
        self.peer: Peer

    def takes(self, key: Hashable, order: tuple[float, int]) -> bool:
        """Return whether the timer is still set so, and forget it."""
        if self.timers.get(key) != order:
            return False
        del self.timers[key]
        return True


class InOrder:
    """Parties on one router; `owner` is the instance owner's userid.

    `now` is the time in seconds since the Unix epoch, which begins at `epoch`.
    """

    def __init__(self, epoch: float, owner: int) -> None:
        self.time = epoch
        self._owner = owner
        self.trace = Trace(self.now)
        self.log = LogBook()
        self.router = Router(self.trace)
        self._modules: dict[str, Seat] = {}  # in the order of their start
        self._line: deque[Seat] = deque()
        self._timers: list[tuple[float, int, Seat, Hashable]] = []
        self._count = 0  # of the timers that were set
        self._stopped = False

    def now(self) -> float:
        """Return the time."""
        return self.time

    def add(self, name: str, core: Core[Any, Any, Any], userid: int | None = None) -> Seat:
        """Add a party; without `userid` it is the instance owner's. It has no turn before `start`.

        Other users have a guest's rights.
        """
        line, seat = self._line, Seat(name, core)
        user = self._owner if userid is None else userid
        rolemask = ROLE_LOCAL | (ROLE_OWNER if user == self._owner else ROLE_USER)

        def deliver(ref: int, message: Message) -> None:
            seat.inbox.append((ref, message))
            if not seat.is_ready:
                seat.is_ready = True
                line.append(seat)

        seat.peer = Peer(name, user, rolemask, deliver, lambda: len(seat.inbox))
        self.router.add(seat.peer)
        return seat

    def load(
        self, name: str, core: Core[Any, Any, Any], services: Iterable[str], events: Iterable[str]
    ) -> None:
        """Add a module and start its core."""
        seat = self._modules[name] = self.add(name, core)
        for service in services:
            self.router.register(seat.peer, service)
        for event in events:
            seat.peer.subscriptions.add(event)
        self.start(seat)
        self.trace.note(Kind.MODULE, "broker", {"module": name, "what": "started"})

    def remove(self, seat: Seat) -> None:
        """Remove a party, and let the others take what that means for them."""
        if seat.is_ready:
            self._line.remove(seat)
        seat.timers.clear()
        self.router.remove(seat.peer, seat.inbox)
        self.take_turns()

    def end(self) -> None:
        """Remove all modules in order, the last one first."""
        self.trace.note(Kind.INSTANCE, "broker", {"what": "ending"})
        for name, seat in reversed(self._modules.items()):
            self.remove(seat)
            self.trace.note(Kind.MODULE, "broker", {"module": name, "what": "removed"})

    def start(self, seat: Seat) -> None:
        """Start the core of a party."""
        self._do_all(seat, seat.core.start(self.time))

    def send(self, seat: Seat, message: Request) -> None:
        """Send a message in the name of a party."""
        self.router.route(seat.peer, message)

    def run(self) -> None:
        """Go on until `stop` is called, or nothing is left to happen. Raises ModuleEnded."""
        line = self._line
        while not self._stopped:
            if line:
                self._take_turn(line.popleft())
            elif not self._pass_time():
                return

    def stop(self) -> None:
        """Let `run` return after this turn."""
        self._stopped = True

    def take_turns(self) -> None:
        """Go on until nothing waits. Raises ModuleEnded."""
        while self._line:
            self._take_turn(self._line.popleft())

    def _take_turn(self, seat: Seat) -> None:
        """Let a party take what waits for it, then the timers that are due."""
        seat.is_ready = False
        if seat.inbox:
            taken, seat.inbox = seat.inbox, []
            if len(taken) > BATCH_MAX:
                taken, seat.inbox = taken[:BATCH_MAX], taken[BATCH_MAX:]
                self._line_up(seat)
            seat.peer.guests.clear()
            self.trace.received_all(seat.name, taken)
            self._do_all(seat, seat.core.turn(self.time, [message for _, message in taken]))
        if seat.due:
            due, seat.due = seat.due, []
            # a message may have cleared one of them, or set it again
            fired: list[Any] = [TimerFired(key) for key, order in due if seat.takes(key, order)]
            if fired:
                self._do_all(seat, seat.core.turn(self.time, fired))

    def _pass_time(self) -> bool:
        """Go to the next timer, and let all fire whose time has come; False if there is none."""
        timers, line = self._timers, self._line
        while timers and (timers[0][0] <= self.time or not line):
            at, count, seat, key = heapq.heappop(timers)
            if seat.timers.get(key) == (at, count):  # else it was cleared, or set again
                self.time = max(self.time, at)
                self._is_due(seat, key, (at, count))
        return bool(line)

    def _is_due(self, seat: Seat, key: Hashable, order: tuple[float, int]) -> None:
        seat.due.append((key, order))
        self._line_up(seat)

    def _line_up(self, seat: Seat) -> None:
        """Let a party have a turn, if it does not wait for one already."""
        if not seat.is_ready:
            seat.is_ready = True
            self._line.append(seat)

    def _do_all(self, seat: Seat, actions: Iterable[CommonAction[Hashable]]) -> None:
        route, peer = self.router.route, seat.peer
        for action in actions:
            if type(action) in _MESSAGES:  # isinstance of a Struct costs several times as much
                route(peer, action)  # type: ignore[arg-type]
            else:
                self._do(seat, action)  # type: ignore[arg-type]

    def _do(self, seat: Seat, action: RunnerAction[Hashable]) -> None:
        match action:
            case SetTimer(key, at):
                self._count += 1
                seat.timers[key] = order = (at, self._count)
                if at <= self.time:
                    self._is_due(seat, key, order)
                else:
                    heapq.heappush(self._timers, (*order, seat, key))
            case ClearTimer(key):
                seat.timers.pop(key, None)
            case Log(level, text):
                self.log.write(LogEntry(self.time, level, seat.name, text))
            case Note(kind, data):
                self.trace.note(kind, seat.name, data)
            case NoteAll(notes):
                self.trace.note_all(seat.name, notes)
            case Exit(reason):
                raise ModuleEnded(f"{seat.name}: {reason}")
            case _:
                assert_never(action)
