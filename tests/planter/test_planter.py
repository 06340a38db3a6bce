"""The planter plants mutants, and knows which tests notice them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planter import planting
from tests.planter.findings import ROOT

CORE_IS_REPLACED = """
from flux_trio.cores.sched.core import SchedCore
print(hasattr(SchedCore.turn, "__wrapped__"))
"""


@pytest.mark.real
def test_cores_are_replaced_in_processes_that_a_reborn_test_starts() -> None:
    paths = os.pathsep.join([planting.SITE, str(ROOT)])
    run = subprocess.run(
        [sys.executable, "-c", CORE_IS_REPLACED],
        env={**os.environ, "PYTHONPATH": paths, planting.REBORN: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "True\n"


TOY_TESTS = """
from pathlib import Path

from flux_trio.protocols import QUEUE, QueueEvent


def test_quick() -> None:
    assert not Path(__file__).with_name("elsewhere").exists()


def test_stopped_queue_is_not_started() -> None:
    assert not QUEUE.step(QUEUE.initial, QueueEvent.STOP).is_started
"""

RUN_TOYS = """
import sys
from pathlib import Path

from tests.planter import reach, running
from tests.planter.findings import Findings
from tests.planter.mutants import mutants_of
from tests.planter.mutating import TablesPlan

NAMES = [
    "QUEUE ENABLED_STARTED STOP -> ENABLED_STARTED",
    "QUEUE ENABLED_STARTED STOP deleted",
    "QUEUE ENABLED_STARTED STOP -> DISABLED_STOPPED",
]
toys = "test_toys.py::"
plan = TablesPlan(
    mutants=[mutants_of("tables")[name] for name in NAMES],
    findings=Findings(Path("findings.jsonl"), "now"),
    reached={
        toys + "test_quick": reach.Reached(0.1, True),
        toys + "test_stopped_queue_is_not_started": reach.Reached(
            0.2, True, {"QUEUE ENABLED_STARTED STOP"}
        ),
    },
    only_reaching=frozenset(),
    processes=2,
    say=print,
)
sys.exit(running.run(plan, ["test_toys.py"]))
"""


@pytest.mark.real
def test_mutant_is_noticed_by_the_test_that_reaches_it_and_an_equivalent_one_by_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_toys.py").write_text(TOY_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = subprocess.run(
        [sys.executable, "-c", RUN_TOYS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    kept = (tmp_path / "findings.jsonl").read_text() if not run.returncode else run.stderr
    by_mutant = {each["mutant"]: each for each in map(json.loads, kept.splitlines())}
    catcher = "test_toys.py::test_stopped_queue_is_not_started"
    assert {name: (each["by"], each["ran"]) for name, each in by_mutant.items()} == {
        "QUEUE ENABLED_STARTED STOP -> ENABLED_STARTED": (catcher, 1),
        "QUEUE ENABLED_STARTED STOP deleted": (catcher, 1),
        "QUEUE ENABLED_STARTED STOP -> DISABLED_STOPPED": ("", 2),
    }
