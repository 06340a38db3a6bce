"""The client's end of a WebSocket, with a real socket and a server that says what a test wants."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import wsproto
from wsproto import events

from flux_trio.client.errors import ConnectionLost
from flux_trio.client.websocket import open_websocket
from tests.support.instance import DEADLINE_S


async def _answer_and_leave(listening: trio.socket.SocketType) -> None:
    """Send two frames and the end of the connection in one piece, after the handshake."""
    protocol = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
    connection, _address = await listening.accept()
    with connection:
        while not any(isinstance(each, events.Request) for each in protocol.events()):
            protocol.receive_data(await connection.recv(4096))
        await connection.send(protocol.send(events.AcceptConnection()))
        said = (
            events.BytesMessage(b"first"),
            events.BytesMessage(b"last"),
            events.CloseConnection(1000, "the instance ends"),
        )
        await connection.send(b"".join(protocol.send(each) for each in said))
        await connection.recv(4096)  # the answer to the close


async def test_frames_before_the_end_are_received_though_they_come_with_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with trio.socket.socket(trio.socket.AF_UNIX) as listening:
        await listening.bind(str(path))
        listening.listen()
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_answer_and_leave, listening)
                socket = await open_websocket(f"unix://{path}", "")
                received = [await socket.receive(), await socket.receive()]
                for _ in range(2):  # it stays at its end
                    with pytest.raises(ConnectionLost, match="the instance ends"):
                        await socket.receive()
                await socket.aclose()
    assert received == [b"first", b"last"]
