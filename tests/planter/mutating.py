"""Make each row of the state tables wrong: which test notices?

The first run records which tests reach which rows. Those that reach the row run first, those that
noticed another mutant of that row before all, then the quick ones; after a change of the code, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tests.planter import planting, reach, running
from tests.planter.findings import KEPT, ROOT, Findings, code_now, equivalents, records_of, report
from tests.planter.mutants import Mutant, mutants_of

FAMILY: Final = "tables"
PATIENCE_S: Final = 60.0
PATIENCE_FACTOR: Final = 30.0
"""A test may take so many times its recorded duration, and PATIENCE_S more: machines are loaded."""


@dataclass
class TablesPlan(running.Plan):
    """Plants rows of tables; all behaviour tests are to notice."""

    reached: dict[str, reach.Reached]
    only_reaching: frozenset[str]
    """Mutants for which the tests that do not reach them are left out: known equivalents."""

    def plant(self, mutant: Mutant) -> None:
        planting.plant(FAMILY, mutant.name)

    def tests_for(self, mutant: Mutant, tests: Collection[str]) -> list[str]:
        siblings = (each.name for each in self.mutants if each.place == mutant.place)
        first = {test: n for n, test in enumerate(self.findings.catchers(siblings))}

        def rank(test: str) -> tuple[bool, int, float]:
            reached = self.reached[test]
            return (
                mutant.place not in reached.places,
                first.get(test, len(first)),
                reached.seconds,
            )

        chosen = [
            test
            for test in tests
            if (reached := self.reached.get(test)) is not None
            and reached.passed
            and not reached.set_aside
            and (mutant.place in reached.places or mutant.name not in self.only_reaching)
        ]
        return sorted(chosen, key=rank)

    def patience_s(self, test: str) -> float:
        return PATIENCE_S + PATIENCE_FACTOR * self.reached[test].seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("tests", nargs="*", help="test files or directories; all when none is named")
    add("--reaching", action="store_true", help="run only tests that reach the mutant")
    add("--keep-records", action="store_true", help="records of an older code will do")


def run(asked: argparse.Namespace) -> int:
    """Try the mutants that have no finding of this code; print what is known of all."""
    known = equivalents()
    code = code_now()
    chosen = _chosen(asked.only)
    tests: list[str] = asked.tests
    scope = " ".join([*tests, *(["--reaching"] if asked.reaching else [])])
    findings = Findings(KEPT / FAMILY / "findings.jsonl", code, scope)
    if not asked.report:
        _record(tests, code, keep=asked.keep_records)
        plan = TablesPlan(
            mutants=[each for each in chosen if findings.of(each.name) is None],
            findings=findings,
            reached=reach.read(records_of(FAMILY)),
            only_reaching=frozenset(each.name for each in chosen)
            if asked.reaching
            else frozenset(known),
            processes=asked.processes,
            say=lambda text: print(text, flush=True),
        )
        _say_left_out(plan.reached)
        if plan.mutants:
            running.run(plan, tests)
    text, is_well = report(chosen, findings, known)
    print(text)
    return 0 if is_well else 1


def _chosen(only: Sequence[str]) -> list[Mutant]:
    """The mutants of the tables that `only` names; all when it is empty."""
    mutants = list(mutants_of(FAMILY).values())
    groups = {mutant.group for mutant in mutants}
    wanted = set(only) or groups
    if unknown := wanted - groups:
        sys.exit(f"no group {', '.join(unknown)}: expected {', '.join(sorted(groups))}")
    return [mutant for mutant in mutants if mutant.group in wanted]


def _record(tests: list[str], code: str, *, keep: bool) -> None:
    """Record which tests reach what, unless it is recorded for these tests and this code."""
    mark = records_of(FAMILY).with_name("recorded.json")
    if mark.exists():
        recorded = json.loads(mark.read_text(encoding="utf-8"))
        if recorded["tests"] == tests and (keep or recorded["code"] == code):
            return
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "-p", "tests.planter.recording"]
    subprocess.run([*command, "--record", FAMILY, *tests], cwd=ROOT, check=False)
    mark.write_text(json.dumps({"code": code, "tests": tests}), encoding="utf-8")


def _say_left_out(reached: dict[str, reach.Reached]) -> None:
    """What is no behaviour test, and what fails as it is."""
    aside = [test for test, each in reached.items() if each.set_aside]
    failed = [test for test, each in reached.items() if not each.passed and each.seconds]
    print(f"{len(reached)} tests recorded; {len(aside)} look at the mutated places themselves")
    for test in failed:
        print(f"skipped, or fails without a mutant: {test}")
