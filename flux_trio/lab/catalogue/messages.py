"""Faults of messages on their way.

Between two parties that stay connected, messages keep their order and none is lost (RFC 6). The
first three faults keep this promise; the others break it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flux_trio.lab.catalogue.base import Count, Holds, OnTheWay, Seconds, When

if TYPE_CHECKING:
    from flux_trio.lab.catalogue.flight import Flight


class Delay(OnTheWay, frozen=True):
    """The message arrives `seconds` later, and so does what its sender sends after it."""

    seconds: Seconds = 1.0

    def befall(self, flight: Flight) -> None:
        flight.delay(self.seconds)


class Overtaken(OnTheWay, frozen=True):
    """The message arrives after the receiver has taken `by` messages of others."""

    by: Count = 1

    def befall(self, flight: Flight) -> None:
        flight.let_overtake(self.by)


class HeldUntil(OnTheWay, frozen=True):
    """The message arrives after another message was sent or received, or when all is at rest."""

    until: When

    def befall(self, flight: Flight) -> None:
        flight.hold()


class Drop(OnTheWay, frozen=True):
    """The message is lost, although both parties stay connected."""

    holds: ClassVar[Holds] = Holds.NO_ERROR

    def befall(self, flight: Flight) -> None:
        flight.drop()


class Duplicate(OnTheWay, frozen=True):
    """The message arrives twice."""

    holds: ClassVar[Holds] = Holds.NO_ERROR

    def befall(self, flight: Flight) -> None:
        flight.duplicate()


class JumpQueue(OnTheWay, frozen=True):
    """The message arrives before those that its sender has sent the receiver before it."""

    holds: ClassVar[Holds] = Holds.NO_ERROR

    def befall(self, flight: Flight) -> None:
        flight.jump_queue()
