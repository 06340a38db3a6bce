"""The broker's end of Flux's own wire, for tests: a socket that listens, and a scripted peer."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from flux_trio.messages import Message, Request, Response
from flux_trio.transports import NativeConnection, TransportError, open_native
from flux_trio.transports.native import WELCOME
from tests.support.instance import DEADLINE_S


def listening(path: Path) -> trio.SocketListener:
    """Return a listener at the Unix socket `path`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    return trio.SocketListener(trio.socket.from_stdlib_socket(listener))


@dataclass
class Broker:
    """A broker that answers by a script, and keeps what comes.

    `answers` has for each topic its payloads, the errnum and text of a failure, or a function that
    returns one of these; a list answers a stream, which then goes on. Any other topic is ENOSYS.
    """

    uri: str
    answers: dict[str, Any] = field(default_factory=dict)
    came: list[Message] = field(default_factory=list)
    connection: NativeConnection | None = None  # the last one
    nopen: int = 0  # connections
    arrived: trio.Event = field(default_factory=trio.Event)
    welcome: bytes = WELCOME

    async def serve(self, stream: trio.SocketStream) -> None:
        await stream.send_all(self.welcome)
        async with open_native(stream) as connection:
            self.connection = connection
            self.nopen += 1
            with suppress(TransportError):
                while True:
                    for message in await connection.receive():
                        self.take(message, connection)
            self.nopen -= 1

    def take(self, message: Message, connection: NativeConnection) -> None:
        self.came.append(message)
        self.arrived.set()
        self.arrived = trio.Event()
        if isinstance(message, Request) and message.wants_response:
            for response in self.responses(message):
                connection.send_nowait(response)

    def responses(self, request: Request) -> Iterator[Response]:
        answer = self.answers.get(request.topic, (38, f"No service matching {request.topic}"))
        if callable(answer):
            answer = answer(request)
        match answer:
            case (int(errnum), text):
                yield Response(request.topic, text, errnum, request.matchtag, request.flags)
            case list():
                for payload in answer:
                    yield Response(request.topic, payload, 0, request.matchtag, request.flags)
            case _:
                yield Response(request.topic, answer, 0, request.matchtag, request.flags)

    def send(self, message: Message) -> None:
        assert self.connection is not None
        self.connection.send_nowait(message)

    async def until(self, topic: str) -> Any:
        """Wait for a message of `topic`; return the first one, and forget it."""
        with trio.fail_after(DEADLINE_S):
            while True:
                for message in self.came:
                    if getattr(message, "topic", "") == topic:
                        self.came.remove(message)
                        return message
                await self.arrived.wait()


@asynccontextmanager
async def broker(path: Path, answers: dict[str, Any]) -> AsyncIterator[Broker]:
    """A scripted broker at the Unix socket `path`; it knows the attributes of every broker."""
    attributes = {"rank": "0", "version": "0.88.0", "size": "1"}

    def attribute(request: Request) -> Any:
        assert isinstance(request.payload, dict)
        value = attributes.get(request.payload["name"])
        return (2, None) if value is None else {"value": value, "flags": 1}

    known = {"attr.get": attribute, "event.subscribe": None, "service.add": None}
    peer = Broker(f"local://{path}", known | answers)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, peer.serve, [listening(path)])
        yield peer
        nursery.cancel_scope.cancel()
