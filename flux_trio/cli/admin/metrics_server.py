"""The metrics of an instance over HTTP, for every user of the machine.

The instance is asked with the rights of its owner, but at most once in `FRESH_S` seconds and by one
connection, however many scrape: strangers take nothing of the owner's share of the instance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import anyio.abc
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from flux_trio.cli.connection.loopback import HttpRequest, LoopbackServer, Refused, Whole

FRESH_S: Final = 1.0
PATHS: Final = ("/metrics", "/")

Stats = Mapping[str, Any]


class MetricsServer:
    """The server; `ask` returns the statistics of the instance, None if it does not answer.

    `collect` makes a collector of a function that returns them.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[Stats | None]],
        collect: Callable[[Callable[[], Stats | None]], Collector],
    ) -> None:
        self._ask = ask
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collect(lambda: self._stats))
        self._stats: Stats | None = None
        self._fresh = anyio.Event()  # set when the instance has answered; then there is another
        self._wanted = anyio.Event()
        self._is_fresh = False
        self._server = LoopbackServer(self.answer, [("Cache-Control", "no-store")])

    @property
    def port(self) -> int:
        return self._server.port

    async def serve(
        self, port: int, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen until cancelled; port 0 takes any free port. Raises OSError."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._server.serve, port)
            task_status.started()
            await self._refresh()

    async def answer(self, asked: HttpRequest) -> Whole:
        """Return the metrics, at most FRESH_S seconds old. Raises Refused."""
        if asked.method != "GET" or asked.path.partition("?")[0] not in PATHS:
            raise Refused(404, f"there is only {PATHS[0]}")
        if not self._is_fresh:
            self._wanted.set()
            await self._fresh.wait()
        encode, kind = choose_encoder(asked.header("accept"))
        return Whole(kind, encode(self._registry))

    async def _refresh(self) -> None:
        """Ask the instance whenever somebody wants to know; no scrape that is given up stops it."""
        while True:
            await self._wanted.wait()
            self._stats = await self._ask()
            self._fresh.set()
            self._fresh, self._wanted = anyio.Event(), anyio.Event()
            self._is_fresh = True
            await anyio.sleep(FRESH_S)
            self._is_fresh = False
