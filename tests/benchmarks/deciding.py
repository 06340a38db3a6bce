"""One allocation decision on 16,384 nodes of 128 cores, nine tenths of them full."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from random import Random

from flux_trio.policies import Job, Schedule, Shape
from tests.benchmarks.measure import SMALL, Figure, rounds
from tests.support.scheduling import machine, nodes, slots

CORES = 128
FULL = 0.9
ROUNDS = rounds(20)
NODES = (1_638,) if SMALL else (1_638, 16_384)
SHAPES = {
    "1 core": slots(1),
    "1 node": nodes(1, CORES),
    "1,600 nodes": nodes(1_600, CORES),
    "1,600 nodes shared": nodes(1_600, 1),
}


def alloc_decision() -> Iterator[Figure]:
    """Microseconds for each shape; with EASY, behind a job that a reservation is made for."""
    for count in NODES:
        for policy, reserved in (("fifo", False), ("easy", True)):
            schedule = _filled(policy, count)
            if reserved:
                schedule.submit(Job(1, nodes(count, CORES), 3600.0, 31, 0.0))
                schedule.decide(0.0)
            for name, shape in SHAPES.items():
                behind = " behind a reservation" if reserved else ""
                unit = f"us for {name}{behind}"
                yield Figure(round(_microseconds(schedule, shape), 1), unit, count)


def _filled(policy: str, count: int) -> Schedule:
    """Every tenth node is free, in no order; jobs of a node each hold the others."""
    schedule = Schedule(policy)
    schedule.grow(machine(count, CORES), -1)
    for jobid in range(2, count + 2):
        schedule.submit(Job(jobid, nodes(1, CORES), 3600.0, 16, float(jobid)))
    schedule.decide(0.0)
    for jobid in Random(1).sample(range(2, count + 2), round(count * (1 - FULL))):
        schedule.free(jobid)
    return schedule


def _microseconds(schedule: Schedule, shape: Shape) -> float:
    best = math.inf
    for round_ in range(ROUNDS):
        jobid = 1_000_000 + round_
        schedule.submit(Job(jobid, shape, 60.0, 16, 0.0))
        started = time.perf_counter()
        decisions = schedule.decide(1.0)
        best = min(best, time.perf_counter() - started)
        if any(job.id == jobid for job, _ in decisions.started):
            schedule.free(jobid)
        else:
            schedule.withdraw(jobid)
    return best * 1e6
