"""What the core asks of other services, and what it sends this turn. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from flux_trio.messages import Calls, Flag, Request, Response

StreamKey: TypeAlias = tuple[str, int]  # sender and matchtag (RFC 6)


class LogChanged(msgspec.Struct, frozen=True):
    """Awaited: what a kvs.watch tells for a stream of an eventlog."""

    stream: StreamKey


class LogRead(msgspec.Struct, frozen=True):
    """Awaited: the value of `key`, read for a stream of an eventlog for the `number`th time."""

    stream: StreamKey
    key: str
    number: int


class JobCounted(msgspec.Struct, frozen=True):
    """Awaited: whether the job is still stored of a stream whose `number`th read found nothing."""

    stream: StreamKey
    number: int


Awaited: TypeAlias = LogChanged | LogRead | JobCounted
Then: TypeAlias = Callable[[Response], None] | Awaited


class Exchange:
    """Open requests of ours, each with what it is for.

    That is a value that the core has a case for, or a function that takes the answers.
    """

    def __init__(self) -> None:
        self.now = 0.0  # of this turn, seconds since the Unix epoch
        self._calls: Calls[Any] = Calls()
        self._actions: list[Any] = []

    def ask(self, topic: str, payload: dict[str, Any], then: Then) -> int:
        """Send a request; `then` takes its one response. Returns the matchtag."""
        return self._ask(topic, payload, then, 0)

    def ask_for(self, topic: str, payload: dict[str, Any], purpose: object) -> int:
        """Send a request; `take` returns `purpose` with its one response. Returns the matchtag."""
        return self._ask(topic, payload, purpose, 0)

    def ask_stream(self, topic: str, payload: dict[str, Any], then: Then) -> int:
        """Send a request; `then` takes each response, the error that ends it too."""
        return self._ask(topic, payload, then, int(Flag.STREAMING))

    def send(self, action: Any) -> None:
        """Do `action` at the end of the turn; None is nothing to do."""
        if action is not None:
            self._actions.append(action)

    def hang_up(self, matchtag: int) -> None:
        """Take no more answers to one request."""
        self._calls.close(matchtag)

    def take(self, response: Response) -> Any:
        """Hand an answer to the function that waits for it, or return what it is for.

        None is an answer that was handed over, or one after `hang_up`.
        """
        purpose = self._calls.match(response)
        if not callable(purpose):
            return purpose
        purpose(response)
        return None

    def take_actions(self) -> list[Any]:
        """What to do now, in order."""
        actions, self._actions = self._actions, []
        return actions

    def _ask(self, topic: str, payload: dict[str, Any], purpose: object, flags: int) -> int:
        matchtag = self._calls.open(purpose)
        self._actions.append(Request(topic, payload, matchtag, flags))
        return matchtag
