"""Submits a second: in the instance's process, and by one client in another over a socket."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import trio

from flux_trio.broker import Handle
from flux_trio.client import open_client
from flux_trio.messages import topics
from flux_trio.sim import make_machine
from tests.benchmarks.measure import Figure, in_instance, measured_instance, sizes
from tests.benchmarks.pending import pending_job, submit_all


def submit_inproc() -> Iterator[Figure]:
    """Pipelined, each answered once it is durable."""

    async def main(client: Handle, count: int) -> float:
        jobspecs = [pending_job(place) for place in range(count)]
        started = time.perf_counter()
        await submit_all(client, jobspecs, count)
        return count / (time.perf_counter() - started)

    for count in sizes(1_000, 20_000):
        rate = in_instance(lambda client, count=count: main(client, count))  # type: ignore[misc]
        yield Figure(round(rate, 1), "jobs/s", count)


def submit_socket() -> Iterator[Figure]:
    """The same through `flux_trio.client`."""
    for count in sizes(1_000, 10_000):
        yield Figure(round(trio.run(_by_socket, count), 1), "jobs/s", count)


async def _by_socket(count: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        machine = make_machine(1, 1)
        async with measured_instance(machine, statedir=Path(directory)) as client:
            instance = await client.call(topics.BROKER_INFO)
            token = (Path(directory) / "token").read_text()
            command = [sys.executable, "-m", __name__, instance["uri"], token, str(count)]
            done = await trio.run_process(command, capture_stdout=True, cwd=_ROOT)
            return float(json.loads(done.stdout))


_ROOT = Path(__file__).parents[2]


async def _client(uri: str, token: str, count: int) -> float:
    jobspecs = [pending_job(place) for place in range(count)]
    async with open_client(uri, token) as client:
        await client.submit(jobspecs[0])
        started = time.perf_counter()
        await client.submit_many(jobspecs)
        return count / (time.perf_counter() - started)


if __name__ == "__main__":
    print(trio.run(_client, sys.argv[1], sys.argv[2], int(sys.argv[3])))
