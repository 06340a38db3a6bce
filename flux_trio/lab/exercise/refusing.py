"""A router that refuses requests of the program in place of a service, when an act says so."""

from __future__ import annotations

from typing import Final

import trio

from flux_trio.broker import Peer, Router
from flux_trio.instance import MODULES
from flux_trio.messages import Errno, Message, Request
from flux_trio.trace import Trace

WHY: Final = "refused by an exercise"
BROKER: Final = "broker"


class RefusingRouter(Router):
    """The router of an instance that is exercised.

    It knows the program's names: those of all peers but the modules and `own`, the clients of the
    exercise.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.own: set[str] = set()
        self.clients: set[str] = set()
        """The names that the clients of the exercise ask for; they get such as are in `own`."""
        self._refused: dict[str, trio.Event] = {}  # by topic: set when the request has come

    def is_program(self, name: str) -> bool:
        """Return whether a peer is the program, or was it in an earlier life."""
        return name not in MODULES and name not in self.own and name not in ("", BROKER)

    def refuse_next(self, topic: str) -> trio.Event:
        """Refuse the program's next request to `topic`; return what is set when it has come."""
        self._refused[topic] = trio.Event()
        return self._refused[topic]

    def refuse_none(self) -> None:
        """Forget what was to be refused and did not come."""
        self._refused.clear()

    def is_to_be_refused(self, sender: Peer, request: Request) -> bool:
        """Return whether an act says that a request is to be refused."""
        return request.topic in self._refused and self.is_program(sender.name)

    def route(self, sender: Peer, message: Message) -> None:
        if isinstance(message, Request) and self.is_to_be_refused(sender, message):
            self.refuse(sender, message, Errno.EPERM, WHY)
            self._refused.pop(message.topic).set()
        else:
            super().route(sender, message)
