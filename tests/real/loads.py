"""Gives a scheduler work: many jobs of several shapes, and a log of Lassen with shorter run times.

It is the program of an instance, and ends when all jobs have; it prints how many there were.

    python -m tests.real.loads SCHEDULER JOBS LOG.csv
"""

from __future__ import annotations

import csv
import random
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import trio

from tests.support.live_scheduling import be_over, scheduled, submit
from tests.support.sched_script import jobspec

FASTER: Final = 5000.0
"""So many times as fast as it was the log is played."""
GAP_S_MAX: Final = 0.1
"""Between two jobs of the log, of which some are days apart."""
SHAPES: Final = ((1, None), (4, None), (1, 1), (2, 2), (8, 4), (1, 16))
"""Cores and nodes: of a job, or of each of its nodes."""


def running_for(seconds: float) -> dict[str, Any]:
    return {"exec": {"test": {"run_duration": f"{seconds:.3f}s"}}, "cwd": "/tmp"}


async def many(handle: Any, count: int) -> None:
    """Submit jobs at once, of all shapes; one in twenty is urgent."""
    draw = random.Random(count)
    for number in range(count):
        cores, nodes = SHAPES[number % len(SHAPES)]
        spec = jobspec(cores, nnodes=nodes, duration=60.0, **running_for(draw.uniform(0.01, 0.2)))
        await submit(handle, spec, 20 if draw.randrange(20) == 0 else 16)


async def replayed(handle: Any, log: Path) -> int:
    """Submit the jobs of a log as they came; return how many there are."""
    with log.open() as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: row["Submit"])
    times = [datetime.fromisoformat(row["Submit"]).timestamp() for row in rows]
    for row, at, before in zip(rows, times, [times[0], *times], strict=False):
        await trio.sleep(min(GAP_S_MAX, (at - before) / FASTER))
        nodes = int(row["NNodes"])
        cores = max(1, int(row["NCPUS"]) // nodes)
        limit, elapsed = (_seconds(row[name]) / FASTER for name in ("Timelimit", "Elapsed"))
        spec = jobspec(cores, nnodes=nodes, duration=max(60.0, limit), **running_for(elapsed))
        await submit(handle, spec)
    return len(rows)


def _seconds(text: str) -> float:
    hours, minutes, seconds = map(int, text.split(":"))
    return 3600.0 * hours + 60.0 * minutes + seconds


async def main(scheduler: str, count: int, log: Path) -> None:
    async with scheduled(scheduler) as (handle, _):
        await many(handle, count)
        await be_over(handle)
        nreplayed = await replayed(handle, log)
        await be_over(handle)
        stats = await handle.call("job-list.job-stats")
        print(f"{count + nreplayed} jobs: {stats['successful']} successful")


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
