"""What a world is to do at later moments: faults that end, modules that come back."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


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
