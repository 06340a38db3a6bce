"""One module of a world: its peer at the router, what waits for it, its timers and its core."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from flux_trio.broker import Peer
from flux_trio.broker.router import REQUESTS_WAITING_MAX
from flux_trio.cores.turns import Core
from flux_trio.messages import Message, Request

Waiting = tuple[int, Message]
"""The place of a send in the trace, and the message."""

_UNTIL_RELEASED = -1


class StationState(NamedTuple):
    """What a station has beside its core, as plain values: see `Station.put_down`."""

    links: tuple[tuple[str, tuple[Waiting, ...]], ...]
    timers: tuple[tuple[Hashable, tuple[float, int]], ...]
    called: tuple[str, ...]
    missed: frozenset[str]
    inflight: tuple[tuple[str, tuple[Request, ...]], ...]


class Station:
    """A party of a world: its core, the messages that wait for it, and its timers.

    Messages of one sender wait in the order in which they were sent. `sender_of` returns the sender
    of a message that is delivered. `nbefore` is how many parties of this name there were before.
    """

    def __init__(
        self,
        name: str,
        core: Core[Any, Any, Any],
        userid: int,
        rolemask: int,
        sender_of: Callable[[Message], str],
        nbefore: int = 0,
    ) -> None:
        self.name = name
        self.core = core
        self.peer = Peer(name, userid, rolemask, self._deliver, self._waiting, nbefore)
        self.nwaiting = 0
        self.is_full = False  # requests are refused
        self.stepped = 0.0  # how far the wall clock was set since the last turn
        self.subscribed: list[str] = []  # the patterns of events that it has asked for
        self._sender_of = sender_of
        self._links: dict[str, deque[Waiting]] = {}  # by sender
        self._held: dict[int, int] = {}  # place of a send → messages to be taken before
        self._timers: dict[Hashable, tuple[float, int]] = {}
        self._count = 0
        self.next_timer: float | None = None
        """When the next timer fires; computed from the timers when they change."""

    def _waiting(self) -> int:
        return REQUESTS_WAITING_MAX if self.is_full else self.nwaiting

    # --- messages

    def subscribe(self, pattern: str) -> None:
        """Subscribe to the events whose topic matches `pattern`, from now on."""
        self.subscribed.append(pattern)
        self.peer.subscriptions.add(pattern)

    @property
    def has_message(self) -> bool:
        """Whether a message waits that is not held."""
        return bool(self._open_links() if self._held else self.nwaiting)

    def _deliver(self, ref: int, message: Message) -> None:
        sender = self._sender_of(message)
        link = self._links.get(sender)
        if link is None:
            link = self._links[sender] = deque()
        link.append((ref, message))
        self.nwaiting += 1

    def take(self, count: int, draw: random.Random) -> list[Waiting]:
        """Return at most `count` waiting messages, each the first of a sender that is drawn."""
        taken: list[Waiting] = []
        for _ in range(min(count, self.nwaiting)):
            senders = self._open_links() if self._held else list(self._links)
            if not senders:
                break
            sender = draw.choice(senders)
            link = self._links[sender]
            taken.append(link.popleft())
            if not link:
                del self._links[sender]
            if self._held:
                self._count_down()
        self.nwaiting -= len(taken)
        return taken

    @property
    def senders(self) -> list[str]:
        """The names of those whose messages wait, in order."""
        return sorted(self._links)

    def take_from(self, sender: str) -> Waiting:
        """Take the first message of `sender` and return it."""
        link = self._links[sender]
        taken = link.popleft()
        if not link:
            del self._links[sender]
        self.nwaiting -= 1
        return taken

    def take_oldest(self) -> Waiting:
        """Take the message that was sent first and return it."""
        return self.take_from(min(self._links, key=lambda sender: self._links[sender][0][0]))

    def undelivered(self) -> list[Waiting]:
        """Take all messages that wait, and return them in the order in which they were sent."""
        waiting = list(heapq.merge(*self._links.values(), key=lambda each: each[0]))
        self._links.clear()
        self._held.clear()
        self.nwaiting = 0
        return waiting

    # --- messages on their way

    def hold(self, ref: int, count: int = _UNTIL_RELEASED) -> None:
        """Hold the message whose send has the place `ref` in the trace.

        It waits until the party has taken `count` other messages; by default until `release`.
        """
        if self._find(ref) is not None:
            self._held[ref] = count

    def release(self, ref: int) -> None:
        """Let a message that is held be taken."""
        self._held.pop(ref, None)

    def release_all(self) -> bool:
        """Let all messages that are held be taken; return whether there was one."""
        was_held = bool(self._held)
        self._held.clear()
        return was_held

    def remove(self, ref: int) -> bool:
        """Lose the message that was sent at `ref`; return whether it waited."""
        found = self._find(ref)
        if found is None:
            return False
        sender, place = found
        del self._links[sender][place]
        if not self._links[sender]:
            del self._links[sender]
        self._held.pop(ref, None)
        self.nwaiting -= 1
        return True

    def insert_after(self, ref: int) -> None:
        """Let the message that was sent at `ref` arrive twice."""
        found = self._find(ref)
        if found is not None:
            sender, place = found
            self._links[sender].insert(place, self._links[sender][place])
            self.nwaiting += 1

    def put_first(self, ref: int) -> None:
        """Put the message that was sent at `ref` before the others of its sender."""
        found = self._find(ref)
        if found is not None:
            sender, place = found
            link = self._links[sender]
            link.appendleft(link[place])
            del link[place + 1]

    def has(self, ref: int) -> bool:
        """Whether the message that was sent at `ref` waits."""
        return self._find(ref) is not None

    def _find(self, ref: int) -> tuple[str, int] | None:
        for sender, link in self._links.items():
            for place, (sent, _) in enumerate(link):
                if sent == ref:
                    return sender, place
        return None

    def _open_links(self) -> list[str]:
        return [sender for sender, link in self._links.items() if link[0][0] not in self._held]

    def _count_down(self) -> None:
        """A message was taken."""
        for ref, count in list(self._held.items()):
            if count == 1:
                del self._held[ref]
            elif count > 1:
                self._held[ref] = count - 1

    # --- timers

    @property
    def timers(self) -> Iterable[Hashable]:
        """The keys of the timers that are set."""
        return self._timers

    @property
    def last_timer(self) -> float:
        """The time at which the last timer fires, in seconds that passed; 0 without one."""
        return max([at for at, _ in self._timers.values()], default=0.0)

    def set_timer(self, key: Hashable, at: float) -> None:
        """Let the timer `key` fire at `at`, in seconds that passed, and at no other time."""
        self._count += 1
        self._timers[key] = (at, self._count)
        self._note_next()

    def clear_timer(self, key: Hashable) -> None:
        if self._timers.pop(key, None) is not None:
            self._note_next()

    def _note_next(self) -> None:
        self.next_timer = min(self._timers.values())[0] if self._timers else None

    def pop_due(self, passed: float) -> list[Any]:
        """Remove the timers whose time has come; return their keys, the earliest first."""
        due = sorted((order, key) for key, order in self._timers.items() if order[0] <= passed)
        for _, key in due:
            del self._timers[key]
        self._note_next()
        return [key for _, key in due]

    def timers_at(self, at: float) -> list[Hashable]:
        """Return the keys of the timers that fire by `at`, earliest first."""
        return [key for key, order in sorted(self._timers.items(), key=_time_of) if order[0] <= at]

    def take_timers_of(self, other: Station) -> None:
        """Take over the timers of `other`, an earlier station of the same core."""
        self._timers, self._count = other._timers, other._count
        self._note_next()

    # --- put down and taken up

    def put_down(self) -> StationState:
        """Return the messages, the timers and what the peer knows; no message may be held."""
        peer = self.peer
        return StationState(
            tuple([(sender, tuple(link)) for sender, link in sorted(self._links.items())]),
            tuple(sorted(self._timers.items(), key=_time_of)),
            tuple(peer.called),
            frozenset(peer.missed),
            tuple([(sender, tuple(asked.values())) for sender, asked in peer.inflight.items()]),
        )

    def take_up(self, state: StationState) -> None:
        """Take the messages, the timers and what the peer knows from `put_down`."""
        links, timers, called, missed, inflight = state
        self._links = {sender: deque(waiting) for sender, waiting in links}
        self.nwaiting = sum([len(waiting) for _, waiting in links])
        self._timers = dict(timers)
        self._count = max([count for _, (_, count) in timers], default=0)
        self._note_next()
        peer = self.peer
        peer.called = dict.fromkeys(called)
        peer.missed = set(missed)
        peer.inflight = {
            sender: {request.matchtag: request for request in asked} for sender, asked in inflight
        }


def _time_of(timer: tuple[Hashable, tuple[float, int]]) -> tuple[float, int]:
    return timer[1]
