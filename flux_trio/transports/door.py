"""Where connections come in: a port, a Unix socket, and who each one is.

At the port a token in the Authorization header of the upgrade request says it; at the socket the
kernel does (SO_PEERCRED), and no secret is needed. From there on the two are the same: a WebSocket
on a stream.
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
    fit_reason,
    open_tasks,
    talking,
)

CONNECTIONS_MAX: Final = 1024  # open at one door; one more takes the place of one not let in yet
CONNECTIONS_OF_OWNER_MAX: Final = 512  # of the instance owner
CONNECTIONS_OF_GUEST_MAX: Final = 64  # of each guest; each may hold two frames and a part of one
CONNECTIONS_OF_GUESTS_MAX: Final = 768  # of all guests: the rest is for the instance owner
GUEST_FRAME_BYTES_MAX: Final = 2**20  # a jobspec with all of an environment is 100 kB
BACKLOG: Final = 128  # that wait to be let in; as for a port

Headers: TypeAlias = list[tuple[bytes, bytes]]
OnConnection: TypeAlias = Callable[[Connection, Credentials], Awaitable[None]]

_CLOSE_FRAME: Final = b"\x88"  # its first byte (RFC 6455, 5.2): final, opcode 8
_PEERCRED: Final = struct.Struct("iII")  # pid, uid, gid (unix(7))


class Refusal(NamedTuple):
    """Why a connection is not let in, as an HTTP answer."""

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
    """Listen on `host` (an address of this machine) until cancelled; port 0 is any free one.

    Starts with the URI it listens at. `authenticate` maps a token to who that is, or None; it
    should compare in constant time. `on_connection` has the connection for as long as it runs.
    Raises OSError when the address is taken.
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
    """Listen at the Unix socket `path`, which nobody else uses, until cancelled.

    The file stays: who calls this knows when nobody else can have made another. `mode` says which
    users can connect, `who_is` maps a userid to who that is, or None. The rest is as for
    `serve_websocket`. Raises OSError when there can be no such socket.
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
    """A socket that listens at `path`, and has `mode` before anybody can connect."""
    path.unlink(missing_ok=True)  # of an instance that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(os.fspath(path))
        path.chmod(mode)
        listening.listen(BACKLOG)
        yield listening


class _Door:
    """The handshake, who it is, then the one whom the connection is for."""

    def __init__(self, identify: Identify, on_connection: OnConnection) -> None:
        self._identify = identify
        self._on_connection = on_connection
        self._open = 0
        self._shaking: dict[Tasks, None] = {}  # hands, those who came first at the front
        self._of_owner = 0
        self._shares: dict[int, Share] = {}  # of guests who have a connection, by userid

    async def take(self, stream: trio.SocketStream) -> None:
        """One connection from its first byte to its last; whatever the peer sends stays here."""
        if self._open >= CONNECTIONS_MAX and not self._give_up_oldest():
            return
        self._open += 1
        try:
            with ExitStack() as counted:
                given_up = await self._welcome(stream, counted)
            if not given_up:
                await _linger(stream)
        finally:
            self._open -= 1

    async def _welcome(self, stream: trio.SocketStream, counted: ExitStack) -> bool:
        """Shake hands and serve; True when it was given up to make room."""
        async with open_tasks() as tasks:
            self._shaking[tasks] = None
            admitted = None
            try:
                with tasks.handshake:
                    admitted = await self._admit(stream, tasks, counted)
            finally:
                given_up = tasks not in self._shaking
                self._shaking.pop(tasks, None)
            if admitted is not None:
                await self._serve(*admitted, tasks)
        return given_up

    def _give_up_oldest(self) -> bool:
        """Make room for one more at the cost of who has not said all of its request by now.

        Anybody can open connections and say nothing; honest ones take no time.
        """
        oldest = next(iter(self._shaking), None)
        if oldest is None:
            return False
        del self._shaking[oldest]
        oldest.handshake.cancel()
        return True

    async def _serve(
        self, socket: trio_websocket.WebSocketConnection, credentials: Credentials, tasks: Tasks
    ) -> None:
        share = self._shares.get(credentials.userid) if _is_guest(credentials) else None
        async with talking(socket, tasks, share) as connection:
            await self._on_connection(connection, credentials)

    @contextmanager
    def _counted(self, who: Credentials | Refusal) -> Iterator[Credentials | Refusal]:
        """`who` as one more connection in the block, or the refusal of it."""
        if isinstance(who, Refusal):
            yield who
        elif refusal := self._too_many(who):
            yield refusal
        elif _is_guest(who):
            share = self._shares.setdefault(who.userid, Share())
            share.connections += 1
            try:
                yield who
            finally:
                share.connections -= 1
                if not share.connections:
                    del self._shares[who.userid]
        else:
            self._of_owner += 1
            try:
                yield who
            finally:
                self._of_owner -= 1

    def _too_many(self, who: Credentials) -> Refusal | None:
        if not _is_guest(who):
            if self._of_owner >= CONNECTIONS_OF_OWNER_MAX:
                return Refusal(429, f"{self._of_owner} connections of the instance owner are open")
            return None
        share = self._shares.get(who.userid)
        if share is not None and share.connections >= CONNECTIONS_OF_GUEST_MAX:
            return Refusal(429, f"{share.connections} connections of user {who.userid} are open")
        of_guests = sum(each.connections for each in self._shares.values())
        if of_guests >= CONNECTIONS_OF_GUESTS_MAX:
            return Refusal(429, f"{of_guests} connections of guests are open")
        return None

    async def _admit(
        self, stream: trio.SocketStream, tasks: Tasks, counted: ExitStack
    ) -> tuple[trio_websocket.WebSocketConnection, Credentials] | None:
        held = _Held(stream)
        request = await trio_websocket.wrap_server_stream(
            await tasks.reading(), held, FRAMES_AHEAD, FRAME_BYTES_MAX, READ_BYTES
        )
        who = counted.enter_context(self._counted(self._identify(stream, request.headers)))
        try:
            if isinstance(who, Credentials):
                held.socket = await request.accept()
                if _is_guest(who):
                    limit_frames(held.socket, GUEST_FRAME_BYTES_MAX)
                return held.socket, who
            challenge = [(b"WWW-Authenticate", b"Bearer")] if who.status == 401 else []
            await request.reject(who.status, extra_headers=challenge, body=who.text.encode())
        except trio_websocket.ConnectionClosed:
            pass
        return None


class _Held(trio.abc.Stream):
    """A stream as trio-websocket has it: who breaks the WebSocket protocol is told so.

    trio-websocket would close it without a word. This says goodbye in its place, and leaves the
    stream open for the peer to read that; the door closes it.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._said_goodbye = False
        self._ended = False
        self.socket: trio_websocket.WebSocketConnection | None = None  # once it is open

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._ended:
            raise trio.ClosedResourceError("the goodbye is said")
        self._said_goodbye |= data[:1] == _CLOSE_FRAME  # trio-websocket sends whole frames
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._ended:
            raise trio.ClosedResourceError("what comes is no longer read")
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        closed = None if self.socket is None else self.socket.closed
        if closed is None or closed.code not in (PROTOCOL_ERROR, INVALID) or self._said_goodbye:
            await self._stream.aclose()
            return
        self._ended = self._said_goodbye = True
        reason = fit_reason(closed.reason or "")
        frame = FrameProtocol(client=False, extensions=[]).close(closed.code, reason)
        with (
            trio.move_on_after(CLOSE_S_MAX),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError),
        ):
            await self._stream.send_all(frame)


def limit_frames(socket: trio_websocket.WebSocketConnection, size: int) -> None:
    """Close `socket` with code 1009 when a frame of more than `size` bytes comes.

    trio-websocket takes this bound only when it wraps the stream, and the token that says who the
    peer is comes after that. Its attribute is private: a test fails when it is another one.
    """
    socket._max_message_size = size


def _is_guest(who: Credentials) -> bool:
    return not who.rolemask & ROLE_OWNER


def _bearer_token(headers: Headers) -> str | None:
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
