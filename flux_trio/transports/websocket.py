"""Messages over a WebSocket (docs/reference/wire.md): who may come in, frames of CBOR both ways.

A token in the Authorization header of the upgrade request decides who a connection is. HTTP and
the WebSocket protocol are trio-websocket's; this adds the bounds and how a connection ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NoReturn, TypeAlias, cast

import h11
import trio
import trio_websocket
import wsproto.utilities

from flux_trio.messages import Message, RemoteProtocolError
from flux_trio.messages.address import host_and_port, uri_of
from flux_trio.messages.codec import FRAME_BYTES_MAX, decode_frame, encode, join
from flux_trio.transports.base import (
    QUEUE_BYTES_MAX,
    QUEUE_MESSAGES_MAX,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOverflow,
    ConnectionRefused,
    Credentials,
    EndOfConnection,
    TransportError,
)
from flux_trio.transports.inbox import Inbox

HANDSHAKE_S_MAX: Final = 5.0  # to send a request line and a token: nobody honest needs longer
CLOSE_S_MAX: Final = 2.0  # to take what is queued and say goodbye; after it the socket is cut
CONNECTIONS_MAX: Final = 1024  # open at once, let in or not; one more is cut at once
FRAMES_AHEAD: Final = 2  # received and not yet read; each may be of FRAME_BYTES_MAX
READ_BYTES: Final = 64 * 2**10  # one system call takes a few hundred messages

# Close codes (RFC 6455, 7.4.1)
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
UNSUPPORTED: Final = 1003
LOST: Final = 1006
INVALID: Final = 1007
_CHALLENGE: Final = [(b"WWW-Authenticate", b"Bearer")]
_PEER_ERRORS: Final = (
    wsproto.utilities.ProtocolError,  # not HTTP, not a WebSocket, or a frame after the last one
    h11.ProtocolError,
    UnicodeError,  # a header that is not text
    trio_websocket.ConnectionClosed,
    trio_websocket.HandshakeError,
)
REASON_BYTES_MAX: Final = 123  # a close frame's payload is at most 125 bytes, 2 are the code

Authenticate: TypeAlias = Callable[[str], Credentials | None]
OnConnection: TypeAlias = Callable[[Connection, Credentials], Awaitable[None]]


class WebSocketConnection:
    """One end of a WebSocket: a `Connection`. Whoever made it runs `write_all` beside it."""

    def __init__(self, socket: trio_websocket.WebSocketConnection) -> None:
        self._socket = socket
        self._queue: Inbox[bytes] = Inbox()
        self._queued_messages = 0  # also those of the frame that is being sent
        self._queued_bytes = 0
        self._written = trio.Event()  # set when `write_all` has come to an end
        self._ended: TransportError | None = None  # set once, by whoever closes this end

    def send_nowait(self, message: Message) -> None:
        """See `Connection`."""
        if self._queue.closed:
            raise ConnectionClosed(str(self._end()))
        data = encode(message)
        if (
            self._queued_messages >= QUEUE_MESSAGES_MAX
            or self._queued_bytes + len(data) > QUEUE_BYTES_MAX
        ):
            raise ConnectionOverflow(
                f"{self._queued_messages} messages of {self._queued_bytes} bytes "
                "wait for the peer to read them"
            )
        self._queued_messages += 1
        self._queued_bytes += len(data)
        self._queue.put(data)

    async def receive(self) -> list[Message]:
        """See `Connection`: the messages of one frame."""
        try:
            data = await self._socket.get_message()
        except trio_websocket.ConnectionClosed:
            self._queue.close()
            raise self._end() from None
        if self._ended is not None:
            raise self._ended
        if isinstance(data, str):
            await self._refuse(UNSUPPORTED, "frame: expected a binary frame, got a text frame")
        try:
            return decode_frame(data)
        except RemoteProtocolError as error:
            await self._refuse(INVALID, str(error))

    async def aclose(self, reason: str = "") -> None:
        """See `Connection`; takes CLOSE_S_MAX seconds at most."""
        if self._ended is None:
            self._ended = EndOfConnection(_ended_because(reason))
            await self._goodbye(NORMAL, reason)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def write_all(self) -> None:
        """Send what is queued until this end is closed or the connection is gone."""
        try:
            while True:
                for count, frame in join(await self._queue.get_batch()):
                    await self._socket.send_message(frame)
                    self._queued_messages -= count
                    self._queued_bytes -= len(frame)
        except trio.EndOfChannel:
            pass
        except trio_websocket.ConnectionClosed:
            self._queue.close()
        finally:
            self._written.set()

    async def _refuse(self, code: int, text: str) -> NoReturn:
        """The peer broke the protocol: tell it, and end."""
        self._ended = ConnectionLost(text)
        await self._goodbye(code, text)
        raise self._ended

    async def _goodbye(self, code: int, reason: str) -> None:
        self._queue.close()
        with trio.move_on_after(CLOSE_S_MAX, shield=True):
            try:
                await self._written.wait()
            finally:  # out of time, this cuts the socket
                await self._socket.aclose(code, _fit_reason(reason))

    def _end(self) -> TransportError:
        """How it ended: by this end, by the peer in good order, or else."""
        if self._ended is not None:
            return self._ended
        closed = self._socket.closed
        if closed is None or closed.code == LOST:
            return ConnectionLost("the connection broke: the peer went without a goodbye")
        if closed.code in (NORMAL, GOING_AWAY):
            return EndOfConnection(_ended_because(closed.reason or ""))
        reason = closed.reason or closed.name.lower().replace("_", " ")
        return ConnectionLost(f"the connection was cut ({closed.code}): {reason}")


async def serve_websocket(
    host: str,
    port: int,
    authenticate: Authenticate,
    on_connection: OnConnection,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen on `host` (an address of this machine) until cancelled; port 0 is any free one.

    Starts with the URI it listens at. `authenticate` maps a token to who that is, or None; it
    should compare in constant time. `on_connection` has the connection for as long as it runs.
    Raises OSError when the address is taken.
    """
    listeners = await trio.open_tcp_listeners(port, host=host)
    door = _Door(authenticate, on_connection)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, door.take, listeners)
        address, taken, *_ = listeners[0].socket.getsockname()
        task_status.started(uri_of(address, taken))


