"""The server of `flux-trio stats --serve`: what strangers can make of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from flux_trio.cli.admin.metrics import InstanceCollector
from flux_trio.cli.admin.metrics_server import FRESH_S, MetricsServer, Stats
from flux_trio.cli.connection.loopback import STRANGERS_MAX


class Instance:
    """An instance that is asked for its statistics; it answers when `goes_on` is set."""

    def __init__(self) -> None:
        self.nasked = 0
        self.is_there = True
        self.goes_on = trio.Event()
        self.goes_on.set()

    async def ask(self) -> Stats | None:
        self.nasked += 1
        await self.goes_on.wait()
        return {"broker": {"peers": self.nasked}, "jobtap": {}} if self.is_there else None


class Scraped:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.instance = Instance()
        self.server = MetricsServer(self.instance.ask, InstanceCollector)

    async def scrape(
        self, path: str = "/metrics", host: str = "127.0.0.1", method: str = "GET"
    ) -> str:
        async with self.connection() as stream:
            asked = f"{method} {path} HTTP/1.1\r\nHost: {host}:{self.server.port}\r\n\r\n"
            await stream.send_all(asked.encode())
            return b"".join([chunk async for chunk in stream]).decode()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[trio.SocketStream]:
        async with await trio.open_tcp_stream("127.0.0.1", self.server.port) as stream:
            yield stream


@pytest.fixture
async def scraped(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> Scraped:
    found = Scraped(nursery)

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        await found.server.serve(0, task_status=task_status)

    await nursery.start(serve)
    return found


async def test_instance_is_asked_at_most_once_a_second_however_many_scrape(
    scraped: Scraped,
) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(STRANGERS_MAX // 2):
            nursery.start_soon(scraped.scrape)
    assert scraped.instance.nasked == 1
    assert "flux_trio_peers 1.0" in await scraped.scrape()
    await trio.sleep(FRESH_S)
    assert "flux_trio_peers 2.0" in await scraped.scrape("/")


async def test_scrapes_that_are_given_up_ask_no_second_time(scraped: Scraped) -> None:
    scraped.instance.goes_on = trio.Event()
    for _ in range(2 * STRANGERS_MAX):
        async with scraped.connection() as stream:
            asked = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{scraped.server.port}\r\n\r\n"
            await stream.send_all(asked.encode())
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert scraped.instance.nasked == 1
    scraped.instance.goes_on.set()
    assert "flux_trio_up 1.0" in await scraped.scrape()
    assert scraped.instance.nasked == 1


async def test_instance_that_is_gone_is_down(scraped: Scraped) -> None:
    scraped.instance.is_there = False
    assert "flux_trio_up 0.0" in await scraped.scrape()


async def test_other_hosts_paths_and_methods_get_nothing(scraped: Scraped) -> None:
    assert "HTTP/1.1 421 " in await scraped.scrape(host="evil.example")
    assert "HTTP/1.1 404 " in await scraped.scrape("/other")
    assert "HTTP/1.1 404 " in await scraped.scrape(method="POST")
    assert scraped.instance.nasked == 0
