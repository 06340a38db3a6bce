"""One party of a world: its core, its peer at the router, what waits for it, and its timers."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from flux_trio.broker import Peer
from flux_trio.cores.turns import Core, TimerFired
from flux_trio.messages import Message
from flux_trio.services.runner import Timers

Waiting = tuple[int, Message]
"""The place of a send in the trace, and the message."""


class Party:
    """A module or a client of a world. `notify` is called when a message has come for it.

    Messages of one sender wait in the order in which they were sent; `sender_of` returns the sender
    of a message that is delivered. `nbefore` is how many parties of this name there were before.
    Times of timers are in seconds that passed, which no setting of the wall clock changes.
    """

    def __init__(
        self,
        name: str,
        core: Core[Any, Any, Any],
        userid: int,
        rolemask: int,
        sender_of: Callable[[Message], str],
        nbefore: int = 0,
        notify: Callable[[Party], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.core = core
        self.peer = Peer(name, userid, rolemask, self._deliver, self._waiting, nbefore)
        self.nwaiting = 0
        self._notify = notify
        self._sender_of = sender_of
        self._links: dict[str, deque[Waiting]] = {}  # by sender
        self._timers: Timers[Hashable] = Timers()
        self.next_timer: float | None = None
        """When the next timer fires; computed from the timers when they change."""

    def _waiting(self) -> int:
        return self.nwaiting

    # --- messages

    def subscribe(self, pattern: str) -> None:
        """Subscribe to the events whose topic matches `pattern`, from now on."""
        self.peer.subscriptions.add(pattern)

    @property
    def has_message(self) -> bool:
        """Whether a message waits that the party can take now."""
        return self.nwaiting > 0

    def _deliver(self, ref: int, message: Message) -> None:
        sender = self._sender_of(message)
        link = self._links.get(sender)
        if link is None:
            link = self._links[sender] = deque()
        link.append((ref, message))
        self.nwaiting += 1
        self._notify(self)

    def pop_from(self, sender: str) -> Waiting:
        """Remove the first message of `sender` and return it."""
        link = self._links[sender]
        taken = link.popleft()
        if not link:
            del self._links[sender]
        self.nwaiting -= 1
        return taken

    def pop_oldest(self) -> Waiting:
        """Remove the message that was sent first and return it."""
        links = self._links
        if len(links) == 1:
            return self.pop_from(next(iter(links)))
        return self.pop_from(min(links, key=lambda sender: links[sender][0][0]))

    def undelivered(self) -> list[Waiting]:
        """Remove all messages that wait, and return them in the order in which they were sent."""
        waiting = list(heapq.merge(*self._links.values(), key=lambda each: each[0]))
        self._links.clear()
        self.nwaiting = 0
        return waiting

    # --- timers

    def set_timer(self, key: Hashable, at: float) -> None:
        """Let the timer `key` fire at `at`, in seconds that passed, and at no other time."""
        self._timers.set(key, at)
        self.next_timer = self._timers.next_at()

    def clear_timer(self, key: Hashable) -> None:
        self._timers.clear(key)
        self.next_timer = self._timers.next_at()

    def pop_due(self, passed: float) -> list[TimerFired[Hashable]]:
        """Remove and return the timers whose time has come, the earliest first."""
        if self.next_timer is None or self.next_timer > passed:
            return []
        due = self._timers.pop_due(passed)
        self.next_timer = self._timers.next_at()
        return due
