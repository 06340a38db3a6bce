"""What the core asks of other services, and what it sends this turn. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_trio.messages import Calls, Flag, Request, Response

Then = Callable[[Response], None]


class Exchange:
    """Open requests of ours, each with the function that takes its answers."""

    def __init__(self) -> None:
        self.now = 0.0  # of this turn, seconds since the Unix epoch
        self._calls: Calls[Then] = Calls()
        self._actions: list[Any] = []

    def ask(self, topic: str, payload: dict[str, Any], then: Then) -> int:
        """Send a request; `then` takes its one response. Returns the matchtag."""
        return self._ask(topic, payload, then, 0)

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

    def take(self, response: Response) -> None:
        """Hand an answer to who waits for it; answers after `hang_up` are dropped."""
        then = self._calls.match(response)
        if then is not None:
            then(response)

    def take_actions(self) -> list[Any]:
        """What to do now, in order."""
        actions, self._actions = self._actions, []
        return actions

    def _ask(self, topic: str, payload: dict[str, Any], then: Then, flags: int) -> int:
        matchtag = self._calls.open(then)
        self._actions.append(Request(topic, payload, matchtag, flags))
        return matchtag
