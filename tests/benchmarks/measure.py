"""What the benchmarks share: a figure, an instance to measure, jobs to give it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from flux_trio.broker import Handle
from flux_trio.config import Config
from flux_trio.editions import CLASSIC
from flux_trio.formats import Jobspec, ResourceSet
from flux_trio.instance import Surroundings, durable_store, open_instance
from flux_trio.jobtap import Plugin
from flux_trio.messages import FluxError, Request, Response, topics
from flux_trio.sim import make_machine
from flux_trio.trace import Sink, TurnSink

SMALL: Final = bool(os.environ.get("BENCH_SMALL"))
"""Whether each benchmark runs once, at a small size: so the gate sees that it works. Its figures
say nothing then."""
SMALL_COUNT: Final = 200
EDITION: Final = os.environ.get("BENCH_EDITION") or CLASSIC.name
"""The edition that instances speak."""


def scaled(count: int) -> int:
    """Return how many things to measure over."""
    return min(count, SMALL_COUNT) if SMALL else count


def sizes(*counts: int) -> tuple[int, ...]:
    """Return the sizes to measure at, or one small size."""
    return (scaled(counts[0]),) if SMALL else counts


def rounds(count: int) -> int:
    """Return how often to measure the same."""
    return 1 if SMALL else count


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, None if it cannot be had here; `n` is over how many things."""

    value: float | None
    unit: str
    n: int


def simulated_job(seconds: float, **options: Any) -> dict[str, Any]:
    """A jobspec whose job pretends to run for `seconds`."""
    test = {"system.exec.test.run_duration": seconds}
    return Jobspec.from_command(["true"], cwd="/tmp", attributes=test, **options).to_json()


@asynccontextmanager
async def measured_instance(
    inventory: ResourceSet,
    sinks: Iterable[Sink] = (),
    *,
    statedir: Path | None = None,
    plugins: Iterable[Plugin] = (),
    turn_sinks: Iterable[TurnSink] = (),
) -> AsyncIterator[Handle]:
    """A handle on an instance as a user would run it: SQLite, every service, the real clock.

    It listens if it has a `statedir`.
    """
    config = Config(edition=EDITION)
    with tempfile.TemporaryDirectory() as directory:
        place = statedir or Path(directory)
        given = Surroundings(
            inventory=inventory,
            userid=0,
            epoch=time.time(),
            statedir=place,
            listen=statedir is not None,
            store=durable_store(config, place),
            sinks=sinks,
            turn_sinks=turn_sinks,
            plugins=plugins,
        )
        async with open_instance(config, given) as instance, instance.connect() as client:
            await client.call(topics.LIST_STATS)  # once it has read what jobs there are, it is up
            yield client


def in_instance(main: Callable[[Handle], Awaitable[Any]], nodes: int = 1, cores: int = 1) -> Any:
    """Run `main` on a machine, of one core unless it says."""

    async def run() -> Any:
        async with measured_instance(make_machine(nodes, cores)) as client:
            return await main(client)

    return trio.run(run)


async def own_seconds(count: int, **given: Any) -> float:
    """Run `count` jobs; return the seconds of this process's own time. `given` is as above."""
    async with measured_instance(make_machine(1, 128), **given) as client:
        started = time.process_time()
        await run_jobs(client, simulated_job(0.001), count)
        return time.process_time() - started


async def run_jobs(client: Handle, jobspec: dict[str, Any], count: int) -> float:
    """Submit `count` jobs at once; the seconds until the last is INACTIVE."""
    left = count
    async with client.stream(topics.JOB_JOURNAL) as journal:
        started = trio.current_time()
        answers = 0
        for matchtag in range(1, count + 1):
            client.send(Request(topics.INGEST_SUBMIT, {"jobspec": jobspec}, 1_000_000 + matchtag))
        while answers < count:
            answers += sum(_is_accepted(message) for message in await client.receive())
        async for response in journal:
            left -= sum(event["name"] == "clean" for _, _, event in response["events"])
            if left == 0:
                return trio.current_time() - started
    raise AssertionError("the journal ended before the jobs")


def _is_accepted(message: Any) -> bool:
    if not isinstance(message, Response):
        return False
    if message.errnum:
        raise FluxError(message.errnum, message.error_text)
    return True
