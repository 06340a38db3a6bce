"""A party of a world with faults: its messages may be held, lost or doubled on their way."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping
from typing import Any

from flux_trio.broker.router import REQUESTS_WAITING_MAX
from flux_trio.services.at_once import Party, Waiting

_UNTIL_RELEASED = -1


class Station(Party):
    """A party of a world. While messages wait for it, faults may hold, lose, double or reorder
    them.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.is_full = False  # requests are refused
        self.stepped = 0.0  # how far the wall clock was set since the last turn
        self.subscribed: list[str] = []  # the patterns of events that it has asked for
        self._held: dict[int, int] = {}  # place of a send → messages to be taken before

    def _waiting(self) -> int:
        return REQUESTS_WAITING_MAX if self.is_full else self.nwaiting

    # --- messages

    def subscribe(self, pattern: str) -> None:
        self.subscribed.append(pattern)
        super().subscribe(pattern)

    @property
    def has_message(self) -> bool:
        """Whether a message waits that is not held."""
        return bool(self._open_links() if self._held else self.nwaiting)

    def pop_drawn(self, count: int, draw: random.Random) -> list[Waiting]:
        """Remove at most `count` messages and return them, each the first of a drawn sender."""
        taken: list[Waiting] = []
        for _ in range(min(count, self.nwaiting)):
            senders = self._open_links() if self._held else list(self._links)
            if not senders:
                break
            taken.append(self.pop_from(draw.choice(senders)))
            if self._held:
                self._count_down()
        return taken

    def undelivered(self) -> list[Waiting]:
        self._held.clear()
        return super().undelivered()

    # --- messages on their way

    def hold(self, ref: int, count: int = _UNTIL_RELEASED) -> None:
        """Hold the message that was sent at record `ref` of the trace: the party does not get it.

        It waits until the party has taken `count` other messages; by default until `release`.
        """
        if self._find(ref) is not None:
            self._held[ref] = count

    def release(self, ref: int) -> None:
        """Hold the message that was sent at record `ref` no longer."""
        self._held.pop(ref, None)

    def release_all(self) -> bool:
        """Hold no message any longer; return whether one was held."""
        was_held = bool(self._held)
        self._held.clear()
        return was_held

    def remove(self, ref: int) -> bool:
        """Lose the message that was sent at record `ref`; return whether it was still waiting."""
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
        """Let the message that was sent at record `ref` arrive twice."""
        found = self._find(ref)
        if found is not None:
            sender, place = found
            self._links[sender].insert(place, self._links[sender][place])
            self.nwaiting += 1

    def put_first(self, ref: int) -> None:
        """Put the message that was sent at record `ref` before the others of its sender."""
        found = self._find(ref)
        if found is not None:
            sender, place = found
            link = self._links[sender]
            link.appendleft(link[place])
            del link[place + 1]

    def has(self, ref: int) -> bool:
        """Whether the message that was sent at record `ref` still waits for this party."""
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
    def timers(self) -> Mapping[Hashable, tuple[float, int]]:
        """The timers that are set, by their keys: when each fires, and its place in the order."""
        return self._timers.at

    @property
    def last_timer(self) -> float:
        """The time at which the last timer fires, in seconds that passed; 0 without one."""
        return max([at for at, _ in self.timers.values()], default=0.0)

    def adopt_timers(self, other: Station) -> None:
        """Take over the timers of `other`, an earlier station of the same core."""
        self._timers, self.next_timer = other._timers, other.next_timer
