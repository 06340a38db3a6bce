"""One end of the shell host's socket: `send` does not wait, `receive` returns batches."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

from flux_trio.shell.protocol import SOCKET_NAME, ShellNotice, ShellRequest, Unframer, frame

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import msgspec

RECEIVE_BYTES: Final = 1 << 16
SEND_BYTES: Final = 1 << 18
# Bytes that may wait for a peer that does not read. Beyond them the connection is closed. Nothing
# is lost: when the peer connects again, it asks for the state of its jobs.
WAITING_BYTES_MAX: Final = 64 << 20

M = TypeVar("M")


@contextmanager
def socket_address(directory: Path) -> Iterator[str]:
    """Yield the address of the socket in `directory`, for a path of any length.

    An address has at most 107 bytes; a path through /proc/self/fd is always short.
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


class ShellStream(Generic[M]):
    """Sends requests and receives notices, or sends notices and receives requests."""

    def __init__(self, stream: trio.SocketStream, decoder: msgspec.json.Decoder[M]) -> None:
        self._stream = stream
        self._unframer = Unframer(decoder)
        self._waiting = bytearray()
        self._wake = trio.Event()

    def send(self, message: ShellRequest | ShellNotice) -> None:
        """Queue `message` for `pump`. Raises ShellProtocolError if it is too long."""
        self._waiting += frame(message)
        self._wake.set()

    async def pump(self) -> None:
        """Write the queued messages until the connection fails; then `receive` ends too."""
        with suppress(OSError, trio.ClosedResourceError):
            while len(self._waiting) <= WAITING_BYTES_MAX:
                if not self._waiting:
                    self._wake = trio.Event()
                    await self._wake.wait()
                # a cancelled send writes nothing, so `_waiting` is always the unsent rest
                sent = await self._stream.socket.send(bytes(self._waiting[:SEND_BYTES]))
                del self._waiting[:sent]
            self._stream.socket.shutdown(socket.SHUT_RDWR)

    async def receive(self) -> list[M]:
        """Return the next messages; [] if the connection has ended. Raises ShellProtocolError."""
        while True:
            try:
                data = await self._stream.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return []
            if not data:
                return []
            messages = self._unframer.feed(bytes(data))
            if messages:
                return messages

    def send_last(self, message: ShellRequest) -> None:
        """After `pump` has ended, write the rest and `message`, as far as the kernel takes them."""
        with suppress(OSError):
            os.write(self._stream.socket.fileno(), bytes(self._waiting) + frame(message))

    def close(self) -> None:
        self._stream.socket.close()


def is_same_user(stream: trio.SocketStream) -> bool:
    """Return whether the process at the other end runs as this user."""
    credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little") == os.getuid()
