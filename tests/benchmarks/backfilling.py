"""Conservative backfill of many small jobs: 9,000 wait, and those that run all end apart."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from random import Random

from flux_trio.policies import Job, Schedule
from tests.benchmarks.measure import Figure, scaled
from tests.support.scheduling import machine, nodes

JOBS = scaled(25_000)
EACH = scaled(1_000)
NODES, CORES = 800, 40
ARRIVALS_S = 30_000.0
"""All jobs come in this time, which is too short for them: about 9,000 wait at the end of it."""


def conservative_25k() -> Iterator[Figure]:
    """CPU milliseconds a job, for each thousand jobs that ended; `n` is the place of the last."""
    random = Random(3)
    schedule = Schedule("conservative")
    schedule.grow(machine(NODES, CORES), -1)
    arrivals = sorted([random.uniform(1.0, ARRIVALS_S) for _ in range(JOBS)], reverse=True)
    shape = nodes(1, CORES)
    ends: list[tuple[float, int]] = []
    measured = time.process_time()
    ended = 0
    while arrivals or ends:
        if arrivals and (not ends or arrivals[-1] <= ends[0][0]):
            now = arrivals.pop()
            limit = random.uniform(600.0, 4_000.0)
            schedule.submit(Job(JOBS - len(arrivals), shape, limit, 16, now))
        else:
            now, jobid = heapq.heappop(ends)
            schedule.free(jobid)
            ended += 1
            if ended % EACH == 0:
                used = time.process_time() - measured
                yield Figure(round(used / EACH * 1_000, 2), "ms of CPU per job", ended)
                measured = time.process_time()
        for job, grant in schedule.decide(now).started:
            ran = (grant.end - now) * random.uniform(0.3, 1.0)
            heapq.heappush(ends, (now + ran, job.id))
