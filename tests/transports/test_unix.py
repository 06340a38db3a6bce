"""The Unix socket beside the WebSocket: the kernel says who comes, and the file's mode who can."""

import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from flux_trio.messages import ROLE_OWNER, ROLE_USER, Request
from flux_trio.transports import (
    Connection,
    ConnectionLost,
    ConnectionRefused,
    Credentials,
    TransportError,
    connect_websocket,
    door,
    serve_unix,
    share,
)


class Server:
    """Keeps what comes; knows one user, the one who runs this test."""

    def __init__(self, path: Path, known: int) -> None:
        self.path = path
        self.known = known
        self.role = ROLE_OWNER
        self.uri = ""
        self.asked: list[int] = []
        self.came: list[Credentials] = []

    def who_is(self, userid: int) -> Credentials | None:
        self.asked.append(userid)
        return Credentials(userid, self.role, "me") if userid == self.known else None

    async def echo(self, connection: Connection, credentials: Credentials) -> None:
        self.came.append(credentials)
        try:
            while True:
                for message in await connection.receive():
                    connection.send_nowait(message)
        except TransportError:
            pass


@asynccontextmanager
async def serving(path: Path, known: int, mode: int = 0o600) -> AsyncIterator[Server]:
    server = Server(path, known)
    async with trio.open_nursery() as nursery:
        server.uri = await nursery.start(serve_unix, path, mode, server.who_is, server.echo)
        yield server
        nursery.cancel_scope.cancel()


async def test_the_kernel_says_who_comes_and_no_token_is_needed(tmp_path: Path) -> None:
    async with serving(tmp_path / "local", os.getuid()) as server:
        assert server.uri == f"unix://{tmp_path}/local"
        async with connect_websocket(server.uri) as connection:
            connection.send_nowait(Request("a"))
            assert await connection.receive() == [Request("a")]
    assert server.came == [Credentials(os.getuid(), 1, "me")]


async def test_a_user_without_access_is_refused_whatever_token_comes(tmp_path: Path) -> None:
    async with serving(tmp_path / "local", os.getuid() + 1) as server:
        text = f"refused with 403: user {os.getuid()} has no access to this instance"
        with pytest.raises(ConnectionRefused, match=text):
            async with connect_websocket(server.uri, "sesame"):
                pass
    assert server.came == []


@pytest.mark.parametrize("mode", [0o600, 0o666])
async def test_the_mode_of_the_file_says_who_can_connect(tmp_path: Path, mode: int) -> None:
    async with serving(tmp_path / "local", os.getuid(), mode):
        status = (tmp_path / "local").stat()
        assert stat.S_ISSOCK(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == mode


async def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "local"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with serving(path, os.getuid()) as server, connect_websocket(server.uri):
        pass


async def test_where_there_can_be_no_socket_the_error_is_the_systems(tmp_path: Path) -> None:
    server = Server(tmp_path / ("x" * 120), 0)
    with pytest.raises(OSError, match="AF_UNIX path too long"):
        await serve_unix(server.path, 0o600, server.who_is, server.echo)


async def test_where_nobody_listens_the_connection_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefused, match="No such file"):
        async with connect_websocket(f"unix://{tmp_path}/local"):
            pass


@pytest.mark.parametrize("role", [ROLE_OWNER, ROLE_USER])
async def test_a_guests_frames_are_smaller(tmp_path: Path, role: int) -> None:
    async with serving(tmp_path / "local", os.getuid()) as server:
        server.role = role
        async with connect_websocket(server.uri) as connection:
            connection.send_nowait(Request("a", {"x": "x" * (door.GUEST_FRAME_BYTES_MAX - 100)}))
            assert len(await connection.receive()) == 1
            connection.send_nowait(Request("a", {"x": "x" * door.GUEST_FRAME_BYTES_MAX}))
            if role == ROLE_OWNER:
                assert len(await connection.receive()) == 1
                return
            with pytest.raises(ConnectionLost, match=r"\(1009\).*size: 1048576 bytes"):
                await connection.receive()


async def test_new_connection_of_a_guest_waits_for_its_turn_and_the_owners_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop seems to have worked for a thousand seconds since the guest came."""
    cpu = 0.0
    monkeypatch.setattr(share.time, "thread_time", lambda: cpu)
    async with serving(tmp_path / "local", os.getuid()) as server:
        server.role = ROLE_USER
        async with connect_websocket(server.uri), trio.open_nursery() as nursery:
            cpu = 1000.0
            nursery.start_soon(connect_for_ever, server.uri)
            await who_is_asked(server, 2)
            server.role = ROLE_OWNER
            for _ in range(3):
                async with connect_websocket(server.uri):
                    pass
            assert [each.rolemask for each in server.came] == [ROLE_USER, *[ROLE_OWNER] * 3]
            nursery.cancel_scope.cancel()


async def test_who_is_refused_waits_for_the_turn_of_all_who_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = 0.0
    monkeypatch.setattr(share.time, "thread_time", lambda: cpu)
    async with serving(tmp_path / "local", os.getuid() + 1) as server:
        with pytest.raises(ConnectionRefused):
            await connect_for_ever(server.uri)
        cpu = 1000.0
        with trio.move_on_after(0.2) as waiting:
            await connect_for_ever(server.uri)
        assert waiting.cancelled_caught


async def connect_for_ever(uri: str) -> None:
    async with connect_websocket(uri):
        await trio.sleep_forever()


async def who_is_asked(server: Server, count: int) -> None:
    while len(server.asked) < count:  # noqa: ASYNC110 - nothing says when
        await trio.sleep(0.001)
