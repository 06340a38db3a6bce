"""The server's side: accepts connections at a port or a Unix socket and identifies each peer.

At the port, a token in the Authorization header of the upgrade request identifies the peer. At the
socket the kernel identifies it (SO_PEERCRED), so no secret is needed. After that both are the same:
a WebSocket on a stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeAlias

import trio
import trio_websocket
from wsproto.frame_protocol import FrameProtocol

from flux_trio.messages import Errno, RemoteProtocolError
from flux_trio.messages.address import uri_of, uri_of_socket
from flux_trio.messages.codec import FRAME_BYTES_MAX
from flux_trio.process.console import STDERR
from flux_trio.process.listening import serve_listeners
from flux_trio.transports.base import Credentials, OnConnection
from flux_trio.transports.frames import Frames
from flux_trio.transports.gate import GUEST_FRAME_BYTES_MAX, NO_ACCESS, Gate, Refusal, is_guest
from flux_trio.transports.listening import bound, peer_userid
from flux_trio.transports.paced import CLOSE_S_MAX
from flux_trio.transports.share import Share
from flux_trio.transports.websocket import (
    FRAMES_AHEAD,
    INVALID,
    POLICY,
    PROTOCOL_ERROR,
    READ_BYTES,
    Handshake,
    open_connection,
    open_socket,
    truncated_reason,
)

REQUEST_READS_MAX: Final = 16  # of an upgrade request: a client sends it at once
PART_PAUSE_S: Final = 0.2  # between two reads of what a peer sends that is told why it is closed

Headers: TypeAlias = list[tuple[bytes, bytes]]

_BLANK_LINE: Final = re.compile(rb"\n\r?\n")  # the end of a request, as h11 finds it
_BLANK_LINE_BYTES: Final = 3
_CLOSE_FRAME: Final = b"\x88"  # its first byte (RFC 6455, 5.2): final, opcode 8
STATUSES: Final = {Errno.EACCES: 401, Errno.EPERM: 403, Errno.EAGAIN: 429}
"""The HTTP status of each reason that a gate or an identification has to refuse a peer."""

Identify: TypeAlias = Callable[[trio.SocketStream, Headers], Credentials | Refusal]
Admitted: TypeAlias = tuple[trio_websocket.WebSocketConnection, Credentials]


async def serve_websocket(
    host: str,
    port: int,
    authenticate: Callable[[str], Credentials | None],
    on_connection: OnConnection,
    *,
    tell: Callable[[str], object] = STDERR.write,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen on `host` (an address of this machine) until cancelled; port 0 takes any free port.

    Reports the URI when it has started. `authenticate` maps a token to its user, or to None; it
    should compare in constant time. `on_connection` owns the connection while it runs. `tell` gets
    a line when no connection can be taken. Raises OSError if the address is in use.
    """

    def identify(_stream: trio.SocketStream, headers: Headers) -> Credentials | Refusal:
        token = _bearer_token(headers)
        if token is None:
            return Refusal(Errno.EACCES, "expected a header: Authorization: Bearer TOKEN")
        return authenticate(token) or Refusal(Errno.EPERM, "this instance does not know that token")

    listeners = await trio.open_tcp_listeners(port, host=host)
    address, taken, *_ = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        door = _Door(identify, on_connection)
        await nursery.start(serve_listeners, door.serve, listeners, tell)
        task_status.started(uri_of(address, taken))


