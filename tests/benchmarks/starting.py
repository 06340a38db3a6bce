"""Seconds from `flux-trio start` until the first real job has finished."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from flux_trio.formats import parse_eventlog
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from tests.benchmarks.measure import EDITION, Figure, rounds
from tests.support.instance import environment

ROUNDS = rounds(5)


def first_job() -> Iterator[Figure]:
    """The process of the instance and that of the command are started in that time."""
    yield Figure(round(min(_once() for _ in range(ROUNDS)), 3), "s", 1)


def _once() -> float:
    with tempfile.TemporaryDirectory() as directory:
        started = time.time()
        subprocess.run(
            [sys.executable, "-m", "flux_trio", "start", "--edition", EDITION,
             "--statedir", directory,
             sys.executable, "-m", "flux_trio", "run", "true"],
            env=environment(PYTHONDONTWRITEBYTECODE=""),  # an installed program has its bytecode
            check=True,
        )  # fmt: skip
        return _finished_at(Path(directory)) - started


def _finished_at(statedir: Path) -> float:
    store = SqliteStore(statedir / STATE_FILE, "normal")
    try:
        keys = [key for key in store.dir("job") if key.endswith(".eventlog")]
        text = store.lookup(keys)[0]
        assert isinstance(text, str)
        events = parse_eventlog(text)
        return next(event.timestamp for event in events if event.name == "finish")
    finally:
        store.close()
