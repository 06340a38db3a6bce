"""Collects the tests once, then forks a process for each mutant that runs them against it.

The tests that reach the mutant's place run first, those that caught another mutant of that place
before all, then the quick ones; the process stops at the first failure. A failure counts when the
same test passes without the mutant. A test that takes much longer than it did when it was recorded
has failed too: a mutant may keep the program from ending.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pytest

from tests.planter import planting
from tests.planter.findings import Finding, Findings
from tests.planter.mutants import Mutant
from tests.planter.reach import Reached
from tests.planter.repeatable import draw_the_same_examples

PATIENCE_S: Final = 60.0
PATIENCE_FACTOR: Final = 30.0
"""A test may take so many times its recorded duration, and PATIENCE_S more: machines are loaded."""


@dataclass
class Plan:
    """What is to be found out."""

    family: str
    mutants: Sequence[Mutant]
    findings: Findings
    reached: dict[str, Reached]
    only_reaching: frozenset[str]
    """Mutants for which the tests that do not reach them are left out: known equivalents."""
    processes: int
    say: Callable[[str], None]


@dataclass
class Child:
    """A process that tries one mutant, or a test without one."""

    pid: int
    answers: int
    mutant: str
    temporary: str
    test: str = ""
    deadline: float = 0.0
    ran: int = 0
    rest: bytes = b""


class Runner:
    """A pytest plugin whose loop tries mutants instead of running the collected tests."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._items: dict[str, pytest.Item] = {}
        self._sound: dict[str, bool] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        draw_the_same_examples()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        waiting = iter(self._plan.mutants)
        running: dict[int, Child] = {}
        try:
            while True:
                while len(running) < self._plan.processes and (mutant := next(waiting, None)):
                    child = self._try(mutant.name, self.tests_for(mutant))
                    running[child.answers] = child
                if not running:
                    return True
                ready, _, _ = select.select(list(running), [], [], 1.0)
                for child in list(running.values()):
                    finding = self._look(child, child.answers in ready)
                    if finding is not None:
                        del running[child.answers]
                        self._plan.findings.add(finding)
                        self._plan.say(_said(finding))
        finally:
            for child in running.values():
                _end(child)

    def tests_for(self, mutant: Mutant) -> list[str]:
        """The behaviour tests, in the order in which they are tried."""
        plan = self._plan
        siblings = (each.name for each in plan.mutants if each.place == mutant.place)
        first = {test: n for n, test in enumerate(plan.findings.catchers(siblings))}

        def rank(test: str) -> tuple[bool, int, float]:
            reached = plan.reached[test]
            return (
                mutant.place not in reached.places,
                first.get(test, len(first)),
                reached.seconds,
            )

        tests = [
            test
            for test in self._items
            if (reached := plan.reached.get(test)) is not None
            and reached.passed
            and not reached.set_aside
            and (mutant.place in reached.places or mutant.name not in plan.only_reaching)
        ]
        return sorted(tests, key=rank)

    def _try(self, mutant: str, tests: Sequence[str]) -> Child:
        """Start a process that runs `tests` with `mutant` planted; "" is no mutant."""
        answers, ours = os.pipe()
        temporary = tempfile.mkdtemp(prefix="m")
        pid = os.fork()
        if not pid:
            os.close(answers)
            self._in_child(ours, mutant, tests, temporary)
        os.close(ours)
        return Child(pid, answers, mutant, temporary)

    def _in_child(self, ours: int, mutant: str, tests: Sequence[str], temporary: str) -> NoReturn:
        status = 1
        try:
            os.setsid()
            os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = temporary
            tempfile.tempdir = temporary
            if mutant:
                planting.plant(self._plan.family, mutant)
            self._run(ours, [self._items[test] for test in tests])
            status = 0
        except BaseException as error:  # noqa: BLE001  # nothing above this frame may run here
            _tell(ours, "broken", repr(error))
        finally:
            os._exit(status)

    def _run(self, ours: int, items: list[pytest.Item]) -> None:
        """Run `items` until one fails, and tell of each."""
        plugins = items[0].config.pluginmanager if items else None
        if plugins is None:
            return
        if (reporter := plugins.getplugin("terminalreporter")) is not None:
            plugins.unregister(reporter)
        failures: list[str] = []

        class Reports:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.failed:
                    failures.append(_reason(report))

        plugins.register(Reports())
        for item, following in zip(items, [*items[1:], None], strict=True):
            _tell(ours, "test", item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failures:
                _tell(ours, "failed", failures[0])
                return
        _tell(ours, "passed", "")

    def _look(self, child: Child, is_ready: bool) -> Finding | None:
        """What was found, when the process has ended or is past its time."""
        why: str | None = None
        for kind, value in _heard(child) if is_ready else ():
            match kind:
                case "test":
                    child.test = value
                    child.ran += 1
                    usual = self._plan.reached[value].seconds if value in self._plan.reached else 0
                    child.deadline = time.monotonic() + PATIENCE_S + PATIENCE_FACTOR * usual
                case "end":
                    why = why or "the process ended"
                case _:
                    why = value or "-"
        if why is None and child.deadline and time.monotonic() > child.deadline:
            why = "does not end"
        if why is None:
            return None
        seconds = _end(child)
        if why == "-":
            return Finding(child.mutant, "", "", child.ran, seconds)
        if not child.mutant or self._passes_alone(child.test):
            return Finding(child.mutant, child.test, why, child.ran, seconds)
        self._plan.say(f"{child.test} fails without a mutant too: {why}")
        self._plan.reached[child.test].passed = False
        mutant = next(each for each in self._plan.mutants if each.name == child.mutant)
        return self._alone(child.mutant, self.tests_for(mutant))

    def _passes_alone(self, test: str) -> bool:
        """Whether `test` passes without a mutant; asked once for each."""
        if test not in self._sound:
            self._sound[test] = not self._alone("", [test]).by
        return self._sound[test]

    def _alone(self, mutant: str, tests: Sequence[str]) -> Finding:
        """Try `tests` now, and wait."""
        child = self._try(mutant, tests)
        while True:
            ready, _, _ = select.select([child.answers], [], [], 1.0)
            if (finding := self._look(child, bool(ready))) is not None:
                return finding


def _reason(report: pytest.TestReport) -> str:
    """The last line of a failure that says what was wrong."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    return f"{report.when}: {text.strip().splitlines()[0] if text.strip() else ''}"[:200]


def _tell(ours: int, kind: str, value: str) -> None:
    os.write(ours, json.dumps([kind, value]).encode() + b"\n")


def _heard(child: Child) -> Iterator[Any]:
    """What a process has told; "end" when it tells no more."""
    data = os.read(child.answers, 65536)
    if not data:
        yield "end", ""
        return
    *lines, child.rest = (child.rest + data).split(b"\n")
    for line in lines:
        yield json.loads(line)


def _end(child: Child) -> float:
    """Kill the process and those it started, as far as they are left; its processor time."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    _, _, used = os.wait4(child.pid, 0)
    os.close(child.answers)
    shutil.rmtree(child.temporary, ignore_errors=True)
    return round(used.ru_utime + used.ru_stime, 2)


def _said(finding: Finding) -> str:
    said = f"noticed by {finding.by}: {finding.why}" if finding.by else "NOT NOTICED"
    return f"{finding.mutant}: {said} ({finding.ran} tests, {finding.seconds} s)"


def run(plan: Plan, arguments: Sequence[str]) -> int:
    """Try the mutants of `plan` with the tests that `arguments` name to pytest."""
    sys.stdout.flush()
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main([*options, *arguments], plugins=[Runner(plan)])
