"""Flux's own wire, frames of RFC 3 over a socket, and the client's side of its beginning.

The server begins with one byte: 0 lets the client in, another value is the errno of the refusal.
After that both ends send frames. Neither end says goodbye or why it closes.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import trio

from flux_trio.messages import Message, RemoteProtocolError, errno_text, native
from flux_trio.messages.address import flux_address
from flux_trio.messages.codec import FRAME_BYTES_MAX
from flux_trio.transports.base import (
    ConnectionClosed,
    ConnectionLost,
    ConnectionRefused,
    EndOfConnection,
    TransportError,
    ended_because,
)
from flux_trio.transports.paced import PacedConnection, opened
from flux_trio.transports.share import Share

READ_BYTES: Final = 64 * 2**10  # one system call takes a few hundred messages
WELCOME: Final = b"\0"  # the byte that lets a client in

# A socket that appears a little later is waited for, as libflux does.
RETRIES: Final = 5
RETRY_S: Final = 0.016  # the first wait; each further one is twice as long
RETRY_S_MAX: Final = 2.0


class NativeWire:
    """A stream of frames, as a `Wire`; one that comes may have `frame_max` bytes."""

    def __init__(self, stream: trio.SocketStream, frame_max: int = FRAME_BYTES_MAX) -> None:
        self._stream = stream
        self._frames = native.FrameReader(frame_max)
        self._reading = trio.Lock()  # one reads until the connection closes, then `aclose`
        self._ended: TransportError | None = None  # set when nothing more will come

    def encode(self, message: Message) -> bytes:
        return native.encode(native.to_frame(message))

    async def send(self, piece: bytes) -> None:
        try:
            await self._stream.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionClosed(str(self.end())) from None

    async def receive(self) -> Iterator[Message]:
        data = await self._read()
        if not data:
            raise ConnectionClosed(str(self.end()))
        self._frames.feed(data)
        return map(native.to_message, self._frames.frames())

    async def _read(self) -> bytes | bytearray:
        """Return what came; nothing at the end of the connection, which is the end of both ways."""
        async with self._reading:
            try:
                data = await self._stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""
        if not data:
            if not self._frames.has_part:
                self._ended = EndOfConnection(ended_because(""))
            await trio.aclose_forcefully(self._stream)
        return data

    async def aclose(self, _reason: str, violation: RemoteProtocolError | None = None) -> None:
        """See `Wire`. The peer hears no reason; it is read to its end, so that it loses nothing."""
        try:
            await trio.lowlevel.checkpoint()
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                if violation is None:
                    await self._stream.send_eof()
                    while await self._read():
                        pass
        finally:
            await trio.aclose_forcefully(self._stream)

    def end(self) -> TransportError:
        return self._ended or ConnectionLost("the connection broke: the peer is gone")


class NativeConnection(PacedConnection):
    """A `Connection` with a broker of flux-core, or with another peer that speaks its wire."""

    def send_frame_nowait(self, frame: native.Frame) -> None:
        """Queue `frame` as it is, such as one with a raw payload; see `send_nowait`."""
        self._send_encoded(native.encode(frame))


@asynccontextmanager
async def connect_native(uri: str, retries: int = RETRIES) -> AsyncIterator[NativeConnection]:
    """Connect to the broker at `uri`, as `open_stream` does."""
    stream = await open_stream(uri, retries)
    try:
        async with open_native(stream) as connection:
            yield connection
    finally:
        await trio.aclose_forcefully(stream)


async def open_stream(uri: str, retries: int = RETRIES) -> trio.SocketStream:
    """Return a stream to the broker at `uri`: local://PATH, or fd://N for an open socket.

    Frames follow on it. Raises ConnectionRefused if nobody listens or the broker does not let this
    user in.
    """
    try:
        stream = await _open_stream(flux_address(uri), retries)
    except ValueError as error:
        raise ConnectionRefused(f"{uri}: {error}") from None
    except OSError as error:
        raise ConnectionRefused(f"{uri}: {error.strerror or error}") from None
    async with AsyncExitStack() as undo:
        undo.push_async_callback(trio.aclose_forcefully, stream)
        await _be_let_in(stream, uri)
        undo.pop_all()
    return stream


@asynccontextmanager
async def open_native(
    stream: trio.SocketStream, share: Share | None = None, frame_max: int = FRAME_BYTES_MAX
) -> AsyncIterator[NativeConnection]:
    """Carry messages over `stream`, whose first byte is past; close it at the end of the block.

    A guest's connection has the `share` of that guest; a frame that comes may have `frame_max`
    bytes.
    """
    async with opened(NativeConnection(NativeWire(stream, frame_max), share)) as connection:
        yield connection


async def _open_stream(address: str | int, retries: int) -> trio.SocketStream:
    if isinstance(address, int):
        return trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=address)))
    wait_s = RETRY_S
    for _ in range(retries):
        with suppress(OSError):
            return await trio.open_unix_socket(address)
        await trio.sleep(wait_s)
        wait_s = min(2 * wait_s, RETRY_S_MAX)
    return await trio.open_unix_socket(address)


async def _be_let_in(stream: trio.SocketStream, uri: str) -> None:
    try:
        first = await stream.receive_some(1)
    except trio.BrokenResourceError:
        first = b""
    if not first:
        raise ConnectionRefused(f"{uri}: the broker closed the connection at once")
    if first != WELCOME:
        raise ConnectionRefused(f"{uri}: refused: {errno_text(first[0])}")
