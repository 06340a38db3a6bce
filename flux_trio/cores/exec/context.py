"""What the parts of the exec core share: the time, the actions of this turn, the open calls."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import msgspec

from flux_trio.messages import Calls, Flag, Payload, Request, Response

OnResponse: TypeAlias = Callable[[Response], None]
StreamKey: TypeAlias = tuple[str, int]  # sender and matchtag (RFC 6)


class OutputPut(msgspec.Struct, frozen=True):
    """Awaited: the commit of a piece of a job's output."""

    id: int


class EndPut(msgspec.Struct, frozen=True):
    """Awaited: the commit of the end of a job's output, and of how it ended."""

    id: int


class EventlogRead(msgspec.Struct, frozen=True):
    """Awaited: the eventlog of the job that a stream of output is about."""

    stream: StreamKey
    id: int


class PieceRead(msgspec.Struct, frozen=True):
    """Awaited: the piece of a job's stored output where a stream is."""

    stream: StreamKey
    id: int
    piece: int


class JobCounted(msgspec.Struct, frozen=True):
    """Awaited: whether a job is still stored whose output has no further piece."""

    stream: StreamKey
    id: int


class EndRead(msgspec.Struct, frozen=True):
    """Awaited: what is stored of the end of a job that the shell host still has."""

    id: int


Awaited: TypeAlias = OutputPut | EndPut | EventlogRead | PieceRead | JobCounted | EndRead


class TimerKind(Enum):
    """What a timer of the exec core is for."""

    END = "a simulated job's end, or a time limit"
    WARN = "a signal that the job asked for, before its time limit"
    KILL = "SIGKILL for what did not heed the signal before it"
    STUCK = "processes that have not ended long after SIGKILL"
    RETRY = "starts that the shell host could not do"
    POLL = "output that someone follows may have grown"


class TimerKey(NamedTuple):
    """The keys of the exec core's timers; the last two kinds have one timer each."""

    kind: TimerKind
    id: int = 0


class Context:
    """One for each core."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds since the Unix epoch, of this turn
        self.over: list[int] = []  # jobs whose final release was told in this turn
        self._actions: list[Any] = []
        self._calls: Calls[OnResponse | Awaited] = Calls()

    def emit(self, action: Any) -> None:
        """Add `action` to those of this turn."""
        self._actions.append(action)

    def take_actions(self) -> list[Any]:
        """The actions since the last time, in order."""
        actions, self._actions = self._actions, []
        return actions

    def take_over(self) -> list[int]:
        """The jobs whose final release was told since the last time."""
        over, self.over = self.over, []
        return over

    def ask(
        self,
        topic: str,
        payload: Payload,
        then: OnResponse | Awaited,
        flags: Flag = Flag.NONE,
    ) -> None:
        """Send a request; `then` takes each response, or says what the response is to the core."""
        self.emit(Request(topic, payload, self._calls.open(then), int(flags)))

    def answered(self, response: Response) -> Awaited | None:
        """Hand a response to the function that asked, or return what it is.

        None as well for one that matches nothing: it is late.
        """
        then = self._calls.match(response)
        if not callable(then):
            return then
        then(response)
        return None
