"""What plugins cost: hooks at every state, new priorities for all, a plugin that comes late."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from flux_trio import jobtap
from flux_trio.broker import Handle
from flux_trio.messages import topics
from flux_trio.sim import make_machine
from tests.benchmarks.measure import Figure, measured_instance, own_seconds, rounds, scaled, sizes
from tests.benchmarks.pending import settled, submit_pending

PLUGINS = 10
JOBS = scaled(3_000)
ROUNDS = rounds(3)  # of each, in turn: machines have moods
LOOK_S = 0.01  # between two looks at what the scheduler has received; a trace would cost more
LATE = """
from flux_trio import jobtap


class Late(jobtap.Plugin):
    @jobtap.on("job.new")
    def new(self, job):
        job.data["seen"] = True

    @jobtap.on("job.priority.get")
    def priority(self, job):
        return 100 + job.urgency
"""


class Watcher(jobtap.Plugin):
    """Does next to nothing, at every state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = 0

    @jobtap.on("job.state.*")
    def state(self, job: jobtap.Job) -> None:
        """Count."""
        self.seen += job.id > 0


class Ranks(jobtap.Plugin):
    """Priorities that are others each time it is asked to ask again."""

    name = "ranks"

    def __init__(self) -> None:
        self.base = 100

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int:
        """By urgency and time."""
        return self.base + job.urgency

    @jobtap.on_many("job.priority.get")
    def priorities(self, jobs: list[jobtap.Job]) -> list[int]:
        """The same for many."""
        base = self.base
        return [base + job.urgency for job in jobs]

    @jobtap.service("again")
    def again(self, _request: jobtap.ServiceRequest) -> dict[str, object]:
        """All of them."""
        self.base += 1
        self.reprioritize_all()
        return {}


def plugins_10() -> Iterator[Figure]:
    """Ten plugins with a handler for job.state.*: how much less throughput that is."""
    for count in (JOBS // 10, JOBS):
        without, watched = [], []
        for _ in range(ROUNDS):
            without.append(trio.run(_run, count, 0))
            watched.append(trio.run(_run, count, PLUGINS))
        lost = 100 * (1 - min(without) / min(watched))
        yield Figure(round(lost, 1), "% less throughput", count)


async def _run(count: int, nplugins: int) -> float:
    plugins = [Watcher(f"watcher{place}") for place in range(nplugins)]
    return await own_seconds(count, plugins=plugins)


def reprioritize_100k() -> Iterator[Figure]:
    """Seconds until the scheduler has all new priorities, and in how many requests."""
    for count in sizes(10_000, 100_000):
        seconds, requests = trio.run(_reprioritize, count)
        yield Figure(round(seconds, 2), "s", count)
        yield Figure(requests, "sched.prioritize", count)


async def _reprioritize(count: int) -> tuple[float, int]:
    async with _pending(count, [Ranks()]) as client:
        before = await _prioritized(client)
        started = time.perf_counter()
        await client.call("job-manager.ranks.again", {})
        while await _prioritized(client) == before:  # noqa: ASYNC110 - nobody sets an Event
            await trio.sleep(LOOK_S)
        seconds = time.perf_counter() - started
        await settled(client)
        return seconds, await _prioritized(client) - before


async def _prioritized(client: Handle) -> int:
    """How many sched.prioritize the scheduler has received."""
    stats = await client.call(topics.stats_of(topics.SCHED))
    return int(stats["requests"].get(topics.SCHED_PRIORITIZE, 0))


def load_plugin_100k() -> Iterator[Figure]:
    """Milliseconds another request waits at most while a plugin is loaded with active jobs."""
    for count in sizes(10_000, 100_000):
        yield Figure(round(1e3 * trio.run(_load, count), 1), "ms", count)


async def _load(count: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        plugin = Path(directory) / "late.py"
        plugin.write_text(LATE)
        async with _pending(count, []) as client:
            return await _longest_wait(client, plugin)


async def _longest_wait(client: Handle, plugin: Path) -> float:
    async with trio.open_nursery() as nursery:
        loaded = trio.Event()

        async def load() -> None:
            await client.call(topics.JOB_JOBTAP, {"load": str(plugin)})
            loaded.set()

        nursery.start_soon(load)
        longest = 0.0
        while not loaded.is_set():
            began = time.perf_counter()
            await client.call(topics.JOB_STATS)  # the answer waits for no other service
            longest = max(longest, time.perf_counter() - began)
        return longest


@asynccontextmanager
async def _pending(count: int, plugins: Iterable[jobtap.Plugin]) -> AsyncIterator[Handle]:
    async with measured_instance(make_machine(1, 1), plugins=plugins) as client:
        await submit_pending(client, count)
        await settled(client)
        yield client
