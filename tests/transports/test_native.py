"""How a connection with flux-core begins and ends; what it carries is in `test_connection`."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from flux_trio.messages import Event, Request, Response, native
from flux_trio.messages.native import Frame
from flux_trio.transports import (
    ConnectionLost,
    ConnectionRefused,
    EndOfConnection,
    connect_native,
    open_native,
)
from flux_trio.transports.native import WELCOME
from tests.support.flux_peer import listening


async def refused(path: Path, first: bytes) -> str:
    """What a client is told whose server says `first` and then nothing more."""

    async def answer(stream: trio.SocketStream) -> None:
        await stream.send_all(first)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, answer, [listening(path)])
        with pytest.raises(ConnectionRefused) as error:
            async with connect_native(f"local://{path}"):
                pass
        nursery.cancel_scope.cancel()
    return str(error.value)


async def test_another_byte_than_0_is_the_errno_of_the_refusal(tmp_path: Path) -> None:
    path = tmp_path / "local"
    first = bytes([errno.EPERM])
    assert await refused(path, first) == f"local://{path}: refused: Operation not permitted"


async def test_no_byte_is_a_refusal_too(tmp_path: Path) -> None:
    assert "the broker closed the connection at once" in await refused(tmp_path / "local", b"")


async def test_where_nobody_listens_it_is_tried_again_with_longer_waits(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(ConnectionRefused, match="No such file"):
        async with connect_native(f"local://{tmp_path}/local"):
            pass
    assert trio.current_time() == pytest.approx(0.016 * (1 + 2 + 4 + 8 + 16))
    began = trio.current_time()
    with pytest.raises(ConnectionRefused, match="No such file"):
        async with connect_native(f"local://{tmp_path}/local", retries=9):
            pass
    waits = [0.016 * 2**n for n in range(7)] + [2.0, 2.0]
    assert trio.current_time() - began == pytest.approx(sum(waits))


@pytest.mark.parametrize("uri", ["", "unix:///x", "ssh://host/x", "local://", "fd://x", "fd://-1"])
async def test_what_is_no_address_of_a_broker_is_refused_by_name(uri: str) -> None:
    with pytest.raises(ConnectionRefused, match=f"^{uri}: expected local://PATH, or fd://N"):
        async with connect_native(uri):
            pass


async def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefused, match="expected a path of at most 107 bytes"):
        async with connect_native("local:///" + "x" * 107):
            pass


async def test_an_open_socket_is_a_connection(nursery: trio.Nursery) -> None:
    """As a module's process gets it: the broker has put the byte there for it."""
    ours, theirs = socket.socketpair()
    ours.send(WELCOME)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    async with open_native(stream) as broker, connect_native(f"fd://{theirs.detach()}") as module:
        broker.send_nowait(Request("sched-simple.welcome", {"name": "sched-simple"}))
        assert await module.receive() == [Request("sched-simple.welcome", {"name": "sched-simple"})]
        module.send_frame_nowait(Frame(1, 0xFFFFFFFF, 0, "log.append", b"raw", ()))
        assert await broker.receive() == [Request("log.append", "raw")]
        nursery.start_soon(broker.aclose)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (native.MAGIC, "the connection broke: the peer is gone"),
        (b"HTTP/1.1 400 Bad Request", "expected the magic number"),
    ],
)
async def test_a_peer_that_leaves_within_a_frame_or_breaks_the_wire_is_lost(
    data: bytes, text: str
) -> None:
    ours, theirs = trio.socket.socketpair()
    async with open_native(trio.SocketStream(ours)) as connection:
        await theirs.send(native.encode(native.to_frame(Event("a.b", {"x": 1}))))
        assert await connection.receive() == [Event("a.b", {"x": 1})]
        await theirs.send(data)
        theirs.close()
        with pytest.raises(ConnectionLost, match=text):
            await connection.receive()


async def test_a_peer_that_leaves_between_frames_has_ended_the_connection() -> None:
    ours, theirs = trio.socket.socketpair()
    async with open_native(trio.SocketStream(ours)) as connection:
        theirs.close()
        with pytest.raises(EndOfConnection, match=r"^the connection was closed$"):
            await connection.receive()


async def test_a_payload_that_is_no_object_does_not_end_the_connection() -> None:
    ours, theirs = trio.socket.socketpair()
    async with open_native(trio.SocketStream(ours)) as connection:
        for payload in (b'{"a":\0', b"[1]\0", b'{"a":1}\0'):
            await theirs.send(native.encode(Frame(2, 0, 1, "a.b", payload, ())))
        theirs.close()
        got: list[object] = []
        while len(got) < 3:
            got += await connection.receive()
        assert got == [Response("a.b", each, 0, 1) for each in ('{"a":', "[1]", {"a": 1})]
