"""A small HTTP server at a port of the loopback address, for one user of this machine.

All users of the machine, and all pages that a browser shows, can send requests to such a port. So

- a request must name this server as its host: no other name can lead to it;
- each connection is a stranger's until its request is answered. Strangers have a bound of their
  own: one more ends the oldest connection, so that nobody can keep others out by connections that
  send nothing, or that do not read.

Each connection has one request, which may come in REQUEST_READS_MAX pieces. A body is not read: who
sends more ends the connection, since each byte may be a turn of the loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import anyio
import anyio.abc
import h11
import msgspec

HOST: Final = "127.0.0.1"
STRANGERS_MAX: Final = 32  # connections whose request is not answered; one more ends the oldest
REQUEST_S_MAX: Final = 10.0  # to send a request, or to read an answer that is no stream
REQUEST_READS_MAX: Final = 16  # of a request: a client sends it at once
HEADER_BYTES_MAX: Final = 16 * 2**10

_PEER_ERRORS: Final = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    h11.ProtocolError,
)


class Refused(Exception):
    """The request is refused with a status of HTTP and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpRequest(msgspec.Struct, frozen=True):
    """A request; `host` is the name by which it has found this server."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    host: str

    def header(self, name: str) -> str:
        """Return a header, "" if it is missing; `name` is in lower case."""
        return self.headers.get(name.encode(), b"").decode("latin-1")


class Whole(msgspec.Struct, frozen=True):
    """An answer that is sent at once; `kind` is its Content-Type."""

    kind: str
    body: bytes


class Lines(Protocol):
    """An answer that goes on, as lines of JSON, until the client goes; then `close` is called."""

    async def next_lines(self) -> bytes:
        """Wait; return what is to be sent."""

    def close(self) -> None: ...


Answer = Callable[[HttpRequest], Awaitable[Whole | Lines]]


class LoopbackServer:
    """The server; `answer` returns the answer to a request, or raises Refused.

    `headers` are sent with each answer.
    """

    def __init__(self, answer: Answer, headers: list[tuple[str, str]]) -> None:
        self._answer = answer
        self._headers = headers
        self._strangers: dict[anyio.CancelScope, None] = {}  # the oldest first
        self.port = 0

    async def serve(
        self, port: int, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen until cancelled; port 0 takes any free port. Raises OSError."""
        listeners = await anyio.create_tcp_listener(local_host=HOST, local_port=port)
        (listener,) = listeners.listeners  # HOST is one address
        assert isinstance(listener, anyio.abc.SocketListener)
        async with listener:
            self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
            task_status.started()
            async with anyio.create_task_group() as tasks:
                while True:
                    tasks.start_soon(self.serve_one, await _accepted(listener))

    async def serve_one(self, stream: anyio.abc.ByteStream) -> None:
        """Handle one connection with one request; errors of the peer end only this connection."""
        async with stream:
            exchange = _Exchange(stream, self._headers)
            try:
                lines = await self._meet(exchange)
                if lines is not None:
                    await exchange.send_lines(lines)
            except _PEER_ERRORS:
                pass

    async def _meet(self, exchange: _Exchange) -> Lines | None:
        """Answer the request of a stranger; return lines that are to be sent after that."""
        with anyio.move_on_after(REQUEST_S_MAX) as scope:
            if len(self._strangers) >= STRANGERS_MAX:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.cancel()
            self._strangers[scope] = None
            try:
                answer = await self._answer(self._known(await exchange.request()))
                if not isinstance(answer, Whole):
                    return answer
                await exchange.send_whole(200, answer)
            except Refused as refused:
                text = Whole("text/plain; charset=utf-8", str(refused).encode())
                await exchange.send_whole(refused.status, text)
            finally:
                self._strangers.pop(scope, None)
        return None

    def _known(self, request: h11.Request) -> HttpRequest:
        """Return a request that has named this server. Raises Refused."""
        headers = dict(request.headers)
        host = headers.get(b"host", b"").decode("latin-1")
        if host not in {f"{name}:{self.port}" for name in (HOST, "localhost")}:
            raise Refused(421, f"expected the host {HOST}:{self.port}")
        target = request.target.decode("latin-1")
        return HttpRequest(request.method.decode("latin-1"), target, headers, host)


async def _accepted(listener: anyio.abc.SocketListener) -> anyio.abc.ByteStream:
    """Return the next connection; browsers wait while this process has no descriptor for it."""
    from flux_trio.process.listening import RETRY_S, SHORT  # loads Trio

    while True:
        try:
            return await listener.accept()
        except (OSError, anyio.BrokenResourceError) as error:  # the latter is Trio's
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in SHORT:
                raise
        await anyio.sleep(RETRY_S)


class _Exchange:
    """One request and its answer."""

    def __init__(self, stream: anyio.abc.ByteStream, headers: list[tuple[str, str]]) -> None:
        self._stream = stream
        self._headers = [*headers, ("Connection", "close")]
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)

    async def request(self) -> h11.Request:
        for _ in range(REQUEST_READS_MAX + 1):
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                break
            self._http.receive_data(await self._stream.receive())
        raise anyio.EndOfStream

    async def send_whole(self, status: int, answer: Whole) -> None:
        headers = [
            ("Content-Type", answer.kind),
            *self._headers,
            ("Content-Length", str(len(answer.body))),
        ]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=answer.body))
        await self._send(h11.EndOfMessage())

    async def send_lines(self, lines: Lines) -> None:
        """Send lines until the client goes."""
        headers = [("Content-Type", "application/x-ndjson; charset=utf-8"), *self._headers]
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._wait_for_end, tasks.cancel_scope)
                await self._send(h11.Response(status_code=200, headers=headers))
                while True:
                    await self._send(h11.Data(data=await lines.next_lines()))
        except* _PEER_ERRORS:
            pass
        finally:
            lines.close()

    async def _wait_for_end(self, scope: anyio.CancelScope) -> None:
        """Cancel the scope when the client has closed the connection, or sends more."""
        with suppress(*_PEER_ERRORS):
            await self._stream.receive()
        scope.cancel()

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send(data)
