"""One module of a world: its peer at the router, what waits for it, its timers and its core."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from flux_trio.broker import Peer
from flux_trio.cores.turns import Core
from flux_trio.messages import Message


class Station:
    """A loaded module. Messages of one sender wait in the order in which they were sent.

    `sender_of` returns who sends a message that is delivered now: the router does not tell it.
    """

    def __init__(
        self,
        name: str,
        core: Core[Any, Any],
        userid: int,
        rolemask: int,
        sender_of: Callable[[Message], str],
    ) -> None:
        self.name = name
        self.core = core
        self.peer = Peer(name, userid, rolemask, self._deliver, lambda: self.nwaiting)
        self.nwaiting = 0
        self.stepped = 0.0  # how far the wall clock was set since the last turn
        self._sender_of = sender_of
        self._links: dict[str, deque[tuple[int, Message]]] = {}
        self._timers: dict[Hashable, tuple[float, int]] = {}
        self._count = 0

    def _deliver(self, ref: int, message: Message) -> None:
        self._links.setdefault(self._sender_of(message), deque()).append((ref, message))
        self.nwaiting += 1

    def take(self, count: int, draw: random.Random) -> list[tuple[int, Message]]:
        """Return `count` of the waiting messages, each the first of a sender that is drawn."""
        taken = []
        for _ in range(min(count, self.nwaiting)):
            link = draw.choice(list(self._links))
            taken.append(self._links[link].popleft())
            if not self._links[link]:
                del self._links[link]
        self.nwaiting -= len(taken)
        return taken

    def undelivered(self) -> list[tuple[int, Message]]:
        """Return the waiting messages in the order in which they were sent; none waits any more."""
        waiting = list(heapq.merge(*self._links.values(), key=lambda each: each[0]))
        self._links.clear()
        self.nwaiting = 0
        return waiting

    def set_timer(self, key: Hashable, at: float) -> None:
        """Fire `key` at `at`, in seconds that passed; replaces an earlier time."""
        self._count += 1
        self._timers[key] = (at, self._count)

    def clear_timer(self, key: Hashable) -> None:
        self._timers.pop(key, None)

    def next_timer(self) -> float | None:
        """Return when the next timer fires, or None."""
        return min(self._timers.values())[0] if self._timers else None

    def pop_due(self, passed: float) -> list[Any]:
        """Return the keys of the timers whose time has come, earliest first."""
        due = sorted((order, key) for key, order in self._timers.items() if order[0] <= passed)
        for _, key in due:
            del self._timers[key]
        return [key for _, key in due]
