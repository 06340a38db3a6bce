"""Runs in simulated time: a real job log, with and without the judge, and made-up jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from flux_trio.judge import Monitor, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.sim import WorkloadJob, make_machine, read_workload, simulate
from flux_trio.trace import Batches
from tests.benchmarks.measure import Figure, sizes

WEEK_S = 7 * 86_400.0
ELAPSED_SUM_S = 7.4e6  # of all jobs of the week: with their mean of 57 nodes, 0.7 of the machine
WORKLOAD = Path(__file__).parents[1] / "data" / "workloads" / "lassen-10000.csv"


def simulate_lassen() -> Iterator[Figure]:
    """Jobs of LLNL's Lassen on a machine of its size, with EASY backfill."""
    jobs = read_workload(WORKLOAD.read_text().splitlines(), WORKLOAD.name)
    for count in sizes(1_000, 10_000):
        started = time.perf_counter()
        simulate(jobs[:count], make_machine(792, 40, 4), "easy")
        yield Figure(round(time.perf_counter() - started, 2), "s", count)


def simulate_lassen_watched() -> Iterator[Figure]:
    """The same with every clause watched."""
    jobs = read_workload(WORKLOAD.read_text().splitlines(), WORKLOAD.name)
    for count in sizes(1_000, 10_000):
        monitor = Monitor(ALL_RULES, load_clauses())
        batches = Batches(monitor.observe)
        started = time.perf_counter()
        simulate(jobs[:count], make_machine(792, 40, 4), "easy", sinks=[batches.append])
        batches.flush()
        yield Figure(round(time.perf_counter() - started, 2), "s", count)


def simulate_1k_nodes() -> Iterator[Figure]:
    """Jobs a second of 1 ms jobs that are all there at once, on 1,000 nodes of 128 cores.

    One comes first: what starts in the very instant the instance does might have run before.
    """
    for count in sizes(1_000, 10_000):
        times = [1.0, *[2.0] * (count - 1)]
        jobs = [WorkloadJob(str(n), None, 1, 0, 60.0, at, 0.001) for n, at in enumerate(times)]
        started = time.perf_counter()
        simulate(jobs, make_machine(1_000, 128))
        yield Figure(round(count / (time.perf_counter() - started), 1), "jobs/s", count)


def simulate_week() -> Iterator[Figure]:
    """Seconds for jobs of all sizes and lengths spread over a week, on 1,000 nodes."""
    for count in sizes(1_000, 10_000):
        started = time.perf_counter()
        simulate(_week(count), make_machine(1_000, 16), "easy")
        yield Figure(round(time.perf_counter() - started, 2), "s", count)


def _week(count: int) -> list[WorkloadJob]:
    random = Random(7)
    jobs = []
    for place in range(count):
        nnodes = min(1_000, 1 << random.randrange(9))
        elapsed = min(random.expovariate(count / ELAPSED_SUM_S), 86_400.0)
        submit = random.uniform(1.0, WEEK_S)
        limit = elapsed * random.uniform(1.1, 3.0)
        jobs.append(WorkloadJob(str(place), nnodes, nnodes * 16, 0, limit, submit, elapsed))
    return jobs
