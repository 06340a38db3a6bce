"""What a monitor or a trace costs the instance, and whether the monitor keeps up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import trio

from flux_trio.cli.judge.monitoring import open_monitor
from flux_trio.judge import Monitor, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.sim import WorkloadJob, make_machine, read_workload, simulate
from flux_trio.trace import JsonLines, Record
from flux_trio.trace.writing import WAITING_MAX
from tests.benchmarks.measure import Figure, own_seconds, rounds, scaled, sizes

COUNT = scaled(3_000)
WORKLOAD = Path(__file__).parents[1] / "data" / "workloads" / "lassen-10000.csv"
ROUNDS = rounds(3)  # of each, in turn: machines have moods


async def _run_monitored() -> tuple[float, float]:
    """The seconds with the monitor on, and the seconds until the monitor has seen all of it."""
    started = time.perf_counter()
    async with open_monitor("classic") as monitor:
        monitor.report_to(lambda _level, _party, text: print(text))
        seconds = await own_seconds(COUNT, sinks=[monitor.append])
    return seconds, time.perf_counter() - started


def judge_lassen() -> Iterator[Figure]:
    """Microseconds of CPU that the judge takes for a record of jobs of LLNL's Lassen."""
    jobs = read_workload(WORKLOAD.read_text().splitlines(), WORKLOAD.name)
    for count in sizes(1_500, 10_000):
        took = [_judged(jobs[:count]) for _ in range(ROUNDS)]
        yield Figure(round(min(took) * 1e6, 2), "us a record", count)


def _judged(jobs: Sequence[WorkloadJob]) -> float:
    """Seconds that the judge takes for a record; it judges many at a time, beside the run."""
    monitor = Monitor(ALL_RULES, load_clauses())
    took, nrecords = 0.0, 0
    waiting: list[Record] = []

    def judge() -> None:
        nonlocal took, nrecords
        started = time.process_time()
        for record in waiting:
            monitor.observe(record)
        took += time.process_time() - started
        nrecords += len(waiting)
        waiting.clear()

    def take(record: Record) -> None:
        waiting.append(record)
        if len(waiting) == WAITING_MAX:
            judge()

    simulate(jobs, make_machine(792, 40, 4), "easy", sinks=[take])
    judge()
    return took / nrecords


async def _run_traced() -> tuple[float, int]:
    """The same with a trace that can be replayed, and its bytes."""
    with tempfile.TemporaryFile(buffering=0) as file:
        lines = JsonLines(file.write)
        seconds = await own_seconds(COUNT, turn_sinks=[lines.append])
        lines.close()
        return seconds, file.tell()


def trace_overhead() -> Iterator[Figure]:
    """How much more the instance's process has to do; then the bytes of the trace for a job."""
    alone, traced, nbytes = [], [], 0
    for _ in range(ROUNDS):
        alone.append(trio.run(own_seconds, COUNT))
        seconds, nbytes = trio.run(_run_traced)
        traced.append(seconds)
    yield Figure(round(100 * (min(traced) / min(alone) - 1), 1), "% more", COUNT)
    yield Figure(round(nbytes / COUNT), "bytes a job", COUNT)


def monitor_overhead() -> Iterator[Figure]:
    """How much more the instance's process has to do; then the jobs a second that are judged."""
    alone, watched, judged = [], [], []
    for _ in range(ROUNDS):
        alone.append(trio.run(own_seconds, COUNT))
        seconds, until_seen = trio.run(_run_monitored)
        watched.append(seconds)
        judged.append(until_seen)
    yield Figure(round(100 * (min(watched) / min(alone) - 1), 1), "% more", COUNT)
    yield Figure(round(COUNT / min(judged), 1), "jobs/s judged", COUNT)
