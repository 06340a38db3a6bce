"""What large environments cost a start: the most memory of the instance's process.

Jobs wait, each with an environment of a megabyte: ENVIRONMENTS_JOBS of them (an environment
variable, 100 unless set; the mark in docs/how-we-know/speed.md is about 300 and 2,000). The
instance is killed and started three times; after the last start every service is loaded again, but
for the kvs, which is always needed. A line for each start, and one for the reloads: `value` is the
peak of the process's resident memory; with it come the same without jobs (`idle_mb`) and the
seconds until the instance was ready (`seconds`).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from flux_trio.client import open_client
from flux_trio.formats import Jobspec
from flux_trio.messages import topics
from tests.benchmarks.measure import EDITION, SMALL, Figure, rounds
from tests.support.instance import FLUX_TRIO, environment

JOBS: Final = int(os.environ.get("ENVIRONMENTS_JOBS", "3" if SMALL else "100"))
VALUE: Final = "x" * 1_000_000
STARTS: Final = rounds(3)
RELOADED: Final = ("job-list", "job-exec", "sched", "job-manager", "job-ingest")


@dataclass(frozen=True, slots=True)
class MemoryFigure(Figure):
    """The peak of one life of the instance; see the head of this file."""

    idle_mb: float
    seconds: float
    reloaded: bool


def large_environments() -> Iterator[MemoryFigure]:
    with tempfile.TemporaryDirectory() as directory:
        statedir = Path(directory)
        with _instance(statedir) as (process, _):
            idle_mb = _peak_mb(process)
            trio.run(_submit, statedir)
        for start in range(1, STARTS + 1):
            with _instance(statedir) as (process, seconds):
                yield MemoryFigure(_peak_mb(process), "MB", JOBS, idle_mb, seconds, reloaded=False)
                if start == STARTS:
                    for name in RELOADED:
                        _flux_trio(statedir, "module", "reload", name)
                    _flux_trio(statedir, "jobs", "-A", "-n")
                    peak = _peak_mb(process)
                    yield MemoryFigure(peak, "MB", JOBS, idle_mb, seconds, reloaded=True)


@contextmanager
def _instance(statedir: Path) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """An instance that lists its jobs, and how long it took until then; killed afterwards."""
    began = time.monotonic()
    process = subprocess.Popen(
        [*FLUX_TRIO, "start", "--edition", EDITION, "--statedir", statedir],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        _flux_trio(statedir, "jobs", "-A", "-n", "-c", "1")
        yield process, round(time.monotonic() - began, 2)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _flux_trio(statedir: Path, *args: str) -> None:
    subprocess.run(
        [*FLUX_TRIO, *args],
        env=environment(FLUX_TRIO_STATEDIR=str(statedir)),
        stdout=subprocess.DEVNULL,
        check=True,
    )


async def _submit(statedir: Path) -> None:
    async with open_client(f"unix://{statedir / 'local'}") as client:
        for place in range(JOBS):
            jobspec = Jobspec.from_command(["true"], environment={"X": f"{place}{VALUE}"})
            asked: dict[str, Any] = {"jobspec": jobspec.to_json(), "urgency": 0}
            await client.call(topics.INGEST_SUBMIT, asked)


def _peak_mb(process: subprocess.Popen[str]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return round(int(line.split()[1]) / 1024, 1)
