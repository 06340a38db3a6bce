"""A real job log replayed in simulated time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.support.data import WORKLOADS

from flux_trio.sim import Machine, read_workload, simulate
from tests.benchmarks.measure import Figure


def simulate_lassen() -> Iterator[Figure]:
    """Jobs of LLNL's Lassen on a machine of its size."""
    for count in (1_000, 10_000):
        path = WORKLOADS / "lassen-10000.csv"
        jobs = read_workload(path.read_text(), path.name)[:count]
        started = time.perf_counter()
        simulate(jobs, Machine(nodes=792, cores=40, gpus=4), "easy")
        yield Figure(round(time.perf_counter() - started, 2), "s", count)
