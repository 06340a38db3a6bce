"""Seconds from the reload of the scheduler until it serves the queue again, with jobs that run."""

from __future__ import annotations

import time
from collections.abc import Iterator

import trio

from flux_trio.broker import Handle
from flux_trio.messages import Response, topics
from flux_trio.sim import make_machine
from flux_trio.trace import Kind, Record
from tests.benchmarks.measure import Figure, measured_instance, rounds, scaled
from tests.benchmarks.pending import settled, submit_pending

ROUNDS = rounds(5)


def reload_50() -> Iterator[Figure]:
    """50 running jobs."""
    yield _reload(50)


def reload_1k() -> Iterator[Figure]:
    """1,000 running jobs."""
    yield _reload(scaled(1_000))


def reload_10k() -> Iterator[Figure]:
    """10,000 running jobs."""
    yield _reload(scaled(10_000))


def _reload(count: int) -> Figure:
    return Figure(round(trio.run(_best, count), 4), "s", count)


class Served:
    """A sink that waits for the scheduler to be told that it may serve the queue."""

    def __init__(self) -> None:
        self._told = trio.Event()

    def take(self, record: Record) -> None:
        """Look at a record: the answer to ready, as it is taken up, is the one."""
        message = record.message
        if not isinstance(message, Response) or message.topic != topics.SCHED_READY:
            return
        if record.kind == Kind.RECV:
            self._told.set()

    async def wait(self) -> None:
        """Until the next time."""
        self._told = trio.Event()
        await self._told.wait()


async def _best(count: int) -> float:
    served = Served()
    machine = make_machine(-(-count // 100), 100)
    async with measured_instance(machine, [served.take]) as client:
        await submit_pending(client, count)
        while (await client.call(topics.JOB_STATS))["states"]["run"] < count:
            await settled(client)
        return min([await _once(client, served) for _ in range(ROUNDS)])


async def _once(client: Handle, served: Served) -> float:
    await settled(client)
    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call, topics.MODULE_RELOAD, {"name": "sched"})
        await served.wait()
        return time.perf_counter() - started
