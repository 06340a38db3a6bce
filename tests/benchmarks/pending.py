"""What many pending jobs cost: bytes each, and what is done to one or to all of them.

No two jobspecs are the same, and the whole process is counted: every service, SQLite too.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import trio.testing

from flux_trio.broker import Handle
from flux_trio.formats import Jobspec
from flux_trio.messages import Request, Response, topics
from tests.benchmarks.measure import SMALL, Figure, in_instance, sizes

SUBMITS_MAX = 10_000  # unanswered at a time
FEW_SUBMITS = 1_000  # the same where bytes are counted: of jobs, not of requests on their way
OPERATIONS = 20 if SMALL else 200  # of each kind that is timed


def resident_bytes() -> int:
    """Of this process now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def in_new_process(function: Callable[..., Any], *args: Any) -> Any:
    """Run it where nothing else has used memory yet."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def pending_job(place: int) -> dict[str, Any]:
    """A jobspec unlike any other, that needs the whole machine and does not end."""
    return Jobspec.from_command(
        ["app", f"--input=/scratch/data/{place}.h5"],
        ntasks=1,
        duration=3600.0 + place,
        cwd=f"/home/user/run{place}",
        environment={"HOME": "/home/user", "CASE": str(place)},
        attributes={"system.exec.test.run_duration": 1e9, "system.job.name": f"case{place}"},
    ).to_json()


async def submit_pending(client: Handle, count: int) -> list[int]:
    """Submit that many; their ids in the order of their answers."""
    return await submit_all(client, map(pending_job, range(1, count + 1)), count, FEW_SUBMITS)


async def submit_all(
    client: Handle, jobspecs: Iterable[dict[str, Any]], count: int, at_once: int = SUBMITS_MAX
) -> list[int]:
    """Submit `count` jobspecs, pipelined; their ids in the order of their answers."""
    ids: list[int] = []
    sent = 0
    rest = iter(jobspecs)
    while len(ids) < count:
        while sent < count and sent - len(ids) < at_once:
            sent += 1
            payload = {"jobspec": next(rest)}
            client.send(Request(topics.INGEST_SUBMIT, payload, 1_000_000 + sent))
        for message in await client.receive():
            if isinstance(message, Response):
                assert isinstance(message.payload, dict), message
                ids.append(message.payload["id"])
    return ids


async def next_with_resources(journal: AsyncIterator[dict[str, Any]]) -> int:
    """The id of the next job that the journal tells an alloc event of."""
    async for response in journal:
        for jobid, _, event in response["events"]:
            if event["name"] == "alloc":
                return int(jobid)
    raise AssertionError("the journal ended")


async def settled(client: Handle) -> None:
    """Until the job manager has done all that came before."""
    await client.call(topics.JOB_STATS)
    await trio.testing.wait_all_tasks_blocked(0.01)
    await client.call(topics.JOB_STATS)


# --- bytes


def _bytes_each(count: int) -> float:
    async def main(client: Handle) -> float:
        await submit_pending(client, 100)
        await settled(client)
        before = resident_bytes()
        await submit_pending(client, count)
        await settled(client)
        return (resident_bytes() - before) / count

    return float(in_instance(main))


def pending_bytes() -> Iterator[Figure]:
    """Resident memory of a pending job."""
    for count in sizes(10_000, 100_000):
        yield Figure(round(in_new_process(_bytes_each, count)), "bytes/job", count)


# --- a million


def _many(count: int) -> dict[str, float]:
    async def main(client: Handle) -> dict[str, float]:
        before = resident_bytes()
        started = time.perf_counter()
        ids = await submit_pending(client, count)
        await settled(client)
        figures = {"seconds": time.perf_counter() - started}
        figures["bytes each"] = (resident_bytes() - before) / count
        some = ids[count // 2 :: max(1, count // 2 // OPERATIONS)][:OPERATIONS]

        async def timed(name: str, operation: Callable[[int], Awaitable[object]]) -> None:
            began = time.perf_counter()
            for jobid in some:
                await operation(jobid)
            figures[f"us per {name}"] = (time.perf_counter() - began) / len(some) * 1e6

        further = iter(map(pending_job, itertools.count(count + 1)))

        async def submit(_jobid: int) -> object:
            return await client.call(topics.INGEST_SUBMIT, {"jobspec": next(further)})

        async def urgency(jobid: int) -> object:
            return await client.call(topics.JOB_URGENCY, {"id": jobid, "urgency": 20})

        async def cancel(jobid: int) -> object:
            payload = {"id": jobid, "type": "cancel", "severity": 0}
            return await client.call(topics.JOB_RAISE, payload)

        await timed("submit", submit)
        running = min(ids)
        async with client.stream(topics.JOB_JOURNAL) as journal:

            async def alloc(_jobid: int) -> None:
                """The job that runs is canceled, until the next has its resources."""
                nonlocal running
                await cancel(running)
                running = await next_with_resources(journal)

            await timed("alloc", alloc)
        await timed("urgency", urgency)
        await timed("cancel", cancel)
        return figures

    return dict(in_instance(main))


def sched_1m() -> Iterator[Figure]:
    """A million jobs in SCHED, and what is done to one of them; the same with a thousand."""
    for count in sizes(1_000, 1_000_000):
        for unit, value in in_new_process(_many, count).items():
            yield Figure(round(value, 1), unit, count)


# --- all at once


def cancel_5k() -> Iterator[Figure]:
    """Seconds until a request to cancel all pending jobs is answered: they are INACTIVE then."""

    def measure(count: int) -> float:
        async def main(client: Handle) -> float:
            await submit_pending(client, count)
            while not (await client.call(topics.JOB_STATS))["states"]["run"]:
                await trio.testing.wait_all_tasks_blocked(0.01)  # for the store, on its thread
            await settled(client)
            started = time.perf_counter()
            payload = {"type": "cancel", "severity": 0, "states": 2 + 4 + 8}
            await client.call(topics.JOB_RAISEALL, payload)
            seconds = time.perf_counter() - started
            states = (await client.call(topics.JOB_STATS))["states"]
            assert states["inactive"] == count - 1, "all but the one that runs"
            return seconds

        return float(in_instance(main))

    for count in sizes(500, 5_000):
        yield Figure(round(measure(count), 3), "s", count)
