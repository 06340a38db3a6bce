"""Clients of a world: cores that ask, and that may lose their connection and come back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.messages import Errno, Request, Response

GUEST: Final = 1001
RETRY_S: Final = 0.5
LATER: Final = (Errno.ENOSYS, Errno.EAGAIN)
"""The error numbers after which a client asks again: a service is not there, or is not ready."""


@dataclass(frozen=True)
class Subscribe:
    """An action of a client: subscribe to the events whose topics match `pattern`."""

    pattern: str


class Client:
    """A party that offers no service and only sends requests, as a core.

    With `comes_back` it connects again after its connection, or the instance, was lost.
    """

    comes_back = False

    def start(self, now: float) -> list[Any]:  # noqa: ARG002 - see `Core`
        return []

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:  # noqa: ARG002 - see `Core`
        return []

    def connection_lost(self) -> None:
        """Note that the connection is lost: no open request will be answered."""

    def reconnected(self, now: float) -> list[Any]:  # noqa: ARG002 - the interface
        """Return the actions with which the client goes on after it has connected again."""
        return []


class Asker(Client):
    """A client that sends `requests` as soon as it is connected, and does nothing more.

    `answers` has the last one to each topic.
    """

    def __init__(self, requests: list[Request]) -> None:
        self._requests = requests
        self.answers: dict[str, Response] = {}

    def start(self, now: float) -> list[Any]:  # noqa: ARG002 - see `Core`
        return [
            Request(asked.topic, asked.payload, matchtag, asked.flags)
            for matchtag, asked in enumerate(self._requests, 1)
        ]

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:  # noqa: ARG002 - see `Core`
        self.answers |= {each.topic: each for each in inputs if isinstance(each, Response)}
        return []


class RetryingClient(Client):
    """A client that sends one request, and again after each answer that a service is not ready."""

    comes_back = True

    def __init__(self, topic: str, payload: dict[str, Any]) -> None:
        self._request = Request(topic, payload, 1)
        self._is_open = True

    def start(self, now: float) -> list[Any]:  # noqa: ARG002 - see `Core`
        return [self._request]

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        actions: list[Any] = []
        for each in inputs:
            match each:
                case Response() if each.errnum in LATER:
                    actions.append(SetTimer("retry", now + RETRY_S))
                case Response():
                    self._is_open = False
                case TimerFired():
                    actions.append(self._request)
        return actions

    def reconnected(self, now: float) -> list[Any]:
        return [SetTimer("retry", now + RETRY_S)] if self._is_open else []
