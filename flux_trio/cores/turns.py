"""A turn of a service's loop: the inputs and the actions that all cores have in common. Pure.

Each core adds actions and inputs of its own. A core gets all waiting inputs at once, so that it can
make one commit, or one batch, in a turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Generic, Protocol, TypeAlias, TypeVar, final

import msgspec

from flux_trio.formats.meanings import Json, Meaning, Time
from flux_trio.messages import Event, Request, Response

KeyT = TypeVar("KeyT", bound=Hashable)
"""The keys of a core's timers: each core has a closed type of its own for them."""
KeyT_co = TypeVar("KeyT_co", bound=Hashable, covariant=True)
InputT_contra = TypeVar("InputT_contra", contravariant=True)
ActionT_co = TypeVar("ActionT_co", covariant=True)


class SetTimer(msgspec.Struct, Generic[KeyT_co], frozen=True):
    """Hand back `TimerFired(key)` once the time is `at` (seconds since the Unix epoch).

    The timer measures a duration: if the wall clock is set meanwhile, it fires after the same time.
    It replaces a timer with the same key.
    """

    key: KeyT_co
    at: Time


class ClearTimer(msgspec.Struct, Generic[KeyT_co], frozen=True):
    """Forget the timer `key`, if it is set."""

    key: KeyT_co


class TimerFired(msgspec.Struct, Generic[KeyT_co], frozen=True):
    """The time of a `SetTimer` has come."""

    key: KeyT_co


@final
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
    data: dict[str, Json]


class NoteAll(msgspec.Struct, frozen=True):
    """Put several records, (kind, data) each, into the trace, in order; this is faster."""

    notes: Sequence[tuple[str, dict[str, Json]]]


class Exit(msgspec.Struct, frozen=True):
    """The service cannot go on: end the module with `reason` as its error."""

    reason: str


Outgoing: TypeAlias = Request | Response | Event
RunnerAction: TypeAlias = SetTimer[KeyT_co] | ClearTimer[KeyT_co] | Log | Note | NoteAll | Exit
"""What the runner of a core does by itself."""
CommonAction: TypeAlias = Outgoing | RunnerAction[KeyT_co]
CommonInput: TypeAlias = Request | Response | Event | TimerFired[KeyT_co] | ClockStepped


class Core(Protocol[KeyT, InputT_contra, ActionT_co]):
    """What the runner needs of a core: the keys of its timers, and its own inputs and actions.

    `now` is seconds since the Unix epoch.
    """

    def start(self, now: float, /) -> Sequence[CommonAction[KeyT] | ActionT_co]:
        """Return the first actions, before any input."""

    def turn(
        self, now: float, inputs: Sequence[CommonInput[KeyT] | InputT_contra], /
    ) -> Sequence[CommonAction[KeyT] | ActionT_co]:
        """Take the waiting inputs in order; return the actions in order."""
