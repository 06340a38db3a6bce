"""The door of the WebSocket transport, and that whatever comes through it touches nothing else."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import trio_websocket

from flux_trio.messages import Request
from flux_trio.messages.codec import FRAME_BYTES_MAX, decode_frame, encode
from flux_trio.transports import (
    Connection,
    ConnectionLost,
    ConnectionRefused,
    Credentials,
    EndOfConnection,
    TransportError,
    connect_websocket,
    door,
    gate,
    paced,
    serve_websocket,
    websocket,
)
from flux_trio.transports.base import QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX
from flux_trio.transports.share import SLICE_MESSAGES_MAX

TOKEN = "sesame"
HEADERS = [(b"Authorization", b"Bearer " + TOKEN.encode())]
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Authorization: Bearer sesame\r\n\r\n"
)


class Server:
    """Sends every message back; remembers who came and how each went."""

    def __init__(self) -> None:
        self.uri = ""
        self.came: list[Credentials] = []
        self.went: list[TransportError] = []
        self.batches: list[int] = []  # how many messages were received at a time

    @property
    def port(self) -> int:
        return int(self.uri.rpartition(":")[2])

    def authenticate(self, token: str) -> Credentials | None:
        return Credentials(100, 1, "ali") if token == TOKEN else None

    async def echo(self, connection: Connection, credentials: Credentials) -> None:
        self.came.append(credentials)
        try:
            while True:
                messages = await connection.receive()
                self.batches.append(len(messages))
                for message in messages:
                    connection.send_nowait(message)
        except TransportError as error:
            self.went.append(error)


@pytest.fixture
async def server(nursery: trio.Nursery) -> AsyncIterator[Server]:
    server = Server()
    server.uri = await nursery.start(
        serve_websocket, "127.0.0.1", 0, server.authenticate, server.echo
    )
    async with connect_websocket(server.uri, TOKEN) as bystander:
        yield server
        bystander.send_nowait(Request("still.here"))
        assert await bystander.receive() == [Request("still.here")]
    nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_tcp(
    server: Server, first: bytes, then: bytes = b""
) -> AsyncIterator[trio.SocketStream]:
    """A client that says `first`, and `then` what follows once it has been let in."""
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        await stream.send_all(first)
        if then:
            await read_until(stream, b"\r\n\r\n")
            await stream.send_all(then)
        yield stream


@asynccontextmanager
async def open_raw(server: Server) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    async with open_tcp(server, b"") as stream, trio.open_nursery() as nursery:
        yield await trio_websocket.wrap_client_stream(
            nursery, stream, "x", "/", extra_headers=HEADERS, max_message_size=2**25
        )
        nursery.cancel_scope.cancel()


async def closed_after(socket: Any, frame: bytes | str) -> Any:
    """The code and reason of the close that follows `frame`."""
    with pytest.raises(trio_websocket.ConnectionClosed):  # noqa: PT012 - while sending, or after
        await socket.send_message(frame)
        await socket.get_message()
    return socket.closed


async def read_until(stream: trio.SocketStream, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        data += await stream.receive_some()
    return data


async def read_to_end(stream: trio.SocketStream) -> None:
    """Until the server has cut the connection, in whatever way."""
    try:
        await stream.send_eof()
        async for _ in stream:
            pass
    except trio.BrokenResourceError:
        pass


async def test_the_token_in_the_upgrade_request_says_who_it_is(server: Server) -> None:
    async with connect_websocket(server.uri, TOKEN) as connection:
        connection.send_nowait(Request("a"))
        assert await connection.receive() == [Request("a")]
    assert server.came[-1] == Credentials(100, 1, "ali")


async def test_a_wrong_token_is_refused_with_403(server: Server) -> None:
    with pytest.raises(
        ConnectionRefused, match="refused with 403: this instance does not know that token"
    ):
        async with connect_websocket(server.uri, "open"):
            pass


@pytest.mark.parametrize("header", [b"", b"Authorization: Basic c2VzYW1l\r\n"])
async def test_a_missing_token_is_refused_with_401(server: Server, header: bytes) -> None:
    request = UPGRADE.replace(b"Authorization: Bearer sesame\r\n", header)
    async with open_tcp(server, request.replace(b"GET /", b"GET /?token=sesame")) as stream:
        head, _, body = (await read_until(stream, b"TOKEN")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"WWW-Authenticate: Bearer" in head
    assert body == b"expected a header: Authorization: Bearer TOKEN"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("ws://127.0.0.1:1", "ws://127.0.0.1:1: .*127.0.0.1"),
        ("http://x:1", "http://x:1.*expected ws://HOST:PORT"),
        ("ws://x:port", "ws://x:port.*expected ws://HOST:PORT"),
        ("ws://127.0.0.1", "expected ws://HOST:PORT"),
    ],
)
async def test_where_nobody_listens_the_connection_is_refused(uri: str, text: str) -> None:
    with pytest.raises(ConnectionRefused, match=text):
        async with connect_websocket(uri, TOKEN):
            pass


async def test_what_is_no_websocket_server_is_said_to_be_none(nursery: trio.Nursery) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"220 mail ready\r\n\r\n")

    listeners = await nursery.start(trio.serve_tcp, answer, 0)
    port = listeners[0].socket.getsockname()[1]
    with pytest.raises(ConnectionRefused, match="no WebSocket at this address"):
        async with connect_websocket(f"ws://127.0.0.1:{port}", TOKEN):
            pass
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("frame", "code", "text"),
    [
        (b"\xff", 1007, "frame: in the item at byte 0: break code"),
        (b"", 1007, "frame: expected 1 to 16777216 bytes, got 0"),
        (
            encode(Request("a")) + b"\x80",
            1007,
            "message: expected an array of 9, got an array of 0",
        ),
        ("text", 1003, "frame: expected a binary frame, got a text frame"),
        (bytes(FRAME_BYTES_MAX + 1), 1009, "Exceeded maximum message size: 16777216 bytes"),
    ],
    ids=["noise", "empty", "second", "text", "oversized"],
)
async def test_a_bad_frame_closes_its_connection_with_code_and_reason(
    server: Server, frame: bytes | str, code: int, text: str
) -> None:
    async with open_raw(server) as socket:
        await socket.send_message(encode(Request("good")))
        assert decode_frame(await socket.get_message()) == [Request("good")]
        closed = await closed_after(socket, frame)
        assert closed.code == code
        assert closed.reason.startswith(text)
    assert isinstance(server.went[0], ConnectionLost)
    assert text in str(server.went[0])


async def test_a_frame_of_many_messages_is_taken_in_slices(server: Server) -> None:
    async with open_raw(server) as socket:
        count = 3 * SLICE_MESSAGES_MAX
        await socket.send_message(b"".join(encode(Request("a", None, n)) for n in range(count)))
        came: list[Any] = []
        while len(came) < count:
            came += decode_frame(await socket.get_message())
        assert [message.matchtag for message in came] == list(range(count))
    assert max(server.batches) == SLICE_MESSAGES_MAX


async def test_messages_before_what_is_wrong_in_a_frame_are_taken(server: Server) -> None:
    async with open_raw(server) as socket:
        good = encode(Request("a")) * SLICE_MESSAGES_MAX
        await socket.send_message(good + b"\xff")
        assert len(decode_frame(await socket.get_message())) == SLICE_MESSAGES_MAX
        with pytest.raises(trio_websocket.ConnectionClosed):
            await socket.get_message()
        assert socket.closed.code == 1007
    assert len(server.went) == 1


async def test_who_sends_what_takes_long_to_decode_rests(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced, "DECODE_S_MAX", 0.0)
    monkeypatch.setattr(paced, "LONG_REST_FACTOR", 1e9)  # for ever
    async with connect_websocket(server.uri, TOKEN) as connection:
        connection.send_nowait(Request("a"))
        with trio.move_on_after(0.1) as scope:
            await wait_for(server.came[1:])
            await connection.receive()
            connection.send_nowait(Request("b"))
            await connection.receive()
    assert scope.cancelled_caught


async def test_a_long_reason_is_cut_to_what_a_close_frame_holds(server: Server) -> None:
    async with open_raw(server) as socket:
        bad = encode(Request("a", {"é" * 30: {"é" * 30: 1.5}}))[:-9] + b"\xf7"
        reason = (await closed_after(socket, bad)).reason
    assert 100 < len(reason.encode()) <= 123
    assert reason.startswith("payload.éé")


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00\xff\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        UPGRADE.replace(b"Host: x", b"Host: \xff\xfe"),
        UPGRADE.replace(b"Connection: Upgrade", b"Connection: \xff"),
        UPGRADE.replace(b"sesame", b"\xff"),
        UPGRADE.replace(b"GET / ", b"GET /" + b"x" * 100_000),
    ],
)
async def test_what_is_not_http_ends_its_own_connection(server: Server, bad: bytes) -> None:
    async with open_tcp(server, bad) as stream:
        await read_to_end(stream)
    assert len(server.came) == 1


@pytest.mark.parametrize(
    "bad",
    [
        b"\x82\xff" + b"\xff" * 12,
        b"\x88\x83\0\0\0\0\x03\xe8\xff",
        b"\x88\x82\0\0\0\0\x00\x00",
        UPGRADE,
    ],
)
async def test_what_is_no_websocket_frame_ends_its_own_connection(
    server: Server, bad: bytes
) -> None:
    async with open_tcp(server, UPGRADE, bad) as stream:
        await read_to_end(stream)
    assert len(server.came) == 2
    await wait_for(server.went)


@pytest.mark.parametrize(
    ("bad", "code", "reason"),
    [
        (b"\x83\x80abcd", 1002, "Invalid opcode"),
        (b"\xff\xff" + bytes(20), 1002, ""),
        (b"\x82\x01a", 1002, "unexpected unmasked frame"),
        (b"\x81\x82\0\0\0\0\xff\xff", 1007, "codec can't decode"),
    ],
)
async def test_who_breaks_the_websocket_protocol_is_told_so(
    server: Server, bad: bytes, code: int, reason: str
) -> None:
    async with open_tcp(server, UPGRADE, bad) as stream:
        said = b""
        async for data in stream:
            said += data
    assert said[0] == 0x88
    assert int.from_bytes(said[2:4], "big") == code
    assert reason in said[4:].decode()
    await wait_for(server.went)
    assert str(server.went[0]).startswith(f"the connection was cut ({code}): ")


@pytest.mark.parametrize("with_request", [False, True])
@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (b"\x02\x80\0\0\0\0" * 10_000, "fragment: expected at least 4096 bytes in each frame"),
        (b"\x02\x81\0\0\0\0x" * 9_000, "fragment: expected at least 4096 bytes in each frame"),
        (b"\x8a\x80\0\0\0\0" * 10_000, "control frames: expected at most 64 pings and pongs"),
        (b"\x89\x80\0\0\0\0" * 10_000, "control frames: expected at most 64 pings and pongs"),
    ],
)
async def test_who_sends_many_frames_with_hardly_anything_in_them_is_told_so(
    server: Server, frames: bytes, reason: str, with_request: bool
) -> None:
    sent = (UPGRADE + frames, b"") if with_request else (UPGRADE, frames)
    async with open_tcp(server, *sent) as stream:
        await read_until(stream, b"\x03\xf0" + reason.encode())  # a close frame: 1008


async def test_upgrade_request_in_many_pieces_is_cut_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "HANDSHAKE_S_MAX", 1000.0)
    async with open_tcp(server, b"") as stream:
        with suppress(trio.BrokenResourceError):
            for place in range(2 * door.REQUEST_READS_MAX):
                await stream.send_all(UPGRADE[place : place + 1])
                await trio.testing.wait_all_tasks_blocked(0.001)
            assert await stream.receive_some() == b""


async def test_noise_of_any_kind_ends_its_own_connection(server: Server) -> None:
    source = random.Random(1)
    for _ in range(80):
        upgrade = bytearray(UPGRADE)
        frames = bytearray(b"\x82\x84\0\0\0\0abcd\x89\x80\0\0\0\0\x88\x82\0\0\0\0\x03\xe8")
        noise = source.choice([upgrade, frames, frames])
        for _ in range(3):
            noise[source.randrange(len(noise))] = source.randrange(256)
        then = b"" if noise is upgrade else bytes(frames)
        async with open_tcp(server, bytes(upgrade), then) as stream:
            await read_to_end(stream)


async def wait_for(things: list[Any]) -> None:
    while not things:
        await trio.testing.wait_all_tasks_blocked(0.001)


async def test_a_connection_that_breaks_is_lost_not_closed(server: Server) -> None:
    async with open_tcp(server, UPGRADE) as stream:
        await read_until(stream, b"\r\n\r\n")
    await wait_for(server.went)
    assert isinstance(server.went[0], ConnectionLost)
    assert "the peer left without a close frame" in str(server.went[0])


async def test_a_ping_after_our_goodbye_hurts_nobody(
    server: Server, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.01
    async with open_tcp(server, UPGRADE, b"\x82\x81\0\0\0\0\xff") as stream:
        await read_until(stream, b"\x88")
        await stream.send_all(b"\x89\x80\0\0\0\0")
        await read_to_end(stream)


async def test_who_says_nothing_is_cut_off_after_the_handshake_time(
    server: Server, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.01
    async with open_tcp(server, UPGRADE[:40]) as stream:
        start = trio.current_time()
        assert await stream.receive_some() == b""
        assert websocket.HANDSHAKE_S_MAX <= trio.current_time() - start < 35


async def test_a_peer_that_does_not_read_holds_up_a_close_for_a_bounded_time(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.01
    took: list[float] = []
    done = trio.Event()

    async def flood(connection: Connection, credentials: Credentials) -> None:
        for _ in range(5):
            connection.send_nowait(Request("a", {"x": "x" * 10_000_000}))
        start = trio.current_time()
        await connection.aclose()
        took.append(trio.current_time() - start)
        done.set()

    uri = await nursery.start(
        serve_websocket, "127.0.0.1", 0, lambda token: Credentials(1, 1, ""), flood
    )
    async with await trio.open_tcp_stream("127.0.0.1", int(uri.rpartition(":")[2])) as stream:
        await stream.send_all(UPGRADE)
        await done.wait()
    assert took[0] == pytest.approx(paced.CLOSE_S_MAX, abs=0.5)
    nursery.cancel_scope.cancel()


async def test_a_server_that_is_cancelled_says_goodbye_to_everybody(nursery: trio.Nursery) -> None:
    server = Server()
    scope = trio.CancelScope()

    async def serve(task_status: trio.TaskStatus[str]) -> None:
        with scope:
            await serve_websocket(
                "127.0.0.1", 0, server.authenticate, server.echo, task_status=task_status
            )

    uri = await nursery.start(serve)
    async with connect_websocket(uri, TOKEN) as connection:
        connection.send_nowait(Request("a"))
        assert await connection.receive() == [Request("a")]
        scope.cancel()
        with pytest.raises(EndOfConnection, match="the connection was closed"):
            await connection.receive()


async def test_an_error_in_the_block_of_a_connection_comes_out_as_it_is(server: Server) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with connect_websocket(server.uri, TOKEN):
            raise KeyError("mine")


async def test_beyond_the_bound_a_connection_is_cut_before_it_can_ask(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "CONNECTIONS_MAX", 1)
    with pytest.raises(ConnectionRefused):
        async with connect_websocket(server.uri, TOKEN):
            pass


async def test_who_says_nothing_does_not_keep_others_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "CONNECTIONS_MAX", 4)
    address, _, port = server.uri.removeprefix("ws://").partition(":")
    silent = []
    for _ in range(5):
        silent.append(await trio.open_tcp_stream(address, int(port)))
        await silent[-1].send_all(b"GET /")
        await trio.testing.wait_all_tasks_blocked()  # read: or the end would be a reset
    async with connect_websocket(server.uri, TOKEN), connect_websocket(server.uri, TOKEN):
        assert await silent[0].receive_some() == b"", "the one that came first makes room"
    for stream in silent:
        await stream.aclose()


async def test_the_bound_of_a_frame_is_where_trio_websocket_keeps_it(nursery: trio.Nursery) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(UPGRADE)
    request = await trio_websocket.wrap_server_stream(nursery, ours, max_message_size=1000)
    socket = await request.accept()
    before = dict(vars(socket))
    door.limit_frames(socket, 10)
    changed = {name: was for name, was in before.items() if vars(socket)[name] != was}
    assert list(changed.values()) == [1000], "limit_frames sets the bound that the wrapping took"
    assert vars(socket).keys() == before.keys()
    await theirs.send_all(b"\x82\x8b" + bytes(4) + bytes(11))  # 11 bytes, masked with zeros
    with pytest.raises(trio_websocket.ConnectionClosed):
        await socket.get_message()
    assert socket.closed is not None
    assert socket.closed.code == 1009
    await theirs.aclose()


def test_the_bounds_of_the_reference_are_those_of_the_code() -> None:
    page = " ".join(
        (Path(__file__).parents[2] / "docs" / "reference" / "wire.md").read_text().split()
    )
    assert f"when {QUEUE_MESSAGES_MAX} messages or {QUEUE_BYTES_MAX} bytes wait" in page
    assert f"within {websocket.HANDSHAKE_S_MAX:g} s" in page
    assert f"or {gate.CONNECTIONS_MAX} connections are open" in page
    assert f"| bytes in a frame of a guest's | {door.GUEST_FRAME_BYTES_MAX} |" in page
    for limit, of in (
        (gate.CONNECTIONS_OF_OWNER_MAX, "of the instance owner"),
        (gate.CONNECTIONS_OF_GUEST_MAX, "of a guest"),
        (gate.CONNECTIONS_OF_GUESTS_MAX, "of all guests"),
    ):
        assert f"{limit} connections {of}" in page
    assert f"goodbye takes {paced.CLOSE_S_MAX:g} s at most" in page


async def test_lent_stream_is_closed_for_its_user_and_open_for_the_door() -> None:
    ours, theirs = (trio.SocketStream(each) for each in trio.socket.socketpair())
    lent = door._LentStream(ours)

    async def read() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await lent.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await lent.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await lent.send_all(b"more")
    await ours.send_all(b"goodbye")
    assert await theirs.receive_some() == b"goodbye"
    await ours.aclose()
    await theirs.aclose()
