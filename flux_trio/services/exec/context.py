"""What the parts of the exec core share: the time, the actions of this turn, the open calls."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from flux_trio.messages import Calls, Flag, Payload, Request, Response

OnResponse: TypeAlias = Callable[[Response], None]


class TimerKind(Enum):
    """What a timer of the exec core is for."""

    END = "a simulated job's end, or a time limit"
    WARN = "a signal that the job asked for, before its time limit"
    KILL = "SIGKILL for what did not heed the signal before it"
    STUCK = "processes that have not ended long after SIGKILL"
    POLL = "output that someone follows may have grown"


class TimerKey(NamedTuple):
    """The keys of the exec core's timers; the last kind has one timer."""

    kind: TimerKind
    id: int = 0


class Context:
    """One for each core."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds since the Unix epoch, of this turn
        self.over: list[int] = []  # jobs whose final release was told in this turn
        self._actions: list[Any] = []
        self._calls: Calls[OnResponse] = Calls()

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

    def ask(self, topic: str, payload: Payload, then: OnResponse, flags: Flag = Flag.NONE) -> None:
        """Send a request; `then` takes each response."""
        self.emit(Request(topic, payload, self._calls.open(then), int(flags)))

    def answered(self, response: Response) -> None:
        """Hand a response to who asked; one that matches nothing is late."""
        then = self._calls.match(response)
        if then is not None:
            then(response)
