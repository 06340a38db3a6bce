"""What all faults of the catalogue have in common: their moments, units and promises."""

from __future__ import annotations

import re
from abc import abstractmethod
from enum import Enum
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from flux_trio.formats import FormatError
from flux_trio.formats.fields import get_seconds
from flux_trio.formats.glob import GLOB_CHARS_MAX
from flux_trio.formats.idset import IDS_MAX
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import Event, Request, Response

LONGEST_S: Final = 1e8
"""No time of a plan is longer than three years. Job ids hold 34 years, and the clock of a world
starts 31 years after the Unix epoch, before which there are no times.
"""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]


def check_seconds(seconds: object) -> None:
    """Raise FormatError unless this is a time that a plan can have."""
    if get_seconds({"seconds": seconds}, "seconds") > LONGEST_S:
        raise FormatError(f"float <= {LONGEST_S}", seconds, "seconds")  # as msgspec says it


BUSY_S: Final = 600.0
"""No fault lasts longer during which others ask again and again, twice a second each: a play that
has not come to rest after 50,000 steps has failed.
"""
BusySeconds = Annotated[float, msgspec.Meta(ge=0, le=BUSY_S)]
TIMES_MAX: Final = 1000
"""So many jobs or settings of the clock a world can have and come to rest in useful time."""
Times = Annotated[int, msgspec.Meta(ge=1, le=TIMES_MAX)]
ClockChange = Annotated[float, msgspec.Meta(ge=-LONGEST_S, le=LONGEST_S)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Topics = Annotated[str, msgspec.Meta(max_length=GLOB_CHARS_MAX)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=IDS_MAX)]
Ranks = Annotated[tuple[Rank, ...], msgspec.Meta(min_length=1)]
Type = Literal["request", "response", "event"]
Module = Literal["resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list"]
AnyModule = Literal["kvs", "resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list"]
Crowded = Literal["resource", "job-manager", "job-ingest", "job-list"]
"""The modules that clients send requests to, so that too many may wait there."""


class When(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The moment after the `nth` message of `topic` (a glob) was sent or received.

    At `recv` the receiver has not acted on the message yet. If `party` is given, only messages that
    this party sends, or receives, count.
    """

    topic: Topics
    nth: Count = 1
    side: Literal["send", "recv"] = "recv"
    type: Type = "request"
    party: str = ""


class Which(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The `nth` message of `topic` (a glob) that is sent, by `party` if it is given."""

    topic: Topics
    nth: Count = 1
    type: Type = "request"
    party: str = ""


Moment = When | Count
"""The moment of a fault: a message, or the number of the step that comes next."""


class Holds(Enum):
    """Which properties hold although a fault strikes."""

    EVERYTHING = "every property"
    OTHERS = "every property, except that the liar breaks clauses"
    """When everything is put right, the liar is reloaded; then all must come to rest."""
    NO_ERROR = "no core raises"
    """The transport or the disk breaks its promise: clauses and being at rest may be broken."""


def _tag(name: str) -> str:
    """Return the name of a fault in a plan: `disk-full` for DiskFull."""
    return re.sub(r"(?<=.)(?=[A-Z])", "-", name).lower()


class BaseFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=_tag):
    """A fault: a plain value that a plan holds.

    The type checker, and nothing at run time, refuses a fault without its abstract methods.
    """

    holds: ClassVar[Holds] = Holds.EVERYTHING


def check_which(which: Which) -> None:
    """Raise TypeError for another value, such as a When, whose moment comes too late."""
    if not isinstance(which, Which):
        raise TypeError(f"expected a Which, the message that the fault befalls, got {which!r}")


class Strike(BaseFault, frozen=True):
    """A fault that strikes at a moment `when`."""

    @abstractmethod
    def strike(self, world: CoresWorld) -> None:
        """Let it happen, now."""


class Lie(BaseFault, frozen=True):
    """A party breaks a clause: it says something else than the message that is `sought`."""

    holds: ClassVar[Holds] = Holds.OTHERS

    @property
    @abstractmethod
    def sought(self) -> Which:
        """The message that the party does not say as it is: of those that fit, the nth."""

    def fits(self, message: Request | Response | Event) -> bool:  # noqa: ARG002 - the interface
        """Return whether a message counts that has the topic, the type and the party."""
        return True

    @abstractmethod
    def said(self, message: Request | Response | Event) -> list[Request | Response | Event]:
        """Return the messages that are sent in place of `message`."""


class LieInPlaceOf(Lie, frozen=True):
    """A party says something else than the message `which`."""

    which: Which

    def __post_init__(self) -> None:
        check_which(self.which)

    @property
    def sought(self) -> Which:
        return self.which