class _Door:
    """Where connections come in: the handshake, the token, then the one they are for."""

    def __init__(self, authenticate: Authenticate, on_connection: OnConnection) -> None:
        self._authenticate = authenticate
        self._on_connection = on_connection
        self._open = 0

    async def take(self, stream: trio.SocketStream) -> None:
        """One connection from its first byte to its last; whatever the peer sends stays here."""
        if self._open >= CONNECTIONS_MAX:
            return
        self._open += 1
        try:
            async with _open_tasks() as tasks:
                admitted = None
                with tasks.handshake:
                    admitted = await self._admit(stream, tasks)
                if admitted is not None:
                    socket, credentials = admitted
                    async with _talking(socket, tasks) as connection:
                        await self._on_connection(connection, credentials)
            await _linger(stream)
        finally:
            self._open -= 1

    async def _admit(
        self, stream: trio.SocketStream, tasks: _Tasks
    ) -> tuple[trio_websocket.WebSocketConnection, Credentials] | None:
        request = await trio_websocket.wrap_server_stream(
            cast("trio.Nursery", tasks), stream, FRAMES_AHEAD, FRAME_BYTES_MAX, READ_BYTES
        )
        token = _bearer_token(request.headers)
        credentials = None if token is None else self._authenticate(token)
        try:
            if credentials is not None:
                return await request.accept(), credentials
            if token is None:
                text = b"expected a header: Authorization: Bearer TOKEN"
                await request.reject(401, extra_headers=_CHALLENGE, body=text)
            else:
                await request.reject(403, body=b"this instance does not know that token")
        except trio_websocket.ConnectionClosed:
            pass
        return None


