"""Collects the tests once, then forks a process for each mutant that runs them against it.

What a `Plan` says is run, in its order; the process stops at the first failure. A failure counts if
the plan says so, and the same test passes without the mutant. A test that takes too long has failed
too: a mutant may keep the program from ending.
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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pytest

from tests.planter.findings import Finding, Findings
from tests.planter.mutants import Mutant
from tests.planter.repeatable import draw_the_same_examples

PATIENCE_S: Final = 300.0
"""A test that takes longer does not end: machines are loaded."""


class Trouble(Exception):
    """A test failed otherwise than by raising something."""


@dataclass
class Plan:
    """What is to be found out."""

    mutants: Sequence[Mutant]
    findings: Findings
    processes: int
    say: Callable[[str], None]

    def plant(self, mutant: Mutant) -> None:
        """Plant a mutant in this process."""
        mutant.plant()

    def tests_for(self, mutant: Mutant, tests: Collection[str]) -> list[str]:
        """Those of the collected `tests` that are to notice, in the order in which they are run."""
        raise NotImplementedError

    def patience_s(self, _test: str) -> float:
        """How long a test may take."""
        return PATIENCE_S

    def judge(self, _mutant: Mutant, _phase: str, error: BaseException) -> tuple[bool, str]:
        """Whether failing with `error` in this phase counts, and what is said of it."""
        return True, said_by(error)

    def said(self, finding: Finding) -> str:
        """What is said of a finding."""
        said = f"noticed by {finding.by}: {finding.why}" if finding.by else "NOT NOTICED"
        return f"{finding.mutant}: {said} ({finding.ran} tests, {finding.seconds} s)"


@dataclass
class Child:
    """A process that tries one mutant, or a test without one."""

    pid: int
    answers: int
    mutant: Mutant | None
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
                    child = self._try(mutant, self._tests_for(mutant))
                    running[child.answers] = child
                if not running:
                    return True
                ready, _, _ = select.select(list(running), [], [], 1.0)
                for child in list(running.values()):
                    finding = self._look(child, child.answers in ready)
                    if finding is not None:
                        del running[child.answers]
                        self._plan.findings.add(finding)
                        self._plan.say(self._plan.said(finding))
        finally:
            for child in running.values():
                _end(child)

    def _tests_for(self, mutant: Mutant) -> list[str]:
        """The tests of the plan that are not known to fail without a mutant."""
        tests = self._plan.tests_for(mutant, self._items)
        return [each for each in tests if self._sound.get(each, True)]

    def _try(self, mutant: Mutant | None, tests: Sequence[str]) -> Child:
        """Start a process that runs `tests` with `mutant` planted, if there is one."""
        answers, ours = os.pipe()
        temporary = tempfile.mkdtemp(prefix="m")
        pid = os.fork()
        if not pid:
            os.close(answers)
            self._in_child(ours, mutant, tests, temporary)
        os.close(ours)
        return Child(pid, answers, mutant, temporary)

    def _in_child(
        self, ours: int, mutant: Mutant | None, tests: Sequence[str], temporary: str
    ) -> NoReturn:
        status = 1
        try:
            os.setsid()
            os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = temporary
            tempfile.tempdir = temporary
            if mutant is not None:
                self._plan.plant(mutant)
            found = self._run(ours, mutant, [self._items[test] for test in tests])
            _tell(ours, "found", found)
            status = 0
        except BaseException as error:  # noqa: BLE001  # nothing above this frame may run here
            _tell(ours, "broken", said_by(error))
        finally:
            os._exit(status)

    def _run(self, ours: int, mutant: Mutant | None, items: list[pytest.Item]) -> tuple[bool, str]:
        """Run `items` until one fails, and tell of each; whether that is noticed, and why."""
        if not items:
            return False, "there is no test that passes with nothing planted"
        plugins = items[0].config.pluginmanager
        if (reporter := plugins.getplugin("terminalreporter")) is not None:
            plugins.unregister(reporter)
        failures: list[tuple[str, BaseException]] = []

        class Failures:
            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Any:
                report = yield
                if report.failed:
                    error = call.excinfo.value if call.excinfo else Trouble(report.longrepr)
                    failures.append((call.when, error))
                return report

        plugins.register(Failures())
        for item, following in zip(items, [*items[1:], None], strict=True):
            _tell(ours, "test", item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failures:
                return self._judge(mutant, *failures[0])
        return False, ""

    def _judge(self, mutant: Mutant | None, phase: str, error: BaseException) -> tuple[bool, str]:
        if mutant is None:
            return True, said_by(error)
        return self._plan.judge(mutant, phase, error)

    def _look(self, child: Child, is_ready: bool) -> Finding | None:
        """What was found, when the process has ended or is past its time."""
        found: tuple[bool, str] | None = None
        for kind, value in _heard(child) if is_ready else ():
            match kind:
                case "test":
                    child.test = value
                    child.ran += 1
                    child.deadline = time.monotonic() + self._plan.patience_s(value)
                case "found":
                    found = value
                case "broken" if not child.test:
                    found = False, f"it cannot be planted: {value}"
                case "broken" | "end":
                    why = value or "the process ended"
                    found = self._judge(child.mutant, "call", Trouble(why))
        if found is None and child.deadline and time.monotonic() > child.deadline:
            found = self._judge(child.mutant, "call", Trouble("does not end"))
        if found is None:
            return None
        (is_noticed, why), seconds = found, _end(child)
        mutant, by = child.mutant, child.test if found[0] else ""
        if mutant is None or not is_noticed or self._passes_alone(by):
            return Finding(mutant.name if mutant else "", by, why, child.ran, seconds)
        self._plan.say(f"{by} fails without a mutant too: {why}")
        return self._alone(mutant, self._tests_for(mutant))

    def _passes_alone(self, test: str) -> bool:
        """Whether `test` passes without a mutant; asked once for each."""
        if test not in self._sound:
            self._sound[test] = not self._alone(None, [test]).by
        return self._sound[test]

    def _alone(self, mutant: Mutant | None, tests: Sequence[str]) -> Finding:
        """Try `tests` now, and wait."""
        child = self._try(mutant, tests)
        while True:
            ready, _, _ = select.select([child.answers], [], [], 1.0)
            if (finding := self._look(child, bool(ready))) is not None:
                return finding


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that are no group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from causes_of(each)
    else:
        yield error


def said_by(error: BaseException) -> str:
    """The first line of each cause."""
    return " / ".join(_first_line(each) for each in causes_of(error))[:300]


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


def _tell(ours: int, kind: str, value: Any) -> None:
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


def run(plan: Plan, arguments: Sequence[str]) -> int:
    """Try the mutants of `plan` with the tests that `arguments` name to pytest."""
    sys.stdout.flush()
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main([*options, *arguments], plugins=[Runner(plan)])
