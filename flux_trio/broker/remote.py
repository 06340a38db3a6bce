"""A handle in another process: it uses a connection in place of the router.

A scheduler or an execution service outside the broker's process uses this handle. The broker must
grant service names and subscriptions first, so messages of the module wait here until the broker
has answered these requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, TypeVar

import trio

from flux_trio.broker.handle import Clock, Handle
from flux_trio.messages import (
    Calls,
    Event,
    Flag,
    FluxError,
    Message,
    Request,
    Response,
    errno_text,
    topics,
)
from flux_trio.transports import Connection, ConnectionClosed

H = TypeVar("H", bound="RemoteHandle")


class RemoteHandle(Handle):
    """A handle over `connection`; `taking_in` receives for it. The broker traces its messages.

    Each broker has its own topics for services and subscriptions.
    """

    REGISTER: ClassVar[str] = topics.BROKER_REGISTER
    SUBSCRIBE: ClassVar[str] = topics.BROKER_SUBSCRIBE

    def __init__(self, name: str, userid: int, connection: Connection, clock: Clock) -> None:
        super().__init__(name, userid, clock)
        self._connection = connection
        self._asked: Calls[str] = Calls()  # registrations that the broker has not answered
        self._held: list[Message] = []  # messages that wait for those answers
        self._settled = trio.Event()  # set when all are answered; replaced by the next request

    def register(self, service: str) -> None:
        """See `Handle`; if the broker refuses, `take_in` raises the FluxError."""
        self._ask(self.REGISTER, {"service": service})

    def subscribe(self, pattern: str) -> None:
        self._ask(self.SUBSCRIBE, {"topic": pattern})

    def send(self, message: Request | Response | Event) -> None:
        """See `Handle`; raises ConnectionOverflow if the broker does not read."""
        self.t_active = self.now()
        if len(self._asked):
            self._held.append(message)
        else:
            self._write(message)

    def log(self, level: int, text: str) -> None:
        self._send_unanswered(topics.BROKER_LOG, {"level": level, "text": text})

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self._send_unanswered(topics.BROKER_NOTE, {"kind": kind, "data": data})

    async def wait_settled(self) -> None:
        """Wait until the broker has granted all registrations and subscriptions so far."""
        if len(self._asked):
            await self._settled.wait()

    async def take_in(self) -> None:
        """Receive messages until the connection ends.

        Raises EndOfConnection or ConnectionLost at the end, FluxError if the broker refuses a name.
        """
        while True:
            for message in await self._connection.receive():
                if len(self._asked) and isinstance(message, Response):
                    self._granted(message)
                else:
                    self._take_in(0, message)

    def _ask(self, topic: str, payload: dict[str, str]) -> None:
        if not len(self._asked):
            self._settled = trio.Event()
        what = f"{topic}: {', '.join(payload.values())}"
        self._write(Request(topic, payload, self._asked.open(what)))

    def _granted(self, response: Response) -> None:
        """Handle a response while a registration is open; it may also answer an earlier call."""
        if response.topic not in (self.REGISTER, self.SUBSCRIBE):
            self._take_in(0, response)
            return
        what = self._asked.match(response)
        if response.errnum:
            text = response.error_text or f"{what}: {errno_text(response.errnum)}"
            raise FluxError(response.errnum, text)
        if not len(self._asked):
            held, self._held = self._held, []
            for message in held:
                self._write(message)
            self._settled.set()

    def _send_unanswered(self, topic: str, payload: dict[str, Any]) -> None:
        self.send(Request(topic, payload, flags=int(Flag.NORESPONSE)))

    def _write(self, message: Message) -> None:
        with suppress(ConnectionClosed):  # `take_in` is about to raise the error
            self._connection.send_nowait(message)


@asynccontextmanager
async def taking_in(handle: H) -> AsyncIterator[H]:
    """Let `handle` receive until the end of the block.

    Raises the errors of `RemoteHandle.take_in` in an exception group.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handle.take_in)
        yield handle
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_remote(
    name: str, userid: int, connection: Connection, clock: Clock
) -> AsyncIterator[RemoteHandle]:
    """Yield a handle that receives from `connection` until the end of the block, as `taking_in`."""
    async with taking_in(RemoteHandle(name, userid, connection, clock)) as handle:
        yield handle
