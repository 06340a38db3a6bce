"""Messages over a WebSocket (docs/reference/wire.md): frames of CBOR both ways, on any stream.

trio-websocket does HTTP and the WebSocket protocol; this module adds limits and the end of a
connection. The beginning differs: `door` accepts clients, `connecting` is the client's side.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final, NoReturn

import h11
import trio
import trio_websocket
import wsproto.utilities

from flux_trio.messages import Message, RemoteProtocolError
from flux_trio.messages.codec import (
    FRAME_ITEMS_MAX,
    GUEST_FRAME_ITEMS_MAX,
    encode,
    iter_frame,
    join,
)
from flux_trio.process.groups import leaves
from flux_trio.transports.base import (
    BEHIND_BYTES,
    BEHIND_MESSAGES,
    QUEUE_BYTES_MAX,
    QUEUE_MESSAGES_MAX,
    UNREAD,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOverflow,
    EndOfConnection,
    TransportError,
)
from flux_trio.transports.inbox import Inbox
from flux_trio.transports.share import LONG_REST_FACTOR, SLICE_MESSAGES_MAX, Share

HANDSHAKE_S_MAX: Final = 5.0  # to send a request line and a token: honest clients need less
CLOSE_S_MAX: Final = 2.0  # to send queued messages and the close frame; then the socket is cut
FRAMES_AHEAD: Final = 1  # received and not yet read; each may have FRAME_BYTES_MAX bytes
DECODE_S_MAX: Final = 0.005  # for one slice; after a longer slice the peer's reader rests
READ_BYTES: Final = 64 * 2**10  # one system call takes a few hundred messages

# Close codes (RFC 6455, 7.4.1)
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED: Final = 1003
LOST: Final = 1006
INVALID: Final = 1007
_PEER_ERRORS: Final = (
    wsproto.utilities.ProtocolError,  # not HTTP, not a WebSocket, or a frame after the last one
    h11.ProtocolError,
    UnicodeError,  # a header that is not text
    trio_websocket.ConnectionClosed,
    trio_websocket.HandshakeError,
)
REASON_BYTES_MAX: Final = 123  # a close frame's payload is at most 125 bytes, 2 are the code


class WebSocketConnection:
    """One end of a WebSocket, a `Connection`. Its creator runs `write_all` in a task.

    A guest's connection has the `share` of that guest.
    """

    def __init__(
        self, socket: trio_websocket.WebSocketConnection, share: Share | None = None
    ) -> None:
        self._socket = socket
        self._share = share
        self._queue: Inbox[bytes] = Inbox()
        self._queued_messages = 0  # including those of the frame that is being sent
        self._queued_bytes = 0
        self._written = trio.Event()  # set when `write_all` has ended
        self._ended: TransportError | None = None  # set once, when this end closes
        self._arriving: Iterator[Message] | None = None  # the rest of the current frame
        self._rest_s = 0.0  # to wait before the next slice is decoded

    def send_nowait(self, message: Message) -> None:
        if self._queue.closed:
            raise ConnectionClosed(str(self._end()))
        data = encode(message)
        if (
            self._queued_messages >= QUEUE_MESSAGES_MAX
            or self._queued_bytes + len(data) > QUEUE_BYTES_MAX
        ):
            raise ConnectionOverflow(
                f"{self._queued_messages} messages of {self._queued_bytes} bytes {UNREAD}"
            )
        if self._share is not None and not self._share.has_room(len(data)):
            raise ConnectionOverflow(
                f"{self._share.queued_bytes} bytes wait for the connections of this user to be read"
            )
        self._count_queued(1, len(data))
        self._queue.put(data)

    def _count_queued(self, messages: int, size: int) -> None:
        self._queued_messages += messages
        self._queued_bytes += size
        if self._share is not None:
            self._share.queued_bytes += size

    @property
    def is_behind(self) -> bool:
        return self._queued_messages > BEHIND_MESSAGES or self._queued_bytes > BEHIND_BYTES

    async def receive(self) -> list[Message]:
        """See `Connection`; returns a slice of the messages of one frame.

        After a slice that took long to decode, the connection rests, so that others are served. A
        guest's slices take turns with those of the guest's other connections.
        """
        messages: list[Message] = []
        while not messages:
            if self._arriving is None:
                self._arriving = iter_frame(await self._next_frame(), self._items_max())
            if self._share is not None:
                async with self._share.turn():
                    messages = await self._decode(self._share.slice_messages)
            else:
                await trio.sleep(self._rest_s)
                began = time.thread_time()  # CPU time: the peer does not pay for a busy machine
                messages = await self._decode(SLICE_MESSAGES_MAX)
                took = time.thread_time() - began
                self._rest_s = LONG_REST_FACTOR * took if took > DECODE_S_MAX else 0.0
        return messages

    def _items_max(self) -> int:
        return FRAME_ITEMS_MAX if self._share is None else GUEST_FRAME_ITEMS_MAX

    async def _decode(self, count: int) -> list[Message]:
        """Return the next messages of the frame, at most `count`; no checkpoint unless invalid."""
        assert self._arriving is not None
        try:
            messages = list(islice(self._arriving, count))
        except RemoteProtocolError as error:
            await self._refuse(INVALID, str(error))
        if len(messages) < count:
            self._arriving = None
        return messages

    async def _next_frame(self) -> bytes:
        try:
            data = await self._socket.get_message()
        except trio_websocket.ConnectionClosed:
            self._queue.close()
            raise self._end() from None
        if self._ended is not None:
            raise self._ended
        if isinstance(data, str):
            await self._refuse(UNSUPPORTED, "frame: expected a binary frame, got a text frame")
        return data

    async def aclose(self, reason: str = "") -> None:
        """See `Connection`; takes at most CLOSE_S_MAX seconds."""
        if self._ended is None:
            self._ended = EndOfConnection(_ended_because(reason))
            await self._close_socket(NORMAL, reason)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def write_all(self) -> None:
        """Send queued messages until this end is closed or the connection is gone."""
        try:
            while True:
                for count, frame in join(await self._queue.get_batch()):
                    await self._socket.send_message(frame)
                    self._count_queued(-count, -len(frame))
        except trio.EndOfChannel:
            pass
        except trio_websocket.ConnectionClosed:
            self._queue.close()
        finally:
            self._count_queued(-self._queued_messages, -self._queued_bytes)  # the rest is lost
            self._written.set()

    async def _refuse(self, code: int, text: str) -> NoReturn:
        """Close the connection with `code`, since the peer violated the protocol."""
        self._ended = ConnectionLost(text)
        await self._close_socket(code, text)
        raise self._ended

    async def _close_socket(self, code: int, reason: str) -> None:
        self._queue.close()
        with trio.move_on_after(CLOSE_S_MAX, shield=True):
            try:
                await self._written.wait()
            finally:  # after the timeout, this cuts the socket
                await self._socket.aclose(code, truncated_reason(reason))

    def _end(self) -> TransportError:
        """Return how the connection ended: by this end, regularly by the peer, or by a failure."""
        if self._ended is not None:
            return self._ended
        closed = self._socket.closed
        if closed is None or closed.code == LOST:
            return ConnectionLost("the connection broke: the peer left without a close frame")
        if closed.code in (NORMAL, GOING_AWAY):
            return EndOfConnection(_ended_because(closed.reason or ""))
        reason = closed.reason or closed.name.lower().replace("_", " ")
        return ConnectionLost(f"the connection was cut ({closed.code}): {reason}")


class Tasks:
    """The reader and writer tasks of one connection.

    A cancel from outside does not stop them before the close frame is sent. An error that the peer
    caused ends only the task that raised it; in a nursery of the server it would end every
    connection.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: list[trio.CancelScope] = []
        self._open = trio.Event()  # set when `_reading` is open
        self._used = trio.Event()  # set when `_reading` is about to get its only task
        self._reading: trio.Nursery | None = None  # trio-websocket starts the reader in it
        self.handshake = trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_S_MAX)
        self.error: BaseException | None = None  # ended the reader, if the peer caused it

    async def reading(self) -> trio.Nursery:
        """Open the nursery for trio-websocket's reader, which must start before a checkpoint.

        The nursery accepts no other task after that, so it ends with the reader.
        """
        self.start_soon(self._read)
        await self._open.wait()
        assert self._reading is not None
        self._used.set()
        return self._reading

    async def _read(self) -> None:
        try:
            async with trio.open_nursery() as self._reading:
                self._open.set()
                await self._used.wait()
        finally:
            self.handshake.cancel()  # without a reader a handshake would never end

    def start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run `task` until it ends or `stop` is called."""
        scope = trio.CancelScope(shield=True)
        self._scopes.append(scope)
        self._nursery.start_soon(self._run, task, scope)

    async def _run(self, task: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        try:
            with scope:
                await task()
        except* _PEER_ERRORS as group:
            self.error = leaves(group)[0]

    def stop(self) -> None:
        """Cancel the tasks that still run."""
        for scope in self._scopes:
            scope.cancel()


@asynccontextmanager
async def open_tasks() -> AsyncIterator[Tasks]:
    """Yield the tasks of one connection; they end with the block."""
    async with trio.open_nursery() as nursery:
        tasks = Tasks(nursery)
        try:
            yield tasks
        finally:
            tasks.stop()


@asynccontextmanager
async def open_connection(
    socket: trio_websocket.WebSocketConnection, tasks: Tasks, share: Share | None = None
) -> AsyncIterator[WebSocketConnection]:
    """Carry messages over `socket` after its handshake; close it at the end of the block."""
    connection = WebSocketConnection(socket, share)
    tasks.start_soon(connection.write_all)
    try:
        yield connection
    finally:
        await connection.aclose()


def truncated_reason(reason: str) -> str:
    """Return the beginning of `reason` that fits into a close frame."""
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")


def _ended_because(reason: str) -> str:
    return f"the connection was closed: {reason}" if reason else "the connection was closed"
