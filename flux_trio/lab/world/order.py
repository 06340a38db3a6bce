"""Who is next in a world, and what is to happen at later moments."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from flux_trio.lab.world.station import Station
from flux_trio.services.at_once import Order, Party, Waiting

BATCHES: Final = (1, 2, 3, 4)  # how many messages a module takes in one turn, at most
LATE_S_MAX: Final = 2.0  # how much time passes at most while messages wait


class Agenda:
    """The functions that are to be called at later times, which are in seconds since the Unix
    epoch.

    Calls of one time are made in the order in which they were added.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = itertools.count()

    @property
    def next_at(self) -> float | None:
        """The time of the next call; None if there is none."""
        return self._entries[0][0] if self._entries else None

    def add(self, at: float, do: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Have `do(*args)` called at the time `at`."""
        heapq.heappush(self._entries, (at, next(self._count), do, args))

    def do_due(self, now: float) -> None:
        """Make all calls whose time has come by `now`, also those that are added meanwhile."""
        while self._entries and self._entries[0][0] <= now:
            _, _, do, args = heapq.heappop(self._entries)
            do(*args)


class DrawnOrder(Order[Station]):
    """Draws which party of a world acts next, and what it takes in its turn.

    The same `seed` draws the same order. `late` is how often time passes although messages wait,
    from 0 to 1. Times are in seconds that passed, which no setting of the wall clock changes.
    """

    def __init__(self, seed: int, late: float) -> None:
        self._draw = random.Random(seed)
        self._late = late
        self._hung: dict[str, float] = {}  # modules that take nothing in, until when
        self._slow: dict[str, tuple[float, float]] = {}  # pause after each turn, until when

    # --- modules that hang or are slow

    def let_hang(self, name: str, until: float) -> None:
        """Give a module no turn before the time `until`."""
        self._hung[name] = until

    def slow_down(self, name: str, pause: float, until: float) -> None:
        """Until then, give a module one message a turn, and a pause of so many seconds after it."""
        self._slow[name] = (pause, until)

    def forget(self, party: Station) -> None:
        """Note that a module has ended: the next one of its name neither hangs nor is slow."""
        self._hung.pop(party.name, None)
        self._slow.pop(party.name, None)

    def forget_all(self) -> None:
        """Note that all modules have ended, with the instance."""
        self._hung.clear()
        self._slow.clear()

    def hangs_until(self, name: str) -> float:
        """Return the time at which a module that hangs goes on; 0 if it never hung."""
        return self._hung.get(name, 0.0)

    def pause_of(self, name: str, passed: float) -> float | None:
        """Return for how many seconds a slow module pauses after a turn; None if it is not slow."""
        pause, until = self._slow.get(name, (0.0, 0.0))
        return pause if until > passed else None

    def is_prompt(self, name: str, passed: float) -> bool:
        """Whether a module neither hangs nor is slow."""
        return self.hangs_until(name) <= passed and self.pause_of(name, passed) is None

    # --- the next turn

    def waits(self, party: Party, at: float | None = None) -> None:
        """Do nothing: `look` looks at all parties anyway."""

    def look(
        self, parties: Mapping[str, Station], passed: float, moment: float | None
    ) -> tuple[list[Station], float | None]:
        """Return the parties that can have a turn, and the next moment (see `Order`)."""
        hung = self._hung
        ready: list[Station] = []
        for name, station in parties.items():
            if hung and hung.get(name, 0.0) > passed:
                continue
            at = station.next_timer
            if at is not None and at > passed:
                if moment is None or at < moment:
                    moment = at
                at = None
            if at is not None or (station.nwaiting and station.has_message):
                ready.append(station)
        return ready, moment

    def next_of(self, ready: Sequence[Station], at: float | None, passed: float) -> Station | None:
        """Draw which of the `ready` parties acts next, or that time passes (see `Order`)."""
        is_near = at is not None and at <= passed + LATE_S_MAX
        if not ready or (self._late and is_near and self._draw.random() < self._late):
            return None
        return self._draw.choice(ready)

    def messages_for(self, station: Station, passed: float) -> list[Waiting]:
        """Draw the messages that a party takes in its turn (see `Order`)."""
        at = station.next_timer
        is_due = at is not None and at <= passed
        if not station.has_message or (is_due and self._draw.random() < 0.5):
            return []
        count = self.batch(BATCHES)
        return self.pop_messages(
            station, count if self.pause_of(station.name, passed) is None else 1
        )

    def batch(self, sizes: Sequence[int]) -> int:
        """Draw the greatest number of messages of a turn, one of `sizes`."""
        return self._draw.choice(sizes)

    def pop_messages(self, station: Station, count: int) -> list[Waiting]:
        """Remove at most `count` of the messages that wait for a party and return them; the senders
        are drawn.
        """
        return station.pop_drawn(count, self._draw)
