"""The server's side of Flux's own wire: accepts clients at a Unix socket, as a Flux broker does.

The kernel says which user has connected. One byte answers: 0 lets the client in, another value is
the errno of the refusal. Frames follow.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import trio

from flux_trio.messages import Errno
from flux_trio.messages.codec import FRAME_BYTES_MAX
from flux_trio.process.console import STDERR
from flux_trio.process.listening import serve_listeners
from flux_trio.transports.base import Credentials, OnConnection
from flux_trio.transports.gate import GUEST_FRAME_BYTES_MAX, NO_ACCESS, Gate, Refusal, is_guest
from flux_trio.transports.listening import bound, peer_userid
from flux_trio.transports.native import WELCOME, open_native


async def serve_native(
    path: Path,
    mode: int,
    who_is: Callable[[int], Credentials | None],
    on_connection: OnConnection,
    *,
    tell: Callable[[str], object] = STDERR.write,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen at the Unix socket `path` until cancelled, for clients that speak Flux's own wire.

    Reports the URI, as `FLUX_URI` has it, when it has started. `mode` says which users can connect;
    `who_is` maps a userid to its credentials, or to None. `on_connection` owns the connection while
    it runs. `tell` gets a line when no connection can be taken. Raises OSError if the
    socket cannot be created.
    """
    with bound(path, mode) as listener:
        async with trio.open_nursery() as nursery:
            door = _NativeDoor(who_is, on_connection)
            await nursery.start(serve_listeners, door.serve, [listener], tell)
            task_status.started(native_uri(path))


def native_uri(path: Path) -> str:
    """Return the address of the socket `path`, as FLUX_URI has it."""
    return f"local://{path}"


class _NativeDoor:
    """Handles each connection: identification, the first byte, then `on_connection`."""

    def __init__(
        self, who_is: Callable[[int], Credentials | None], on_connection: OnConnection
    ) -> None:
        self._who_is = who_is
        self._on_connection = on_connection
        self._gate = Gate()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Handle one connection from start to end; errors caused by the peer do not leave."""
        userid = peer_userid(stream)
        found = self._who_is(userid) or Refusal(Errno.EPERM, NO_ACCESS.format(userid))
        try:
            with self._gate.place() as there_is_room, self._gate.counted(found) as peer:
                if not there_is_room:
                    peer = Refusal(Errno.EAGAIN, "all connections of this instance are in use")
                await self._gate.wait_for_turn(peer)
                if isinstance(peer, Refusal):
                    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                        await stream.send_all(bytes([peer.errnum]))
                else:
                    await self._serve(stream, peer)
        finally:
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: trio.SocketStream, peer: Credentials) -> None:
        try:
            await stream.send_all(WELCOME)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        frame_max = GUEST_FRAME_BYTES_MAX if is_guest(peer) else FRAME_BYTES_MAX
        async with open_native(stream, self._gate.share(peer), frame_max) as connection:
            await self._on_connection(connection, peer)
