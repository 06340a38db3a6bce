"""The client's side of a WebSocket: connects to an instance by its URI."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio_websocket

from flux_trio.messages.address import host_and_port, socket_path
from flux_trio.messages.codec import FRAME_BYTES_MAX
from flux_trio.transports.base import ConnectionRefused
from flux_trio.transports.paced import PacedConnection
from flux_trio.transports.websocket import (
    FRAMES_AHEAD,
    READ_BYTES,
    Handshake,
    open_connection,
    open_socket,
)


@asynccontextmanager
async def connect_websocket(uri: str, token: str = "") -> AsyncIterator[PacedConnection]:
    """Connect to the instance at `uri`; the connection is closed at the end of the block.

    At unix://PATH the kernel tells the server the user of this process; at ws://HOST:PORT `token`
    identifies the user. Raises ConnectionRefused if nobody listens or the server refuses the user.
    """
    try:
        stream = await _open_stream(uri)
    except (ValueError, OSError) as error:
        raise ConnectionRefused(f"{uri}: {error}") from None
    handshake = Handshake()
    shake_hands = functools.partial(_shake_hands, uri, token, stream)
    try:
        async with open_socket(handshake, shake_hands) as socket:
            if socket is None:
                raise _refused(uri, handshake.error)
            async with open_connection(socket) as connection:
                yield connection
    finally:
        await trio.aclose_forcefully(stream)


async def _open_stream(uri: str) -> trio.SocketStream:
    path = socket_path(uri)
    if path is not None:
        return await trio.open_unix_socket(path)
    host, port = host_and_port(uri)
    return await trio.open_tcp_stream(host, port)


async def _shake_hands(
    uri: str, token: str, stream: trio.SocketStream, reader: trio.Nursery
) -> trio_websocket.WebSocketConnection:
    return await trio_websocket.wrap_client_stream(
        reader,
        stream,
        "localhost" if socket_path(uri) else uri.removeprefix("ws://"),
        "/",
        extra_headers=[(b"Authorization", b"Bearer " + token.encode())] if token else [],
        message_queue_size=FRAMES_AHEAD,
        max_message_size=FRAME_BYTES_MAX,
        receive_buffer_size=READ_BYTES,
    )


def _refused(uri: str, error: BaseException | None) -> ConnectionRefused:
    if isinstance(error, trio_websocket.ConnectionRejected):
        text = (error.body or b"").decode(errors="replace")
        return ConnectionRefused(f"{uri}: refused with {error.status_code}: {text}")
    return ConnectionRefused(f"{uri}: no WebSocket at this address: {error or 'no answer'}")
