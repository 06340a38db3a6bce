"""Whatever a seed draws, every property holds: the clauses, and that all comes to rest."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from flux_trio.lab import draw_plan, run_plan
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.stories.running import play
from flux_trio.trace import Record, record_to_json
from tests.support import reborn

SEEDS = 30 if reborn.is_on else 180
AT_ONCE = 90  # the others are for `make gate`
IN_MEMORY = Path("/dev/shm")
IN_ONE = 15  # seeds of one test
SAME_SEEDS = {"cores": 20, "stack": 5}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.gate] if first >= AT_ONCE else [])
        for first in range(0, SEEDS, IN_ONE)
    ],
)
def test_every_property_holds(first: int) -> None:
    """Each third seed is that of an instance in the current edition."""
    problems = {}
    for seed in range(first, first + IN_ONE):
        edition = "classic" if seed % 3 else "current"
        plan = msgspec.structs.replace(draw_plan(seed), edition=edition)
        if (outcome := run_plan(plan, properties=OURS)).problems:
            problems[seed] = outcome.problems
    assert problems == {}


def digest(seeds: int, depth: str, store: str) -> str:
    """Of the traces of some seeds, byte for byte."""
    traces = hashlib.sha256()

    def take(record: Record) -> None:
        traces.update(record_to_json(record))

    for seed in range(seeds):
        drawn = draw_plan(seed, njobs=2)
        play(msgspec.structs.replace(drawn, depth=depth, store=store), [take])
    return traces.hexdigest()


@pytest.mark.parametrize(("depth", "seeds"), SAME_SEEDS.items())
def test_same_seed_gives_the_same_trace_in_another_process_and_with_another_store(
    depth: str, seeds: int
) -> None:
    """In another process, with another PYTHONHASHSEED, and with the store in a file of SQLite."""
    called = f"digest({seeds}, {depth!r}, 'sqlite')"
    script = f"from tests.lab.test_seeds import digest; print({called})"
    command = [sys.executable, "-c", script]
    env = os.environ | {"PYTHONHASHSEED": "42"}
    if IN_MEMORY.is_dir():  # the files are small and short-lived, and a disk would take its time
        env["TMPDIR"] = str(IN_MEMORY)
    other = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest(seeds, depth, "memory")
