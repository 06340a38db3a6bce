"""The planter itself: what a mutant is, who notices it, how a run is resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from enum import auto
from pathlib import Path

import pytest

from flux_trio.protocols import InvalidTransition, Table
from flux_trio.protocols.table import Member
from tests.planter import findings, planting, reach
from tests.planter.findings import ROOT, Finding, Findings
from tests.planter.mutants import FAMILIES, Mutant, mutants_of
from tests.planter.tables import TABLES, table_mutants


class Light(Member):
    RED = auto()
    GREEN = auto()
    DARK = auto()


class Button(Member):
    PRESS = auto()
    BREAK = auto()


def lights() -> Table[Light, Button]:
    """A table of three rows."""
    rows = {
        Light.RED: {Button.PRESS: Light.GREEN, Button.BREAK: Light.DARK},
        Light.GREEN: {Button.PRESS: Light.RED},
        Light.DARK: {},
    }
    return Table("light", Light.RED, rows)


def mutant_of(table: Table[Light, Button], name: str) -> Mutant:
    (mutant,) = (each for each in table_mutants("LIGHT", table) if each.name == name)
    return mutant


def test_each_row_is_deleted_and_led_to_every_other_state() -> None:
    assert [mutant.name for mutant in table_mutants("LIGHT", lights())] == [
        "LIGHT RED PRESS deleted",
        "LIGHT RED PRESS -> RED",
        "LIGHT RED PRESS -> DARK",
        "LIGHT RED BREAK deleted",
        "LIGHT RED BREAK -> RED",
        "LIGHT RED BREAK -> GREEN",
        "LIGHT GREEN PRESS deleted",
        "LIGHT GREEN PRESS -> GREEN",
        "LIGHT GREEN PRESS -> DARK",
    ]


def test_planting_changes_one_row() -> None:
    table = lights()
    mutant_of(table, "LIGHT RED PRESS -> DARK").plant()
    assert table.step(Light.RED, Button.PRESS) is Light.DARK
    assert table.step(Light.RED, Button.BREAK) is Light.DARK
    assert table.step(Light.GREEN, Button.PRESS) is Light.RED


def test_deleted_row_is_an_invalid_transition() -> None:
    table = lights()
    mutant_of(table, "LIGHT GREEN PRESS deleted").plant()
    with pytest.raises(InvalidTransition, match="expected state RED"):
        table.step(Light.GREEN, Button.PRESS)
    assert table.step(Light.RED, Button.PRESS) is Light.GREEN


@pytest.mark.parametrize("family", FAMILIES)
def test_mutants_have_names_of_their_own(family: str) -> None:
    assert all(name == mutant.name for name, mutant in mutants_of(family).items())


def test_every_table_of_the_program_is_mutated() -> None:
    assert {mutant.group for mutant in mutants_of("tables").values()} == set(TABLES)
    assert {"ALLOC", "LINK", "ACQUIRE", "EXECUTION", "JOB", "QUEUE"} <= set(TABLES)


def test_mutants_listed_as_equivalent_exist() -> None:
    known = {name for family in FAMILIES for name in mutants_of(family)}
    assert set(findings.equivalents()) <= known
    assert all(findings.equivalents().values())


PRINTS_ROW = """
from flux_trio.protocols import QUEUE, QueueEvent
print(QUEUE.step(QUEUE.initial, QueueEvent.STOP).name)
"""


def in_another_process(program: str, **environment: str) -> str:
    """What `program` prints in a process that starts as those of a planted test do."""
    paths = [planting.SITE, str(ROOT)]
    command = [sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


@pytest.mark.real
def test_mutant_is_planted_in_processes_that_the_test_starts() -> None:
    planted = {planting.PLANTED: "tables QUEUE ENABLED_STARTED STOP -> ENABLED_STARTED"}
    assert in_another_process(PRINTS_ROW) == "ENABLED_STOPPED\n"
    assert in_another_process(PRINTS_ROW, **planted) == "ENABLED_STARTED\n"


CORE_IS_REPLACED = """
from flux_trio.cores.sched.core import SchedCore
print(hasattr(SchedCore.turn, "__wrapped__"))
"""


@pytest.mark.real
def test_cores_are_replaced_in_processes_that_a_reborn_test_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(planting.REBORN, raising=False)
    assert in_another_process(CORE_IS_REPLACED) == "False\n"
    assert in_another_process(CORE_IS_REPLACED, **{planting.REBORN: "1"}) == "True\n"


@pytest.mark.real
def test_what_other_processes_reach_counts_for_the_test_that_started_them(tmp_path: Path) -> None:
    env = {planting.RECORDS: f"tables {tmp_path}", "PYTEST_CURRENT_TEST": "a.py::test_b (call)"}
    assert in_another_process(PRINTS_ROW, **env) == "ENABLED_STOPPED\n"
    assert reach.read(tmp_path)["a.py::test_b"].places == {"QUEUE ENABLED_STARTED STOP"}


def test_what_tests_reach_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = reach.Writer(tmp_path)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "a.py::test_b[x (y)] (call)")
    writer.note("LIGHT RED PRESS")
    writer.note("LIGHT RED PRESS")
    writer.set_aside("reads rows")
    writer.ended("a.py::test_b[x (y)]", 0.5, passed=True)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    writer.note("LIGHT GREEN PRESS")
    assert reach.read(tmp_path) == {
        "a.py::test_b[x (y)]": reach.Reached(0.5, True, {"LIGHT RED PRESS"}, "reads rows"),
        reach.NO_TEST: reach.Reached(places={"LIGHT GREEN PRESS"}),
    }


def found(mutant: str, by: str) -> Finding:
    return Finding(mutant, by, "because" if by else "", 1, 0.1)


def test_findings_are_kept_and_hold_for_one_code(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "findings.jsonl"
    Findings(path, "old").add(found("A", "test_a"))
    Findings(path, "now").add(found("B", ""))
    kept = Findings(path, "now")
    assert kept.of("A") is None
    assert kept.of("B") == replace(found("B", ""), code="now")
    assert kept.catchers(["A", "B", "C"]) == ["test_a"]


def test_mutant_that_some_tests_did_not_notice_may_be_noticed_by_others(tmp_path: Path) -> None:
    path = tmp_path / "findings.jsonl"
    some_tests = Findings(path, "now", "tests/cores")
    some_tests.add(found("A", "test_a"))
    some_tests.add(found("B", ""))
    every_test = Findings(path, "now")
    assert every_test.of("B") is None
    assert every_test.of("A") == replace(found("A", "test_a"), code="now", scope="tests/cores")


def test_finding_that_was_cut_off_as_the_run_was_stopped_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "findings.jsonl"
    Findings(path, "").add(found("A", "test_a"))
    path.write_text(path.read_text() + '{"mutant": "B", "b')
    kept = Findings(path, "")
    assert (kept.of("A"), kept.of("B")) == (found("A", "test_a"), None)
    kept.add(found("B", "test_b"))
    assert Findings(path, "").of("B") == found("B", "test_b")


def some(*names: str) -> list[Mutant]:
    return [Mutant(name, name, "LIGHT", lambda: None) for name in names]


def reported(tmp_path: Path, known: dict[str, str], *kept: Finding) -> tuple[str, bool]:
    all_kept = Findings(tmp_path / "findings.jsonl", "now")
    for finding in kept:
        all_kept.add(finding)
    return findings.report(some("A", "B"), all_kept, known)


def test_report_counts_and_names_what_is_not_noticed(tmp_path: Path) -> None:
    text, is_well = reported(tmp_path, {}, found("A", "test_a"), found("B", ""))
    assert not is_well
    assert text.splitlines() == [
        "B: not noticed by 1 tests",
        "LIGHT: 1 of 2 noticed",
        "all: 1 of 2 noticed",
    ]


def test_mutant_listed_as_equivalent_may_not_be_noticed(tmp_path: Path) -> None:
    text, is_well = reported(tmp_path, {"A": "why"}, found("A", "test_a"), found("B", "test_b"))
    assert not is_well
    assert "A: listed as equivalent, noticed by test_a" in text


def test_report_fails_below_what_has_to_be_noticed(tmp_path: Path) -> None:
    text, is_well = reported(tmp_path, {"B": "why"}, found("A", "test_a"), found("B", ""))
    assert not is_well
    assert "LIGHT: 1 of 2 noticed, 1 equivalent" in text


def test_mutants_that_were_not_run_are_counted(tmp_path: Path) -> None:
    assert reported(tmp_path, {}, found("A", "test_a")) == (
        "LIGHT: 1 of 2 noticed, 1 not run\nall: 1 of 2 noticed, 1 not run",
        True,
    )


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

NAMES = [
    "QUEUE ENABLED_STARTED STOP -> ENABLED_STARTED",
    "QUEUE ENABLED_STARTED STOP deleted",
    "QUEUE ENABLED_STARTED STOP -> DISABLED_STOPPED",
]
toys = "test_toys.py::"
plan = running.Plan(
    family="tables",
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
