"""What finished jobs cost: a start with 200,000 of them, and a list of 40,000.

Their state is made in bulk, by the store and the formats that the services use; nothing is run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.cores.job_index import ended_at, ended_key, ended_value, mark_of
from flux_trio.cores.kvs.ops import Append, Op, Put
from flux_trio.editions.journal import Ended
from flux_trio.formats import Event, FluidGenerator, Jobspec, ResourceSet, format_eventlog, job_key
from flux_trio.protocols import JobResult, submit_event
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE, other_edition
from tests.benchmarks.measure import EDITION, Figure, scaled
from tests.support.instance import environment

RESTART_JOBS: Final = scaled(200_000)
LIST_JOBS: Final = scaled(40_000)
COMMIT_JOBS: Final = 2_000
T0: Final = 1_700_000_000.0  # when the first was submitted; one every 10 ms

_RUN = (sys.executable, "-m", "flux_trio")


def restart_200k() -> Iterator[Figure]:
    """Seconds to ready, and to the end of `run true`; bytes of memory a finished job."""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as full:
        make_finished(Path(full), RESTART_JOBS)
        before = _started(Path(empty))
        after = _started(Path(full))
    yield Figure(round(after["ready"], 2), "s to ready", RESTART_JOBS)
    yield Figure(round(after["ran"], 2), "s to the end of run true", RESTART_JOBS)
    grown = (after["rss"] - before["rss"]) / RESTART_JOBS
    yield Figure(round(grown, 1), "bytes a finished job", RESTART_JOBS)


def list_40k() -> Iterator[Figure]:
    """Seconds of `flux-trio jobs -a -c0`, and of one that a filter leaves 100 jobs of."""
    with tempfile.TemporaryDirectory() as directory:
        make_finished(Path(directory), LIST_JOBS)
        for what, options in (
            ("s for all", ()),
            ("s for the 40 of a name", ("--name", "job-7")),
            ("s for the 100 newest", ("-c", "100")),
        ):
            command = (*_RUN, "jobs", "-n", "-a", "-A", "-c0", *options)
            yield Figure(round(_timed(Path(directory), command), 2), what, LIST_JOBS)


def make_finished(statedir: Path, count: int) -> None:
    """Put `count` finished jobs of this user into a state directory."""
    r = ResourceSet.build([(0, 1, 0)], lambda rank: f"node{rank}").to_json()
    resources = msgspec.json.encode(r).decode()
    ids = FluidGenerator(start_ms=0)
    other_edition(statedir, EDITION)  # leaves its note in a new directory
    store = SqliteStore(statedir / STATE_FILE)
    try:
        ops: list[Op] = []
        for number in range(count):
            t = T0 + number / 100
            jobid = ids.next(number * 10)
            ops += _job(jobid, t, f"job-{number % 1000}", resources)
            if len(ops) >= COMMIT_JOBS * 4:
                store.commit(ops)
                ops = []
        store.commit(ops)
    finally:
        store.close()


def _job(jobid: int, t: float, name: str, resources: str) -> Iterator[Op]:
    userid = os.getuid()
    job = {"system.job.name": name}
    jobspec = Jobspec.from_command(["true"], cwd="/tmp", attributes=job).to_json()
    events = [
        submit_event(t, userid, 16, 0),
        Event(t, "validate"),
        Event(t, "depend"),
        Event(t, "priority", {"priority": 16}),
        Event(t, "alloc"),
        Event(t, "start"),
        Event(t + 1, "finish", {"status": 0}),
        Event(t + 1, "release", {"ranks": "all", "final": True}),
        Event(t + 1, "free"),
        Event(t + 1, "clean"),
    ]
    result = int(JobResult.COMPLETED)
    ended = Ended(jobid, ended_at(t + 1), userid, result, mark_of(name), mark_of(None))
    yield Put(job_key(jobid, "jobspec"), msgspec.json.encode(jobspec).decode())
    yield Append(job_key(jobid, "eventlog"), format_eventlog(events))
    yield Put(job_key(jobid, "R"), resources)
    yield Put(ended_key(ended), ended_value(ended))


def _started(statedir: Path) -> dict[str, float]:
    """An instance over `statedir`: when it was ready, when a job had run, its memory after that."""
    script = (
        "import json, os, subprocess, sys, time\n"
        "ready = time.time()\n"
        f"subprocess.run({[*_RUN, 'run', 'true']!r}, check=True)\n"
        "ran = time.time()\n"
        # by then every finished job has been counted
        f"subprocess.run({[*_RUN, 'job', 'stats']!r}, check=True, stdout=subprocess.DEVNULL)\n"
        "status = open(f'/proc/{os.getppid()}/status').read()\n"
        "rss = int(status.split('VmRSS:')[1].split()[0]) * 1024\n"
        "print(json.dumps({'ready': ready, 'ran': ran, 'rss': rss}))\n"
    )
    begun = time.time()
    told = json.loads(_run(statedir, (sys.executable, "-c", script)))
    return {"ready": told["ready"] - begun, "ran": told["ran"] - begun, "rss": told["rss"]}


def _timed(statedir: Path, command: tuple[str, ...]) -> float:
    script = (
        "import subprocess, time\n"
        f"subprocess.run({[*_RUN, 'job', 'stats']!r}, check=True, stdout=subprocess.DEVNULL)\n"
        "begun = time.time()\n"
        f"subprocess.run({list(command)!r}, check=True, stdout=subprocess.DEVNULL)\n"
        "print(time.time() - begun)\n"
    )
    return float(_run(statedir, (sys.executable, "-c", script)))


def _run(statedir: Path, command: tuple[str, ...]) -> str:
    """What `command` prints, run in an instance that is started for it."""
    return subprocess.run(
        [*_RUN, "start", "--edition", EDITION, "--statedir", str(statedir), *command],
        env=environment(PYTHONDONTWRITEBYTECODE=""),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
