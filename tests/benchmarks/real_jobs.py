"""Real `true` jobs a second, through the shell host."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import trio

from flux_trio.formats import Jobspec
from flux_trio.sim import make_machine
from tests.benchmarks.measure import Figure, measured_instance, run_jobs

JOBS = 500


def real_true() -> Iterator[Figure]:
    """As many at a time as the machine would have on 16 cores."""

    async def main() -> float:
        jobspec = Jobspec.from_command(["true"], cwd="/").to_json()
        with tempfile.TemporaryDirectory() as directory:
            async with measured_instance(make_machine(1, 16), Path(directory)) as client:
                return await run_jobs(client, jobspec, JOBS)

    yield Figure(round(JOBS / trio.run(main), 1), "jobs/s", JOBS)
