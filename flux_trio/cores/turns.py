"""A turn of a service's loop: what came in, what to do about it. Pure.

Every core speaks this vocabulary and adds actions and inputs of its own. All inputs that wait
are handed over at once, so that a core can make one commit, or one batch, of a turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, Protocol, TypeAlias

import msgspec

from flux_trio.formats.meanings import Meaning, Time
from flux_trio.messages import Event, Request, Response


class SetTimer(msgspec.Struct, frozen=True):
    """Hand back `TimerFired(key)` once the time is `at` (seconds since the Unix epoch).

    It fires when as much time has passed as `at` is ahead now, however the wall clock is set
    meanwhile. A timer with the same key is replaced.
    """

    key: Hashable
    at: Time


class ClearTimer(msgspec.Struct, frozen=True):
    """Forget the timer `key`; nothing happens when there is none."""

    key: Hashable


class TimerFired(msgspec.Struct, frozen=True):
    """The time a `SetTimer` asked for has come."""

    key: Hashable


class ClockStepped(msgspec.Struct, frozen=True):
    """The wall clock was set by `by` seconds; it comes before all else of its turn.

    Timers that are set fire when they would have: they mean durations. A core that holds a moment
    which ends a duration adds `by` to it, and sets a timer for a date anew.
    """

    by: float


class Log(msgspec.Struct, frozen=True):
    """Write `text` to the instance's log; `level` is a syslog severity, 0-7."""

    level: int
    text: Annotated[str, Meaning.FOR_PEOPLE]


class Note(msgspec.Struct, frozen=True):
    """Put a record of `kind` into the trace: something a monitor should see besides messages."""

    kind: str
    data: dict[str, Any]


class NoteAll(msgspec.Struct, frozen=True):
    """The same for several (kind, data), in order: where there are many, one by one is too slow."""

    notes: Sequence[tuple[str, dict[str, Any]]]


class Exit(msgspec.Struct, frozen=True):
    """The service cannot go on: leave the module with `reason` as its error."""

    reason: str


Outgoing: TypeAlias = Request | Response | Event
CommonAction: TypeAlias = Outgoing | SetTimer | ClearTimer | Log | Note | NoteAll | Exit
CommonInput: TypeAlias = Request | Response | Event | TimerFired | ClockStepped


class Core(Protocol):
    """What the runner needs of a core. `now` is seconds since the Unix epoch."""

    def start(self, now: float, /) -> list[Any]:
        """The first actions, before any input."""

    def turn(self, now: float, inputs: list[Any], /) -> list[Any]:
        """Take everything that waited, in order; return what to do, in order."""
