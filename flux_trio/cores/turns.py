"""A turn of a service's loop: the inputs and the actions that all cores have in common. Pure.

Each core adds actions and inputs of its own. A core gets all waiting inputs at once, so that it can
make one commit, or one batch, in a turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar

import msgspec

from flux_trio.formats.meanings import Meaning, Time
from flux_trio.messages import Event, Request, Response


class SetTimer(msgspec.Struct, frozen=True):
    """Hand back `TimerFired(key)` once the time is `at` (seconds since the Unix epoch).

    The timer measures a duration: if the wall clock is set meanwhile, it fires after the same time.
    It replaces a timer with the same key.
    """

    key: Hashable
    at: Time


class ClearTimer(msgspec.Struct, frozen=True):
    """Forget the timer `key`, if it is set."""

    key: Hashable


class TimerFired(msgspec.Struct, frozen=True):
    """The time of a `SetTimer` has come."""

    key: Hashable


class ClockStepped(msgspec.Struct, frozen=True):
    """The wall clock was set by `by` seconds; this input is the first of its turn.

    Timers mean durations, so those that are set need no change. A core adds `by` to each time in
    its state that is the end of a duration, and sets timers for dates again.
    """

    by: float


class Log(msgspec.Struct, frozen=True):
    """Write `text` to the instance's log; `level` is a syslog severity, 0-7."""

    level: int
    text: Annotated[str, Meaning.FOR_PEOPLE]


class Note(msgspec.Struct, frozen=True):
    """Put a record of `kind` into the trace, for monitors; messages are traced anyway."""

    kind: str
    data: dict[str, Any]


class NoteAll(msgspec.Struct, frozen=True):
    """Put several records, (kind, data) each, into the trace, in order; this is faster."""

    notes: Sequence[tuple[str, dict[str, Any]]]


class Exit(msgspec.Struct, frozen=True):
    """The service cannot go on: end the module with `reason` as its error."""

    reason: str


Outgoing: TypeAlias = Request | Response | Event
CommonAction: TypeAlias = Outgoing | SetTimer | ClearTimer | Log | Note | NoteAll | Exit
CommonInput: TypeAlias = Request | Response | Event | TimerFired | ClockStepped


InputT = TypeVar("InputT")
ActionT = TypeVar("ActionT")


class Core(Protocol[InputT, ActionT]):
    """What the runner needs of a core. `now` is seconds since the Unix epoch."""

    def start(self, now: float, /) -> list[ActionT]:
        """The first actions, before any input."""

    def turn(self, now: float, inputs: list[InputT], /) -> list[ActionT]:
        """Take the waiting inputs in order; return the actions in order."""
