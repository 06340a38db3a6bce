"""A handle in another process: the same to a module, with a connection in place of the router.

A scheduler or an execution service that connects from outside is served by this. What must be known
to the broker before anything else, a service name or a subscription, is asked for first: until the
broker has answered, what the module sends waits here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from flux_trio.broker.handle import Clock, Handle
from flux_trio.messages import Calls, Event, Flag, FluxError, Message, Request, Response, topics
from flux_trio.transports import Connection, ConnectionClosed


class RemoteHandle(Handle):
    """A handle over `connection`. Whoever made it runs `take_in` beside the module."""

    def __init__(self, name: str, userid: int, connection: Connection, clock: Clock) -> None:
        super().__init__(name, userid, clock)
        self._connection = connection
        self._asked: Calls[str] = Calls()  # of the broker, and not answered
        self._held: list[Message] = []  # what waits for those answers
        self._settled = trio.Event()  # replaced when the broker is asked

    def register(self, service: str) -> None:
        """See `Handle`; when it is refused, `take_in` raises the FluxError."""
        self._ask(topics.BROKER_REGISTER, {"service": service})

    def subscribe(self, pattern: str) -> None:
        self._ask(topics.BROKER_SUBSCRIBE, {"topic": pattern})

    def send(self, message: Request | Response | Event) -> None:
        """See `Handle`; raises ConnectionOverflow when the broker does not read."""
        self.t_active = self.now()
        if len(self._asked):
            self._held.append(message)
        else:
            self._write(message)

    def log(self, level: int, text: str) -> None:
        self._tell(topics.BROKER_LOG, {"level": level, "text": text})

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self._tell(topics.BROKER_NOTE, {"kind": kind, "data": data})

    async def wait_settled(self) -> None:
        """Wait until the broker has granted everything that was asked of it so far."""
        if len(self._asked):
            await self._settled.wait()

    async def take_in(self) -> None:
        """Take in what comes until the connection ends.

        Raises EndOfConnection or ConnectionLost then, FluxError when the broker refuses a name.
        """
        while True:
            for message in await self._connection.receive():
                if len(self._asked) and isinstance(message, Response):
                    self._granted(message)
                else:
                    self._take_in(0, message)

    def _ask(self, topic: str, payload: dict[str, Any]) -> None:
        if not len(self._asked):
            self._settled = trio.Event()
        self._write(Request(topic, payload, self._asked.open(topic)))

    def _granted(self, response: Response) -> None:
        """An answer while the broker is being asked: to that, or to an earlier call."""
        if response.topic not in (topics.BROKER_REGISTER, topics.BROKER_SUBSCRIBE):
            self._take_in(0, response)
            return
        self._asked.match(response)
        if response.errnum:
            raise FluxError(response.errnum, response.error_text)
        if not len(self._asked):
            held, self._held = self._held, []
            for message in held:
                self._write(message)
            self._settled.set()

    def _tell(self, topic: str, payload: dict[str, Any]) -> None:
        self.send(Request(topic, payload, flags=int(Flag.NORESPONSE)))

    def _write(self, message: Message) -> None:
        with suppress(ConnectionClosed):  # `take_in` is about to say so
            self._connection.send_nowait(message)

    def _taken_up(self, ref: int, message: Message) -> None:
        """The trace is the broker's: it has the message as received since it was passed on."""

    def _dropped(self, ref: int, message: Message, reason: str) -> None:
        """The broker's trace has this too."""


@asynccontextmanager
async def open_remote(
    name: str, userid: int, connection: Connection, clock: Clock
) -> AsyncIterator[RemoteHandle]:
    """A handle that takes in what comes over `connection` until the block is left.

    Raises, in an exception group, what `RemoteHandle.take_in` does.
    """
    handle = RemoteHandle(name, userid, connection, clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handle.take_in)
        yield handle
        nursery.cancel_scope.cancel()