@asynccontextmanager
async def connect_websocket(uri: str, token: str) -> AsyncIterator[WebSocketConnection]:
    """A connection to the instance at `uri` (ws://host:port), closed on leaving the block.

    Raises ConnectionRefused when nobody is there or the token is not accepted.
    """
    try:
        host, port = host_and_port(uri)
        stream = await trio.open_tcp_stream(host, port)
    except (ValueError, OSError) as error:
        raise ConnectionRefused(f"{uri}: {error}") from None
    try:
        async with _open_tasks() as tasks:
            socket = await _shake_hands(uri, token, stream, tasks)
            async with _talking(socket, tasks) as connection:
                yield connection
    except BaseExceptionGroup as group:
        # The tasks raise nothing: what is in the group came out of this block or the caller's.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__
    finally:
        await trio.aclose_forcefully(stream)


async def _shake_hands(
    uri: str, token: str, stream: trio.SocketStream, tasks: _Tasks
) -> trio_websocket.WebSocketConnection:
    with tasks.handshake:
        return await trio_websocket.wrap_client_stream(
            cast("trio.Nursery", tasks),
            stream,
            uri.removeprefix("ws://"),
            "/",
            extra_headers=[(b"Authorization", b"Bearer " + token.encode())],
            message_queue_size=FRAMES_AHEAD,
            max_message_size=FRAME_BYTES_MAX,
            receive_buffer_size=READ_BYTES,
        )
    error = tasks.error
    if isinstance(error, trio_websocket.ConnectionRejected):
        text = (error.body or b"").decode(errors="replace")
        raise ConnectionRefused(f"{uri}: refused with {error.status_code}: {text}")
    raise ConnectionRefused(f"{uri}: no WebSocket there: {error or 'no answer'}")


class _Tasks:
    """The reader and the writer of one connection; to trio-websocket, its nursery.

    They outlive a cancel from outside until the goodbye is said. What a peer does wrong ends its
    own reader: left alone it would end the nursery, and with it everything else that is served.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: list[trio.CancelScope] = []
        self.handshake = trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_S_MAX)
        self.error: Exception | None = None  # what ended the reader, if it was the peer

    def start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run `task` until it ends or `stop`."""
        scope = trio.CancelScope(shield=True)
        self._scopes.append(scope)
        self._nursery.start_soon(self._run, task, scope)

    async def _run(self, task: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        with scope:
            try:
                await task()
            except _PEER_ERRORS as error:
                self.error = error
            finally:
                self.handshake.cancel()  # if it still goes on, nobody is left to shake hands with

    def stop(self) -> None:
        """End what still runs."""
        for scope in self._scopes:
            scope.cancel()


@asynccontextmanager
async def _open_tasks() -> AsyncIterator[_Tasks]:
    async with trio.open_nursery() as nursery:
        tasks = _Tasks(nursery)
        try:
            yield tasks
        finally:
            tasks.stop()


@asynccontextmanager
async def _talking(
    socket: trio_websocket.WebSocketConnection, tasks: _Tasks
) -> AsyncIterator[WebSocketConnection]:
    connection = WebSocketConnection(socket)
    tasks.start_soon(connection.write_all)
    try:
        yield connection
    finally:
        await connection.aclose()


def _bearer_token(headers: list[tuple[bytes, bytes]]) -> str | None:
    for name, value in headers:
        if name.lower() == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1").strip()
    return None


async def _linger(stream: trio.SocketStream) -> None:
    """Read on until the peer has seen our goodbye: unread bytes would make the kernel drop it."""
    with trio.move_on_after(CLOSE_S_MAX):
        try:
            await stream.send_eof()
            while await stream.receive_some(READ_BYTES):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


def _fit_reason(reason: str) -> str:
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")


def _ended_because(reason: str) -> str:
    return f"the connection was closed: {reason}" if reason else "the connection was closed"
