"""A WebSocket client on anyio's TCP and Unix streams: the same bytes under Trio and asyncio.

It sends and receives frames (docs/reference/wire.md); the client interprets them. wsproto does the
protocol. The other WebSocket of this project, in transports, works under Trio only.
"""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from typing import Final

import anyio
import anyio.abc
import wsproto
from wsproto import events
from wsproto.connection import ConnectionState
from wsproto.utilities import ProtocolError

from flux_trio.client.errors import AccessDenied, ConnectionLost, NoInstance
from flux_trio.client.find import HOW_TO_START
from flux_trio.messages.address import host_and_port, socket_path
from flux_trio.messages.codec import FRAME_BYTES_MAX

HANDSHAKE_S_MAX: Final = 30.0  # a busy instance answers late
READ_BYTES: Final = 64 * 2**10  # one system call takes a few hundred messages
NORMAL: Final = 1000  # close code (RFC 6455, 7.4.1)


class WebSocket:
    """An open WebSocket. One task may send while another receives."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream
        self._protocol = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._sending = anyio.Lock(fast_acquire=True)  # the receiving task sends pongs
        self._frames: deque[bytes] = deque()  # complete, not yet received
        self._parts: list[bytes] = []  # of an incomplete frame
        self._lost: ConnectionLost | None = None  # once the instance has ended the connection
        self.bytes_sent = 0
        self.bytes_received = 0

    async def shake_hands(self, host: str, token: str) -> None:
        """Do the WebSocket handshake, before all other calls; AccessDenied if refused."""
        headers = [(b"Authorization", b"Bearer " + token.encode())] if token else []
        await self._send(events.Request(host=host, target="/", extra_headers=headers))
        refusal, done = b"", False
        while True:
            self._feed(await _read(self._stream))
            for event in self._protocol.events():
                match event:
                    case events.AcceptConnection():
                        return
                    case events.RejectConnection(status_code=code):
                        refusal = b"%d" % code
                        done = not event.has_body
                    case events.RejectData(data=data, body_finished=done):
                        refusal += b": " + data if data else b""
                if refusal and done:
                    text = refusal.decode(errors="replace")
                    raise AccessDenied(f"{host} refused the connection ({text})")

    async def send(self, frame: bytes) -> None:
        await self._send(events.BytesMessage(frame))

    async def send_close(self) -> None:
        """Send a close frame; `receive` raises when the instance has answered it."""
        await self._send(events.CloseConnection(NORMAL))

    async def receive(self) -> bytes:
        """Return the next frame; ConnectionLost at the end, after the frames that came before."""
        while not self._frames:
            if self._lost is not None:
                raise self._lost
            if not await self._take_events():
                self._feed(await _read(self._stream))
        return self._frames.popleft()

    async def _take_events(self) -> bool:
        """Take what has come; return whether there was anything."""
        was_any = False
        try:
            for event in self._protocol.events():
                was_any = True
                await self._handle(event)
        except ConnectionLost as lost:
            self._lost = lost
        return was_any

    async def aclose(self) -> None:
        """Cut the connection; a second call has no effect."""
        await anyio.aclose_forcefully(self._stream)

    def _feed(self, data: bytes) -> None:
        self.bytes_received += len(data)
        try:
            self._protocol.receive_data(data)
        except ProtocolError as error:
            raise ConnectionLost(f"the instance does not speak WebSocket: {error}") from None

    async def _handle(self, event: events.Event) -> None:
        match event:
            case events.BytesMessage():
                self._parts.append(bytes(event.data))
                if sum(map(len, self._parts)) > FRAME_BYTES_MAX:
                    raise ConnectionLost(
                        f"the instance sent over {FRAME_BYTES_MAX} bytes in one frame"
                    )
                if event.message_finished:
                    self._frames.append(b"".join(self._parts))
                    self._parts = []
            case events.Ping():
                await self._send(event.response())
            case events.CloseConnection():
                if self._protocol.state is ConnectionState.REMOTE_CLOSING:
                    await self._send(event.response())
                reason = event.reason or "without giving a reason"
                raise ConnectionLost(f"the instance ended the connection ({event.code}): {reason}")
            case events.TextMessage():
                raise ConnectionLost("the instance sent text where a binary frame was expected")

    async def _send(self, event: events.Event) -> None:
        try:
            data = self._protocol.send(event)
            async with self._sending:
                await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ProtocolError):
            raise ConnectionLost("the connection to the instance is closed") from None
        self.bytes_sent += len(data)


async def open_websocket(uri: str, token: str) -> WebSocket:
    """Connect to the instance at `uri` (unix://PATH, or ws://HOST:PORT with a token).

    Raises NoInstance if no instance answers, AccessDenied if it refuses this client.
    """
    try:
        with anyio.fail_after(HANDSHAKE_S_MAX):
            return await _connect(uri, token)
    except ValueError as error:
        raise NoInstance(str(error)) from None
    except TimeoutError:
        text = f"{uri} did not answer in {HANDSHAKE_S_MAX:g} s"
    except PermissionError:
        raise AccessDenied(f"{uri} may not be used: it is another user's") from None
    except OSError:
        text = f"nobody listens at {uri}"
    raise NoInstance(f"{text}: if no instance runs, {HOW_TO_START}")


async def _connect(uri: str, token: str) -> WebSocket:
    path = socket_path(uri)
    stream: anyio.abc.ByteStream
    if path is not None:
        host, stream = "localhost", await anyio.connect_unix(path)
    else:
        address, port = host_and_port(uri)
        host, stream = f"{address}:{port}", await anyio.connect_tcp(address, port)
    socket = WebSocket(stream)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(socket.aclose)
        await socket.shake_hands(host, token)
        undo.pop_all()
    return socket


async def _read(stream: anyio.abc.ByteStream) -> bytes:
    try:
        return await stream.receive(READ_BYTES)
    except anyio.EndOfStream:
        raise ConnectionLost("the instance is gone: its end of the connection is closed") from None
    except anyio.BrokenResourceError:
        raise ConnectionLost("the instance is gone: its end of the connection broke") from None
    except anyio.ClosedResourceError:
        raise ConnectionLost("the connection to the instance is closed") from None