async def serve_unix(
    path: Path,
    mode: int,
    who_is: Callable[[int], Credentials | None],
    on_connection: OnConnection,
    *,
    tell: Callable[[str], object] = STDERR.write,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen at the Unix socket `path` until cancelled; no other server may use the path.

    The file stays, since only the caller knows when no other server can have replaced it. `mode`
    says which users can connect; `who_is` maps a userid to its credentials, or to None. The rest is
    as for `serve_websocket`. Raises OSError if the socket cannot be created.
    """

    def identify(stream: trio.SocketStream, _headers: Headers) -> Credentials | Refusal:
        userid = peer_userid(stream)
        return who_is(userid) or Refusal(Errno.EPERM, NO_ACCESS.format(userid))

    with bound(path, mode) as listener:
        async with trio.open_nursery() as nursery:
            door = _Door(identify, on_connection)
            await nursery.start(serve_listeners, door.serve, [listener], tell)
            task_status.started(uri_of_socket(str(path)))


class _Door:
    """Handles each connection: WebSocket handshake, identification, then `on_connection`."""

    def __init__(self, identify: Identify, on_connection: OnConnection) -> None:
        self._identify = identify
        self._on_connection = on_connection
        self._gate = Gate()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Handle one connection from start to end; errors caused by the peer do not leave."""
        with self._gate.place() as there_is_room:
            if not there_is_room:
                return
            lent = _LentStream(stream)
            with ExitStack() as counted:
                dropped = await self._welcome(lent, counted)
                if not dropped:
                    await lent.part()

    async def _welcome(self, lent: _LentStream, counted: ExitStack) -> bool:
        """Do the handshake and serve; return True if it was dropped to make room."""
        handshake = Handshake()

        async def shake_hands(reader: trio.Nursery) -> Admitted | None:
            return await self._admit(lent, reader, counted)

        with ExitStack() as waiting:
            newcomer = waiting.enter_context(self._gate.handshake(handshake.scope))
            async with open_socket(handshake, shake_hands) as admitted:
                waiting.close()
                if admitted is not None:
                    await self._serve(*admitted)
        return newcomer.dropped

    async def _serve(
        self, socket: trio_websocket.WebSocketConnection, credentials: Credentials
    ) -> None:
        async with open_connection(socket, self._gate.share(credentials)) as connection:
            await self._on_connection(connection, credentials)

    async def _admit(
        self, lent: _LentStream, reader: trio.Nursery, counted: ExitStack
    ) -> Admitted | None:
        request = await trio_websocket.wrap_server_stream(
            reader, lent, FRAMES_AHEAD, FRAME_BYTES_MAX, READ_BYTES
        )
        identified = self._identify(lent.stream, request.headers)
        peer = counted.enter_context(self._gate.counted(identified))
        await self._gate.wait_for_turn(peer)
        try:
            if isinstance(peer, Credentials):
                lent.socket = await request.accept()
                if is_guest(peer):
                    limit_frames(lent.socket, GUEST_FRAME_BYTES_MAX)
                lent.admit(self._gate.share(peer))
                return lent.socket, peer
            status = STATUSES[peer.errnum]
            challenge = [(b"WWW-Authenticate", b"Bearer")] if status == 401 else []
            await request.reject(status, extra_headers=challenge, body=peer.text.encode())
        except trio_websocket.ConnectionClosed:
            pass
        return None


class _LentStream(trio.abc.Stream):
    """The stream of a door, lent to trio-websocket, which cannot close it: the door does.

    trio-websocket closes its stream without a close frame when the peer violates the WebSocket
    protocol. `aclose` only ends the use of the stream. Then the door sends the close frame itself,
    and waits until the peer has read it (`part`).

    What comes before the peer is admitted ends with the upgrade request. What comes after it is
    passed on in pieces (`frames.py`), and each takes a turn of the guest's share. A piece that ends
    a message does not: its turn comes when the message is decoded.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.socket: trio_websocket.WebSocketConnection | None = None  # after the handshake
        self._share: Share | None = None
        self._reads = 0  # of the upgrade request
        self._head = b""  # its last bytes so far
        self._has_request = False
        self._admitted = trio.Event()
        self._frames = Frames()
        self._violation = ""  # of the peer, found in a frame
        self._is_closed = False
        self._is_sending = False  # still True if a send was cut: the peer has a part of a frame
        self._sent_close = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check_open()
        self._sent_close |= data[:1] == _CLOSE_FRAME  # trio-websocket sends whole frames
        self._is_sending = True
        await self.stream.send_all(data)
        self._is_sending = False

    async def wait_send_all_might_not_block(self) -> None:
        self._check_open()
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return what the peer has sent, a piece at a time; `max_bytes` is READ_BYTES."""
        self._check_open()
        if not self._has_request:
            return await self._receive_request(max_bytes)
        await self._admitted.wait()
        self._check_open()
        try:
            return await self._receive_piece(max_bytes)
        except RemoteProtocolError as error:
            self._violation = str(error)
            raise trio.BrokenResourceError(self._violation) from error

    def admit(self, share: Share | None) -> None:
        """Let frames come in, of a guest with this `share`."""
        self._share = share
        self._admitted.set()

    async def _receive_request(self, max_bytes: int | None) -> bytes:
        self._reads += 1
        if self._reads > REQUEST_READS_MAX:
            raise trio.BrokenResourceError("the upgrade request comes in too many pieces")
        data = bytes(await self.stream.receive_some(max_bytes))
        end = _BLANK_LINE.search(self._head + data)
        if end is None:
            self._head = (self._head + data)[-_BLANK_LINE_BYTES:]
            return data
        self._has_request = True
        rest = end.end() - len(self._head)
        self._frames.feed(data[rest:])
        return data[:rest]

    async def _receive_piece(self, max_bytes: int | None) -> bytes:
        await trio.lowlevel.checkpoint()
        has_read = False
        while (piece := self._frames.pop(trio.current_time())) is None:
            if has_read:
                await self._take_turn()
            data = await self.stream.receive_some(max_bytes)
            if not data:
                return b""
            self._frames.feed(data)
            has_read = True
        if not piece.is_message:
            await self._take_turn()
        return piece.data

    async def _take_turn(self) -> None:
        if self._share is not None:
            async with self._share.turn():
                pass

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("the door has this stream back")

    async def aclose(self) -> None:
        """End the use of the stream; tasks that wait for it get ClosedResourceError."""
        if not self._is_closed:
            self._is_closed = True
            self._admitted.set()  # who waits for it learns that it is closed
            trio.lowlevel.notify_closing(self.stream.socket)
        await trio.lowlevel.checkpoint()

    async def part(self) -> None:
        """Part with the peer, if it has to be told why: it may still be reading.

        A peer whose frames were a violation counts as a connection for CLOSE_S_MAX: to come again
        costs more than the frames.
        """
        frame = self._close_frame()
        if self._is_closed and not frame:
            return
        with trio.move_on_after(CLOSE_S_MAX):
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                if frame:
                    await self.stream.send_all(frame)
                await self.stream.send_eof()
                while await self.stream.receive_some(READ_BYTES):  # noqa: ASYNC110 - a pace
                    # With unread bytes, the kernel would drop what the peer has not read.
                    await trio.sleep(PART_PAUSE_S)
            if self._violation:
                await trio.sleep_forever()

    def _close_frame(self) -> bytes:
        """Return the close frame that trio-websocket has not sent; b"" if none is due."""
        if self._sent_close or self._is_sending:
            return b""
        closed = None if self.socket is None else self.socket.closed
        if self._violation:
            code, reason = POLICY, self._violation
        elif closed is not None and closed.code in (PROTOCOL_ERROR, INVALID):
            code, reason = closed.code, closed.reason or ""
        else:
            return b""
        frame = FrameProtocol(client=False, extensions=[]).close(code, truncated_reason(reason))
        return bytes(frame)


def limit_frames(socket: trio_websocket.WebSocketConnection, size: int) -> None:
    """Make `socket` close with code 1009 when a frame of more than `size` bytes comes.

    trio-websocket takes this limit only when it wraps the stream, and the token that identifies the
    peer comes later. The attribute is private; a test fails if trio-websocket renames it.
    """
    socket._max_message_size = size


def _bearer_token(headers: Headers) -> str | None:
    for name, value in headers:
        if name.lower() == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1").strip()
    return None
