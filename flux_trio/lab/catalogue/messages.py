"""Faults of messages on their way.

Between two parties that stay connected, messages keep their order and none is lost (RFC 6). The
first three faults keep this promise; the others break it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from flux_trio.lab.catalogue.aim import Drawer, message, message_sent, number, one_of
from flux_trio.lab.catalogue.base import DrawnFault, Holds, fault
from flux_trio.lab.catalogue.places import (
    Count,
    Seconds,
    SentMessage,
    When,
    check_seconds,
    check_which,
)
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.station import Station
from flux_trio.messages import Message


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
        """Let the message wait until `release`; what its sender sends the receiver after it waits,
        too.
        """
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
        """Let the message be lost."""
        if self.station.remove(self.ref):
            self.world.trace.dropped(self.station.name, self.message, self.ref, "lost on its way")

    def duplicate(self) -> None:
        """Let the message arrive twice."""
        self.station.insert_after(self.ref)

    def jump_queue(self) -> None:
        """Let it arrive before the messages that its sender has sent the receiver before."""
        self.station.put_first(self.ref)


class OnTheWay(DrawnFault, frozen=True):
    """A fault of the message `which` on its way: it was sent and is not received yet."""

    which: SentMessage

    def __post_init__(self) -> None:
        check_which(self.which)

    draws: ClassVar[tuple[Drawer, ...]] = (message_sent,)

    @property
    def place(self) -> SentMessage:
        return self.which

    @property
    def until(self) -> When | None:
        """The moment at which the message is released, if it is held until a moment; else None."""
        return None

    @abstractmethod
    def apply(self, flight: Flight) -> None:
        """Hold, delay, drop or duplicate the message."""


@fault
class Delay(OnTheWay, frozen=True):
    """The message arrives `seconds` later, and so does what its sender sends after it."""

    seconds: Seconds = 1.0

    draws = (message_sent, one_of(0.1, 2.0))

    def apply(self, flight: Flight) -> None:
        flight.delay(self.seconds)


@fault
class Overtaken(OnTheWay, frozen=True):
    """The message arrives after the receiver has taken `by` messages of others."""

    by: Count = 1

    draws = (message_sent, number(1, 5))

    def apply(self, flight: Flight) -> None:
        flight.let_overtake(self.by)


@fault
class HeldUntil(OnTheWay, frozen=True):
    """The message arrives after another message was sent or received, or when all is at rest."""

    until: When

    draws = (message_sent, message)

    def apply(self, flight: Flight) -> None:
        flight.hold()


@fault
class Drop(OnTheWay, frozen=True):
    """The message is lost, although both parties stay connected."""

    holds: ClassVar[Holds] = Holds.NO_ERROR

    def apply(self, flight: Flight) -> None:
        flight.drop()


@fault
class Duplicate(OnTheWay, frozen=True):
    """The message arrives twice."""

    holds: ClassVar[Holds] = Holds.NO_ERROR

    def apply(self, flight: Flight) -> None:
        flight.duplicate()


@fault
class JumpQueue(OnTheWay, frozen=True):
    """The message arrives before those that its sender has sent the receiver before it."""

    holds: ClassVar[Holds] = Holds.NO_ERROR

    def apply(self, flight: Flight) -> None:
        flight.jump_queue()
