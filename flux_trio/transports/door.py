"""The server's side: accepts connections at a port or a Unix socket and identifies each peer.

At the port, a token in the Authorization header of the upgrade request identifies the peer. At the
socket the kernel identifies it (SO_PEERCRED), so no secret is needed. After that both are the same:
a WebSocket on a stream.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import trio
import trio_websocket
from wsproto.frame_protocol import FrameProtocol

from flux_trio.messages import ROLE_OWNER
from flux_trio.messages.address import uri_of, uri_of_socket
from flux_trio.messages.codec import FRAME_BYTES_MAX
from flux_trio.transports.base import Connection, Credentials
from flux_trio.transports.share import Share
from flux_trio.transports.websocket import (
    CLOSE_S_MAX,
    FRAMES_AHEAD,
    INVALID,
    PROTOCOL_ERROR,
    READ_BYTES,
    Tasks,
    open_connection,
    open_tasks,
    truncated_reason,
)

CONNECTIONS_MAX: Final = 1024  # open at one door; the next one replaces an unfinished handshake
CONNECTIONS_OF_OWNER_MAX: Final = 512  # of the instance owner
CONNECTIONS_OF_GUEST_MAX: Final = 64  # of each guest; each may hold two frames and a part of one
CONNECTIONS_OF_GUESTS_MAX: Final = 768  # of all guests: the rest is reserved for the owner
GUEST_FRAME_BYTES_MAX: Final = 2**20  # a jobspec with a full environment is 100 kB
BACKLOG: Final = 128  # connections that wait to be accepted; as for a port

Headers: TypeAlias = list[tuple[bytes, bytes]]
OnConnection: TypeAlias = Callable[[Connection, Credentials], Awaitable[None]]

_CLOSE_FRAME: Final = b"\x88"  # its first byte (RFC 6455, 5.2): final, opcode 8
_PEERCRED: Final = struct.Struct("iII")  # pid, uid, gid (unix(7))


class Refusal(NamedTuple):
    """The reason for refusing a connection, as an HTTP answer."""

    status: int
    text: str


Identify: TypeAlias = Callable[[trio.SocketStream, Headers], Credentials | Refusal]


async def serve_websocket(
    host: str,
    port: int,
    authenticate: Callable[[str], Credentials | None],
    on_connection: OnConnection,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen on `host` (an address of this machine) until cancelled; port 0 takes any free port.

    Reports the URI when it has started. `authenticate` maps a token to its user, or to None; it
    should compare in constant time. `on_connection` owns the connection while it runs. Raises
    OSError if the address is in use.
    """

    def identify(_stream: trio.SocketStream, headers: Headers) -> Credentials | Refusal:
        token = _bearer_token(headers)
        if token is None:
            return Refusal(401, "expected a header: Authorization: Bearer TOKEN")
        return authenticate(token) or Refusal(403, "this instance does not know that token")

    listeners = await trio.open_tcp_listeners(port, host=host)
    address, taken, *_ = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, _Door(identify, on_connection).take, listeners)
        task_status.started(uri_of(address, taken))


