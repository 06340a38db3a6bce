"""Jobs a second from submit to INACTIVE: simulated 1 ms jobs, SQLite on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import trio

from flux_trio.sim import make_machine
from tests.benchmarks.measure import Figure, measured_instance, run_jobs, simulated_job


def _jobs_per_second(nodes: int, cores: int, count: int) -> Figure:
    async def main() -> float:
        with tempfile.TemporaryDirectory() as directory:
            async with measured_instance(make_machine(nodes, cores), Path(directory)) as client:
                return await run_jobs(client, simulated_job(0.001), count)

    return Figure(round(count / trio.run(main), 1), "jobs/s", count)


def throughput() -> Iterator[Figure]:
    """One node of 128 cores; at a tenth of the size too, since no cost per job may grow."""
    for count in (1_000, 10_000):
        yield _jobs_per_second(1, 128, count)


def throughput_1k_nodes() -> Iterator[Figure]:
    """1,000 nodes of 128 cores."""
    for count in (1_000, 10_000):
        yield _jobs_per_second(1_000, 128, count)


def throughput_10k_nodes() -> Iterator[Figure]:
    """10,000 nodes of 1 core."""
    for count in (1_000, 10_000):
        yield _jobs_per_second(10_000, 1, count)
