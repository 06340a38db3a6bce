"""A connection that is cancelled at any moment: it ends, at both ends, and closes its socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.client import open_client
from flux_trio.messages import Request
from flux_trio.transports import (
    Connection,
    Credentials,
    TransportError,
    connect_native,
    connect_websocket,
    serve_native,
    serve_unix,
)
from tests.support.cancelling import nothing_left_wherever_cancelled

TEST_S_MAX = 300.0  # by the virtual clock


async def echo(connection: Connection, _credentials: Credentials) -> None:
    with suppress(TransportError):
        while True:
            for message in await connection.receive():
                connection.send_nowait(message)


async def talk(connection: Any) -> None:
    """Send a message, and have it back."""
    connection.send_nowait(Request("a.b"))
    assert await connection.receive() == [Request("a.b")]


async def say_nothing(_client: Any) -> None:
    """Connect, and leave again."""


@pytest.mark.parametrize(
    ("serve", "connect", "speak"),
    [
        (serve_native, connect_native, talk),
        (serve_unix, connect_websocket, talk),
        (serve_unix, open_client, say_nothing),
    ],
)
async def test_it_ends_and_leaves_no_socket(
    tmp_path: Path,
    autojump_clock: MockClock,
    serve: Callable[..., Awaitable[None]],
    connect: Callable[[str], AbstractAsyncContextManager[Any]],
    speak: Callable[[Any], Awaitable[None]],
) -> None:
    def who_is(userid: int) -> Credentials:
        return Credentials(userid, 1, "me")

    async def run() -> None:
        with trio.fail_after(TEST_S_MAX):
            async with trio.open_nursery() as nursery:
                uri = await nursery.start(serve, tmp_path / "local", 0o600, who_is, echo)
                async with connect(uri) as connection:
                    await speak(connection)
                nursery.cancel_scope.cancel()

    assert await nothing_left_wherever_cancelled(run) > 20
