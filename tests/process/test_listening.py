"""Taking connections where there are few descriptors."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from flux_trio.cli.connection.loopback import LoopbackServer
from flux_trio.process import listening
from flux_trio.process.listening import serve_listeners


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """No further file, socket or connection can be opened in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fill = [os.open(os.devnull, os.O_RDONLY)]
    try:
        most = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        while True:
            try:
                fill.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for descriptor in fill:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_who_waits_for_a_descriptor_is_taken_later_and_a_line_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0.01)
    told: list[str] = []
    taken = trio.Event()

    async def handle(stream: trio.SocketStream) -> None:
        taken.set()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    client = trio.socket.socket()
    with caplog.at_level(logging.DEBUG):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_listeners, handle, listeners, told.append)
            with no_descriptor_left():
                await client.connect(("127.0.0.1", port))
                while not told:  # noqa: ASYNC110 - nothing else says that it was tried
                    await trio.sleep(0.01)
                await trio.sleep(0.1)  # some more tries
                assert not taken.is_set()
                assert told == ["no connection can be taken, peers wait: Too many open files"]
            with trio.fail_after(60):
                await taken.wait()
            nursery.cancel_scope.cancel()
    client.close()
    assert len(told) == 1
    assert caplog.records == [], "a traceback of Trio's"


async def test_a_page_server_outlives_a_shortage() -> None:
    async def answer(_asked: object) -> object:
        raise AssertionError("nothing is asked")

    server = LoopbackServer(answer, [])  # type: ignore[arg-type]
    client = trio.socket.socket()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, 0)
        with no_descriptor_left():
            await client.connect(("127.0.0.1", server.port))
            await trio.sleep(0.1)
        with trio.fail_after(60):
            await client.send(b"GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
            assert (await client.recv(100)).startswith(b"HTTP/1.1 421")
        nursery.cancel_scope.cancel()
    client.close()
