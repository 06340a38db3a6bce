"""A message on its way: it was sent, and its receiver has not taken it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flux_trio.lab.catalogue.base import check_seconds
from flux_trio.messages import Message

if TYPE_CHECKING:
    from flux_trio.lab.world.cores_world import CoresWorld
    from flux_trio.lab.world.station import Station


@dataclass(frozen=True)
class Flight:
    """A message to `station`; `ref` is the place of its send in the trace.

    When the message has been taken, or its receiver is gone, the methods do nothing.
    """

    world: CoresWorld
    station: Station
    ref: int
    message: Message

    def hold(self) -> None:
        """Let it wait until `release`, and what its sender sends the receiver after it, too."""
        self.station.hold(self.ref)

    def release(self) -> None:
        """Let a held message go on."""
        self.station.release(self.ref)

    def delay(self, seconds: float) -> None:
        """Hold it for so many seconds; FormatError unless a plan can have that time."""
        check_seconds(seconds)
        self.hold()
        self.world.later(seconds, self.release)

    def let_overtake(self, count: int) -> None:
        """Hold it until the receiver has taken `count` messages of other senders."""
        self.station.hold(self.ref, count)

    def drop(self) -> None:
        """Lose it."""
        if self.station.remove(self.ref):
            self.world.trace.dropped(self.station.name, self.message, self.ref, "lost on its way")

    def duplicate(self) -> None:
        """Let it arrive twice."""
        self.station.insert_after(self.ref)

    def jump_queue(self) -> None:
        """Let it arrive before the messages that its sender has sent the receiver before."""
        self.station.put_first(self.ref)
