"""What all faults of the catalogue have in common, and the list of them all.

A fault is one class with the decorator `fault`. Plans can hold it then, seeds draw it as it says
itself, and the page on faults has to list it; no other list names it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from enum import Enum
from random import Random
from typing import ClassVar, Final, Self, TypeVar

import msgspec

from flux_trio.cores.turns import Outgoing
from flux_trio.lab.catalogue.aim import Aim, Drawer
from flux_trio.lab.catalogue.places import Machine, Moment, SentMessage, When, check_which
from flux_trio.lab.world.cores_world import CoresWorld


class Holds(Enum):
    """Which properties still have to hold although a fault strikes."""

    EVERYTHING = "every property"
    OTHERS = "every property, except that the liar breaks clauses"
    """All but what the lie breaks. When everything is put right, the party that lied is loaded
    again; then all must come to rest."""
    NO_ERROR = "no core raises"
    """Only that no core raises. The transport or the disk breaks its promise, so clauses may be
    broken, and the world may not come to rest."""


def _tag(name: str) -> str:
    """Return the name of a fault in a plan: `disk-full` for DiskFull."""
    return re.sub(r"(?<=.)(?=[A-Z])", "-", name).lower()


class BaseFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=_tag):
    """A fault, as a plain value of a plan.

    Subclasses override what they do and leave behind. The type checker refuses a fault that lacks
    an abstract method; nothing does so at run time.
    """

    holds: ClassVar[Holds] = Holds.EVERYTHING
    until_then: ClassVar[str] = ""
    """What is so in the world until the fault strikes, as words for the page of faults."""

    @property
    @abstractmethod
    def place(self) -> When | SentMessage | int | None:
        """The moment at which it strikes, a message or a step; None if it strikes at a question to
        a plugin.
        """

    def check(self, machine: Machine) -> None:
        """Raise FormatError if the fault has a value that is not possible on this machine."""

    def on_machine(self, machine: Machine) -> Self:  # noqa: ARG002 - the interface
        """Return the fault for a smaller machine: nodes and cores that are not there any more are
        replaced by the last ones.
        """
        return self

    @property
    def clock_moves(self) -> tuple[str, float]:
        """The name of the field that says by how much the fault moves the clock, and the seconds
        that it may move it back and ahead.
        """
        return "", 0.0

    @property
    def excluded_at_start(self) -> tuple[int, ...]:
        """The ranks that are excluded until the fault strikes."""
        return ()

    @property
    def down_at_start(self) -> tuple[int, ...]:
        """The ranks that are down until the fault strikes."""
        return ()

    def unfit_ranks(self, machine: Machine) -> tuple[int, ...]:  # noqa: ARG002 - the interface
        """Return the nodes that may be down or drained when the faults end."""
        return ()

    @property
    def may_exclude(self) -> bool:
        """Whether nodes may be excluded when the faults end."""
        return False

    def simpler_kinds(self) -> list[BaseFault]:
        """Return faults of other kinds that do a part of what this one does."""
        return []


FAULTS: Final[list[type[BaseFault]]] = []
"""The kinds of faults; `catalogue` puts them into the order of the page."""

F = TypeVar("F", bound=BaseFault)


def fault(kind: type[F]) -> type[F]:
    """Register a kind of fault; a decorator."""
    FAULTS.append(kind)
    return kind


class DrawnFault(BaseFault, frozen=True):
    """A kind of fault that is drawn from seeds."""

    draws: ClassVar[tuple[Drawer, ...]]
    """Draws the value of each field; those at the end that have none keep their default."""

    @classmethod
    def drawn(cls, draw: Random, aim: Aim) -> Self:
        """Return a fault of this kind, at a place that `aim` draws."""
        return cls(*(each(draw, aim) for each in cls.draws))


class Strike(DrawnFault, frozen=True):
    """A fault that strikes at a moment, `when`."""

    @property
    @abstractmethod
    def when(self) -> Moment:
        """The moment at which the fault strikes."""

    @property
    def place(self) -> Moment:
        return self.when

    @abstractmethod
    def strike(self, world: CoresWorld) -> None:
        """Let the fault happen now."""


class Lie(BaseFault, frozen=True):
    """A party breaks a clause: in place of the message `which` it sends other ones, or none."""

    holds: ClassVar[Holds] = Holds.OTHERS
    drawn_about: ClassVar[tuple[str, ...]] = ()
    """The topics of the messages in which seeds let a party lie so (`swarm`); none if no seed draws
    this lie."""

    @property
    @abstractmethod
    def which(self) -> SentMessage:
        """The message that the party does not send as it is: the nth one for which `fits` returns
        True.
        """

    @property
    def place(self) -> SentMessage:
        return self.which

    def fits(self, message: Outgoing) -> bool:  # noqa: ARG002 - the interface
        """Return whether a message with this topic, type and party is one of those that `which`
        counts.
        """
        return True

    @abstractmethod
    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        """Return the messages that are sent in place of `message`."""


class LieInPlaceOf(Lie, frozen=True):
    """A lie in place of the message that the plan names."""

    which: SentMessage

    def __post_init__(self) -> None:
        check_which(self.which)

    @classmethod
    def about(cls, which: SentMessage) -> Self:
        """Return the lie, with the values that seeds give it, about this message."""
        return cls(which)


def is_drawn(kind: type[BaseFault]) -> bool:
    """Return whether seeds draw faults of this kind; others are for plans that somebody writes."""
    return issubclass(kind, DrawnFault) or (issubclass(kind, Lie) and bool(kind.drawn_about))
