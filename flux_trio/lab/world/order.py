"""Who is next in a world, and what is to happen at later moments."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from flux_trio.lab.world.station import Station, Waiting

BATCHES: Final = (1, 2, 3, 4)  # how many messages a module takes in one turn, at most
LATE_S_MAX: Final = 2.0  # how much time passes at most while messages wait


class Agenda:
    """Calls by their times, in seconds since the Unix epoch; calls of one time keep their order."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = itertools.count()

    @property
    def next_at(self) -> float | None:
        """Return the time of the next call; None without one."""
        return self._entries[0][0] if self._entries else None

    def add(self, at: float, do: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call `do(*args)` at this time."""
        heapq.heappush(self._entries, (at, next(self._count), do, args))

    def do_due(self, now: float) -> None:
        """Make the calls whose time has come, also those that are added meanwhile."""
        while self._entries and self._entries[0][0] <= now:
            _, _, do, args = heapq.heappop(self._entries)
            do(*args)


class DrawnOrder:
    """Draws from `seed` who is next, and which messages have reached it.

    `late` is how often time passes although messages wait, from 0 to 1. Times are in seconds that
    have passed, whatever the wall clock says.
    """

    def __init__(self, seed: int, late: float) -> None:
        self._draw = random.Random(seed)
        self._late = late
        self._hung: dict[str, float] = {}  # modules that take nothing in, until when
        self._slow: dict[str, tuple[float, float]] = {}  # pause after each turn, until when

    # --- modules that hang or are slow

    def let_hang(self, name: str, until: float) -> None:
        """Let a module have no turn until then."""
        self._hung[name] = until

    def slow_down(self, name: str, pause: float, until: float) -> None:
        """Let a module take one message a turn, and pause so many seconds after it, until then."""
        self._slow[name] = (pause, until)

    def forget(self, name: str) -> None:
        """A module has ended; the next one of its name neither hangs nor is slow."""
        self._hung.pop(name, None)
        self._slow.pop(name, None)

    def forget_all(self) -> None:
        """All modules have ended."""
        self._hung.clear()
        self._slow.clear()

    def hangs_until(self, name: str) -> float:
        """Return until when a module hangs."""
        return self._hung.get(name, 0.0)

    def pause_of(self, name: str, passed: float) -> float | None:
        """Return how long a slow module pauses after each turn; None for one that is not slow."""
        pause, until = self._slow.get(name, (0.0, 0.0))
        return pause if until > passed else None

    def is_prompt(self, name: str, passed: float) -> bool:
        """Whether a module neither hangs nor is slow."""
        return self.hangs_until(name) <= passed and self.pause_of(name, passed) is None

    # --- the next turn

    def look(
        self, stations: Iterable[tuple[str, Station]], passed: float, moment: float | None
    ) -> tuple[list[Station], float | None]:
        """Return who can have a turn, and the next moment at which something happens.

        That is `moment`, or the next timer if it fires before; None: never.
        """
        hung = self._hung
        ready: list[Station] = []
        for name, station in stations:
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

    def next_of(self, ready: list[Station], at: float | None, passed: float) -> Station | None:
        """Return who of those that are `ready` has the next turn; None: time passes, to `at`."""
        is_near = at is not None and at <= passed + LATE_S_MAX
        if not ready or (self._late and is_near and self._draw.random() < self._late):
            return None
        return self._draw.choice(ready)

    def messages_for(self, station: Station, passed: float) -> list[Waiting]:
        """Return the messages that a party takes in its turn; none: its timers fire."""
        at = station.next_timer
        is_due = at is not None and at <= passed
        if not station.has_message or (is_due and self._draw.random() < 0.5):
            return []
        count = self.batch(BATCHES)
        return self.take(station, count if self.pause_of(station.name, passed) is None else 1)

    def batch(self, sizes: Sequence[int]) -> int:
        """Return how many messages are taken at most, one of `sizes`."""
        return self._draw.choice(sizes)

    def take(self, station: Station, count: int) -> list[Waiting]:
        """Return at most `count` messages that a party takes."""
        return station.take(count, self._draw)
