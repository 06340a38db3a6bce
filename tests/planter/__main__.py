"""`python -m tests.planter FAMILY`: try the mutants of a family, and say which are not noticed.

The first run records which tests reach which places. Findings are kept in .mutants/; a run that was
stopped goes on, and after a change of the code the tests that caught a mutant before are tried
first.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from tests.planter import reach, running
from tests.planter.findings import KEPT, ROOT, Findings, code_now, equivalents, records_of, report
from tests.planter.mutants import FAMILIES, Mutant, mutants_of


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    begin = time.monotonic()
    known = equivalents()
    code = code_now()
    chosen = _chosen(asked.family, asked.only)
    tests: list[str] = asked.tests
    scope = " ".join([*tests, *(["--reaching"] if asked.reaching else [])])
    findings = Findings(KEPT / asked.family / "findings.jsonl", code, scope)
    if not asked.report:
        _record(asked.family, tests, code, keep=asked.keep_records)
        plan = running.Plan(
            family=asked.family,
            mutants=[each for each in chosen if findings.of(each.name) is None],
            findings=findings,
            reached=reach.read(records_of(asked.family)),
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
    if not asked.report:
        print(f"this run: {(time.monotonic() - begin) / 60:.1f} min, {_cpu_min():.1f} min of CPU")
    return 0 if is_well else 1


def _cpu_min() -> float:
    """Processor time of this process and of those that it has waited for, in minutes."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) / 60


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.planter", description=__doc__)
    add = parser.add_argument
    add("family", choices=FAMILIES)
    add("tests", nargs="*", help="test files or directories; all when none is named")
    add("--only", default="", metavar="GROUP,...", help="mutants of these groups, as ALLOC")
    add("--processes", type=int, default=2)
    add("--reaching", action="store_true", help="run only tests that reach the mutant")
    add("--keep-records", action="store_true", help="records of an older code will do")
    add("--report", action="store_true", help="run nothing, report what was found")
    return parser


def _chosen(family: str, only: str) -> list[Mutant]:
    """The mutants of the groups that `only` names, separated by commas; all when it is empty."""
    mutants = list(mutants_of(family).values())
    groups = {mutant.group for mutant in mutants}
    wanted = set(only.split(",")) if only else groups
    if unknown := wanted - groups:
        sys.exit(f"no group {', '.join(unknown)}: expected {', '.join(sorted(groups))}")
    return [mutant for mutant in mutants if mutant.group in wanted]


def _record(family: str, tests: list[str], code: str, *, keep: bool) -> None:
    """Record which tests reach what, unless it is recorded for these tests and this code."""
    mark = records_of(family).with_name("recorded.json")
    if mark.exists():
        recorded = json.loads(mark.read_text(encoding="utf-8"))
        if recorded["tests"] == tests and (keep or recorded["code"] == code):
            return
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "-p", "tests.planter.recording"]
    subprocess.run([*command, "--record", family, *tests], cwd=ROOT, check=False)
    mark.write_text(json.dumps({"code": code, "tests": tests}), encoding="utf-8")


def _say_left_out(reached: dict[str, reach.Reached]) -> None:
    """What is no behaviour test, and what fails as it is."""
    aside = [test for test, each in reached.items() if each.set_aside]
    failed = [test for test, each in reached.items() if not each.passed and each.seconds]
    print(f"{len(reached)} tests recorded; {len(aside)} look at the mutated places themselves")
    for test in failed:
        print(f"skipped, or fails without a mutant: {test}")


if __name__ == "__main__":
    sys.exit(main())
