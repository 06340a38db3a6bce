"""Messages over a WebSocket (docs/reference/wire.md): frames of CBOR both ways, on any stream.

trio-websocket does HTTP and the WebSocket protocol; this module runs its reader, and makes the
`Wire` of a `PacedConnection` from it. The beginning differs: `door` accepts clients, `connecting`
is the client's side.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import h11
import trio
import trio_websocket
import wsproto.utilities

from flux_trio.messages import Message, RemoteProtocolError
from flux_trio.messages.codec import FRAME_ITEMS_MAX, GUEST_FRAME_ITEMS_MAX, encode, iter_frame
from flux_trio.process.groups import error_of_block, leaves
from flux_trio.transports.base import (
    ConnectionClosed,
    ConnectionLost,
    EndOfConnection,
    TransportError,
    ended_because,
)
from flux_trio.transports.paced import PacedConnection, opened
from flux_trio.transports.share import Share

# To send a request line and a token. A busy machine, or an instance that a plugin holds up, is slow
# here: the number of newcomers is what bounds them.
HANDSHAKE_S_MAX: Final = 30.0
FRAMES_AHEAD: Final = 1  # received and not yet read; each may have FRAME_BYTES_MAX bytes
READ_BYTES: Final = 64 * 2**10  # one system call takes a few hundred messages

# Close codes (RFC 6455, 7.4.1)
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED: Final = 1003
LOST: Final = 1006
INVALID: Final = 1007
POLICY: Final = 1008
_PEER_ERRORS: Final = (
    wsproto.utilities.ProtocolError,  # not HTTP, not a WebSocket, or a frame after the last one
    h11.ProtocolError,
    UnicodeError,  # a header that is not text
    trio_websocket.ConnectionClosed,
    trio_websocket.HandshakeError,
)
REASON_BYTES_MAX: Final = 123  # a close frame's payload is at most 125 bytes, 2 are the code

T = TypeVar("T")


class _TextFrame(RemoteProtocolError):
    """A frame of a type that holds no messages."""


class WebSocketWire:
    """A WebSocket after its handshake, as a `Wire`; a frame may have `items_max` CBOR items."""

    def __init__(self, socket: trio_websocket.WebSocketConnection, items_max: int) -> None:
        self.socket = socket
        self._items_max = items_max

    def encode(self, message: Message) -> bytes:
        return encode(message)

    async def send(self, piece: bytes) -> None:
        try:
            await self.socket.send_message(piece)
        except trio_websocket.ConnectionClosed:
            raise ConnectionClosed(str(self.end())) from None

    async def receive(self) -> Iterator[Message]:
        try:
            data = await self.socket.get_message()
        except trio_websocket.ConnectionClosed:
            raise ConnectionClosed(str(self.end())) from None
        if isinstance(data, str):
            raise _TextFrame("frame: expected a binary frame, got a text frame")
        return iter_frame(data, self._items_max)

    async def aclose(self, reason: str, violation: RemoteProtocolError | None = None) -> None:
        code = NORMAL
        if violation is not None:
            code = UNSUPPORTED if isinstance(violation, _TextFrame) else INVALID
        await self.socket.aclose(code, truncated_reason(reason))

    def end(self) -> TransportError:
        closed = self.socket.closed
        if closed is None or closed.code == LOST:
            return ConnectionLost("the connection broke: the peer left without a close frame")
        if closed.code in (NORMAL, GOING_AWAY):
            return EndOfConnection(ended_because(closed.reason or ""))
        reason = closed.reason or closed.name.lower().replace("_", " ")
        return ConnectionLost(f"the connection was cut ({closed.code}): {reason}")


class Handshake:
    """The beginning of one connection; its time is limited."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_S_MAX)
        self.error: BaseException | None = None  # ended the reader, if the peer caused it
        self.readers: trio.Nursery  # for the reader alone
        self.can_begin = trio.Event()  # there is the nursery
        self.has_begun = trio.Event()  # it gets the reader before the next checkpoint


@asynccontextmanager
async def open_socket(
    handshake: Handshake, shake_hands: Callable[[trio.Nursery], Awaitable[T]]
) -> AsyncIterator[T | None]:
    """Yield what `shake_hands` returns, None if the handshake ends before that.

    `shake_hands` starts trio-websocket's reader in the nursery that it gets, before a checkpoint;
    the nursery ends with the reader, and the reader with this block. A cancel from outside does not
    stop the reader before that, since a close frame may have to be sent.
    """
    reading = trio.CancelScope(shield=True)
    with error_of_block():
        async with trio.open_nursery() as nursery:
            # not by `start`: cancelled, it would wait for the end of a task that is shielded
            nursery.start_soon(_read, handshake, reading)
            try:
                result = None
                with handshake.scope:
                    await handshake.can_begin.wait()
                    handshake.has_begun.set()
                    result = await shake_hands(handshake.readers)
                yield result
            finally:
                reading.cancel()


async def _read(handshake: Handshake, reading: trio.CancelScope) -> None:
    """Run the nursery of a reader. What the peer causes is noted, and does not end the server."""
    try:
        with reading:
            try:
                async with trio.open_nursery() as handshake.readers:
                    handshake.can_begin.set()
                    await handshake.has_begun.wait()  # it gets one task: it ends with the reader
            finally:
                handshake.scope.cancel()  # without a reader a handshake would never end
    except* _PEER_ERRORS as group:
        handshake.error = leaves(group)[0]


@asynccontextmanager
async def open_connection(
    socket: trio_websocket.WebSocketConnection, share: Share | None = None
) -> AsyncIterator[PacedConnection]:
    """Carry messages over `socket` after its handshake; close it at the end of the block."""
    items_max = FRAME_ITEMS_MAX if share is None else GUEST_FRAME_ITEMS_MAX
    async with opened(PacedConnection(WebSocketWire(socket, items_max), share)) as connection:
        yield connection


def truncated_reason(reason: str) -> str:
    """Return the beginning of `reason` that fits into a close frame."""
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
