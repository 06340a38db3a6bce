"""When and where a fault strikes, and the bounds of what a plan can say of it."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Protocol

import msgspec

from flux_trio.formats import FormatError
from flux_trio.formats.fields import get_seconds
from flux_trio.formats.glob import GLOB_CHARS_MAX
from flux_trio.formats.idset import IDS_MAX

LONGEST_S: Final = 1e8
"""No time of a plan is longer than three years. Job ids hold 34 years, and the clock of a world
starts 31 years after the Unix epoch, before which there are no times.
"""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]


def check_seconds(seconds: object) -> None:
    """Raise FormatError if a time is too long for a plan (LONGEST_S)."""
    if get_seconds({"seconds": seconds}, "seconds") > LONGEST_S:
        raise FormatError(f"float <= {LONGEST_S}", seconds, "seconds")  # as msgspec says it


BUSY_S: Final = 600.0
"""The longest that a fault may last during which others repeat their requests, twice a second each:
a play that has not come to rest after 50,000 steps has failed."""
BusySeconds = Annotated[float, msgspec.Meta(ge=0, le=BUSY_S)]
TIMES_MAX: Final = 1000
"""The most jobs of a world, and the most settings of its clock, with which it comes to rest in
useful time."""
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
"""A module that clients send requests to, so that too many requests may wait there."""


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


class SentMessage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The `nth` message of `topic` (a glob) that is sent, by `party` if it is given."""

    topic: Topics
    nth: Count = 1
    type: Type = "request"
    party: str = ""


Moment = When | Count
"""The moment of a fault: a message, or the number of the step that comes next."""


class Machine(Protocol):
    """The nodes of a world: how many there are, and how many cores each has. A plan is one."""

    @property
    def nnodes(self) -> int: ...

    @property
    def cores(self) -> int: ...


def check_which(which: SentMessage) -> None:
    """Raise TypeError unless this is a SentMessage: the moment of a When comes too late."""
    if not isinstance(which, SentMessage):
        raise TypeError(
            f"expected a SentMessage, the message that the fault is about, got {which!r}"
        )


def check_number(number: int, among: str, count: int, where: str) -> None:
    """Raise FormatError unless 0 <= `number` < `count`; `among` says of what it is one."""
    if number >= count:
        raise FormatError(f"{among.format(count)}, from 0", number, where)


def check_ranks(ranks: tuple[int, ...], machine: Machine) -> None:
    """Raise FormatError if a fault names a node that the machine does not have."""
    for place, rank in enumerate(ranks):
        check_number(rank, RANK, machine.nnodes, f"ranks[{place}]")


RANK: Final = "the rank of one of the {} nodes"
