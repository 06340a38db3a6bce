"""A real job log replayed in simulated time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from flux_trio.sim import make_machine, read_workload, simulate
from tests.benchmarks.measure import Figure

WORKLOAD = Path(__file__).parents[1] / "data" / "workloads" / "lassen-10000.csv"


def simulate_lassen() -> Iterator[Figure]:
    """Jobs of LLNL's Lassen on a machine of its size, with EASY backfill."""
    jobs = read_workload(WORKLOAD.read_text().splitlines(), WORKLOAD.name)
    for count in (1_000, 10_000):
        started = time.perf_counter()
        simulate(jobs[:count], make_machine(792, 40, 4), "easy")
        yield Figure(round(time.perf_counter() - started, 2), "s", count)
