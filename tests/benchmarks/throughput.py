"""Jobs a second from submit to INACTIVE, SQLite on: simulated 1 ms jobs, and real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flux_trio.formats import Jobspec
from tests.benchmarks.measure import Figure, in_instance, run_jobs, scaled, simulated_job, sizes


def _figure(jobspec: dict[str, Any], count: int, nodes: int, cores: int) -> Figure:
    seconds = in_instance(lambda client: run_jobs(client, jobspec, count), nodes, cores)
    return Figure(round(count / seconds, 1), "jobs/s", count)


def throughput() -> Iterator[Figure]:
    """One node of 128 cores; at a tenth of the size too, since no cost per job may grow."""
    for count in sizes(1_000, 10_000):
        yield _simulated(count, 1, 128)


def throughput_1k_nodes() -> Iterator[Figure]:
    """1,000 nodes of 128 cores."""
    for count in sizes(1_000, 10_000):
        yield _simulated(count, 1_000, 128)


def throughput_10k_nodes() -> Iterator[Figure]:
    """10,000 nodes of 1 core."""
    for count in sizes(1_000, 10_000):
        yield _simulated(count, 10_000, 1)


def real_true() -> Iterator[Figure]:
    """Real `true` jobs, through the shell host; as many at a time as on 16 cores."""
    yield _figure(Jobspec.from_command(["true"], cwd="/").to_json(), scaled(500), 1, 16)


def _simulated(count: int, nodes: int, cores: int) -> Figure:
    return _figure(simulated_job(0.001), count, nodes, cores)