async def serve_unix(
    path: Path,
    mode: int,
    who_is: Callable[[int], Credentials | None],
    on_connection: OnConnection,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen at the Unix socket `path` until cancelled; no other server may use the path.

    The file stays, since only the caller knows when no other server can have replaced it. `mode`
    says which users can connect; `who_is` maps a userid to its credentials, or to None. The rest is
    as for `serve_websocket`. Raises OSError if the socket cannot be created.
    """

    def identify(stream: trio.SocketStream, _headers: Headers) -> Credentials | Refusal:
        peer = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        _pid, userid, _gid = _PEERCRED.unpack(peer)
        return who_is(userid) or Refusal(403, f"user {userid} has no access to this instance")

    with _bound(path, mode) as listening:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        async with trio.open_nursery() as nursery:
            door = _Door(identify, on_connection)
            await nursery.start(trio.serve_listeners, door.take, [listener])
            task_status.started(uri_of_socket(str(path)))


@contextmanager
def _bound(path: Path, mode: int) -> Iterator[socket.socket]:
    """Yield a socket that listens at `path`; its `mode` is set before anybody can connect."""
    path.unlink(missing_ok=True)  # left by an instance that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(os.fspath(path))
        path.chmod(mode)
        listening.listen(BACKLOG)
        yield listening


class _Door:
    """Handles each connection: WebSocket handshake, identification, then `on_connection`."""

    def __init__(self, identify: Identify, on_connection: OnConnection) -> None:
        self._identify = identify
        self._on_connection = on_connection
        self._open = 0
        self._handshakes: dict[Tasks, None] = {}  # unfinished, the oldest first
        self._of_owner = 0
        self._shares: dict[int, Share] = {}  # by userid, of guests that have a connection
        self._of_refused = Share()  # of all who are refused

    async def take(self, stream: trio.SocketStream) -> None:
        """Handle one connection from start to end; errors caused by the peer do not leave."""
        if self._open >= CONNECTIONS_MAX and not self._drop_oldest_handshake():
            return
        self._open += 1
        try:
            with ExitStack() as counted:
                dropped = await self._welcome(stream, counted)
            if not dropped:
                await _linger(stream)
        finally:
            self._open -= 1

    async def _welcome(self, stream: trio.SocketStream, counted: ExitStack) -> bool:
        """Do the handshake and serve; return True if it was dropped to make room."""
        async with open_tasks() as tasks:
            self._handshakes[tasks] = None
            admitted = None
            try:
                with tasks.handshake:
                    admitted = await self._admit(stream, tasks, counted)
            finally:
                dropped = tasks not in self._handshakes
                self._handshakes.pop(tasks, None)
            if admitted is not None:
                await self._serve(*admitted, tasks)
        return dropped

    def _drop_oldest_handshake(self) -> bool:
        """Make room for a connection; return False if no handshake is unfinished.

        Anybody can open connections and send nothing. An honest client finishes its handshake fast.
        """
        oldest = next(iter(self._handshakes), None)
        if oldest is None:
            return False
        del self._handshakes[oldest]
        oldest.handshake.cancel()
        return True

    async def _serve(
        self, socket: trio_websocket.WebSocketConnection, credentials: Credentials, tasks: Tasks
    ) -> None:
        share = self._shares.get(credentials.userid) if _is_guest(credentials) else None
        async with open_connection(socket, tasks, share) as connection:
            await self._on_connection(connection, credentials)

    @contextmanager
    def _counted(self, peer: Credentials | Refusal) -> Iterator[Credentials | Refusal]:
        """Count `peer` as a connection during the block; yield `peer`, or a refusal."""
        if isinstance(peer, Refusal):
            yield peer
        elif refusal := self._too_many(peer):
            yield refusal
        elif _is_guest(peer):
            share = self._shares.setdefault(peer.userid, Share())
            share.connections += 1
            try:
                yield peer
            finally:
                share.connections -= 1
                if not share.connections:
                    del self._shares[peer.userid]
        else:
            self._of_owner += 1
            try:
                yield peer
            finally:
                self._of_owner -= 1

    def _too_many(self, peer: Credentials) -> Refusal | None:
        if not _is_guest(peer):
            if self._of_owner >= CONNECTIONS_OF_OWNER_MAX:
                return Refusal(429, f"{self._of_owner} connections of the instance owner are open")
            return None
        share = self._shares.get(peer.userid)
        if share is not None and share.connections >= CONNECTIONS_OF_GUEST_MAX:
            return Refusal(429, f"{share.connections} connections of user {peer.userid} are open")
        of_guests = sum(each.connections for each in self._shares.values())
        if of_guests >= CONNECTIONS_OF_GUESTS_MAX:
            return Refusal(429, f"{of_guests} connections of guests are open")
        return None

    async def _admit(
        self, stream: trio.SocketStream, tasks: Tasks, counted: ExitStack
    ) -> tuple[trio_websocket.WebSocketConnection, Credentials] | None:
        held = _PoliteStream(stream)
        request = await trio_websocket.wrap_server_stream(
            await tasks.reading(), held, FRAMES_AHEAD, FRAME_BYTES_MAX, READ_BYTES
        )
        peer = counted.enter_context(self._counted(self._identify(stream, request.headers)))
        await self._wait_for_turn(peer)
        try:
            if isinstance(peer, Credentials):
                held.socket = await request.accept()
                if _is_guest(peer):
                    limit_frames(held.socket, GUEST_FRAME_BYTES_MAX)
                return held.socket, peer
            challenge = [(b"WWW-Authenticate", b"Bearer")] if peer.status == 401 else []
            await request.reject(peer.status, extra_headers=challenge, body=peer.text.encode())
        except trio_websocket.ConnectionClosed:
            pass
        return None

    async def _wait_for_turn(self, peer: Credentials | Refusal) -> None:
        """Let a new connection of a guest, or a refused one, wait as a message of a guest does."""
        if isinstance(peer, Refusal):
            share = self._of_refused
        elif _is_guest(peer):
            share = self._shares[peer.userid]
        else:
            return
        async with share.turn():
            pass


class _PoliteStream(trio.abc.Stream):
    """The stream given to trio-websocket: it tells a peer that it violated the WebSocket protocol.

    trio-websocket would close the stream without a close frame. This class sends the close frame
    instead and keeps the stream open, so that the peer can read the frame. The door closes it.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._sent_close = False
        self._ended = False
        self.socket: trio_websocket.WebSocketConnection | None = None  # after the handshake

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._ended:
            raise trio.ClosedResourceError("the close frame has been sent")
        self._sent_close |= data[:1] == _CLOSE_FRAME  # trio-websocket sends whole frames
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._ended:
            raise trio.ClosedResourceError("this stream is no longer read")
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        closed = None if self.socket is None else self.socket.closed
        if closed is None or closed.code not in (PROTOCOL_ERROR, INVALID) or self._sent_close:
            await self._stream.aclose()
            return
        self._ended = self._sent_close = True
        reason = truncated_reason(closed.reason or "")
        frame = FrameProtocol(client=False, extensions=[]).close(closed.code, reason)
        with (
            trio.move_on_after(CLOSE_S_MAX),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError),
        ):
            await self._stream.send_all(frame)


def limit_frames(socket: trio_websocket.WebSocketConnection, size: int) -> None:
    """Make `socket` close with code 1009 when a frame of more than `size` bytes comes.

    trio-websocket takes this limit only when it wraps the stream, and the token that identifies the
    peer comes later. The attribute is private; a test fails if trio-websocket renames it.
    """
    socket._max_message_size = size


def _is_guest(peer: Credentials) -> bool:
    return not peer.rolemask & ROLE_OWNER


def _bearer_token(headers: Headers) -> str | None:
    for name, value in headers:
        if name.lower() == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1").strip()
    return None


async def _linger(stream: trio.SocketStream) -> None:
    """Read until the peer has seen the close frame: with unread bytes the kernel would drop it."""
    with trio.move_on_after(CLOSE_S_MAX):
        try:
            await stream.send_eof()
            while await stream.receive_some(READ_BYTES):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
