"""Planted violations: for each rule, a change of a clean trace that breaks it.

Those of a rule file are in the file of the same name, or of its subject, in
tests/judge/planted, which has `PLANTED = Planted()` and decorated functions from trace to
trace.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flux_trio.judge import Monitor
from flux_trio.judge.rules import ALL_RULES
from flux_trio.trace import Record
from tests.support.judged import CLAUSES, REMOVED, Trace, edit_payload, judge
from tests.support.scenarios import trace_of

Change = Callable[[Trace], Trace]


@dataclass(frozen=True)
class Violation:
    """A change of the trace of `scenario` after which `clause` is broken.

    One that is `cut` ends in the midst of things, so that nobody owes anything.
    """

    name: str
    clause: str
    scenario: str
    change: Change
    cut: bool = False

    def is_found(self) -> bool:
        """Whether the rules find the clause broken; what comes after that is not judged."""
        monitor = Monitor(ALL_RULES, CLAUSES, is_simulated=True)
        for record in self.change(trace_of(self.scenario)):
            nbefore = len(monitor.unexplained)
            found = [*monitor.observe(record), *monitor.unexplained[nbefore:]]
            if any(each.clause == self.clause for each in found):
                return True
        due = [] if self.cut else [*monitor.finish(), *monitor.unexplained]
        return any(each.clause == self.clause for each in due)

    def fires(self) -> tuple[str, ...]:
        """The clauses that the rules find broken, and what is unexplained."""
        trace = self.change(trace_of(self.scenario))
        monitor = judge(trace, ALL_RULES, cut=self.cut)
        found = (*monitor.violations, *monitor.unexplained)
        return tuple(sorted({violation.clause for violation in found}))


class Planted:
    """The violations of one file, registered as they are written."""

    def __init__(self) -> None:
        self.all: list[Violation] = []

    def violation(
        self, clause: str, scenario: str, *, cut: bool = False
    ) -> Callable[[Change], Change]:
        """Register the decorated function: it changes the trace of `scenario`."""

        def register(change: Change) -> Change:
            self.all.append(Violation(change.__name__, clause, scenario, change, cut))
            return change

        return register

    def bad_key(
        self,
        clause: str,
        scenario: str,
        where: Callable[[Trace], Record],
        key: str,
        values: Iterable[Any] = (REMOVED,),
        *,
        last: bool = False,
    ) -> None:
        """One violation a value: the message that `where` finds has it for `key` instead.

        With `last` the trace ends as it is sent, so that nobody is seen to act on it.
        """
        for value in values:
            name = f"{clause}: no {key}" if value is REMOVED else f"{clause}: {key} {value!r}"
            change = functools.partial(_with_key, where, key, value, last)
            self.all.append(Violation(name, clause, scenario, change, last))


def _with_key(
    where: Callable[[Trace], Record], key: str, value: Any, last: bool, trace: Trace
) -> Trace:
    record = where(trace)
    changed = edit_payload(trace, record, **{key: value})
    return changed[: record.n] if last else changed


@functools.cache
def all_planted() -> dict[str, Violation]:
    """Every violation of every file, by "file: name"."""
    package = importlib.import_module("tests.judge.planted")
    found: dict[str, Violation] = {}
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        for violation in importlib.import_module(f"{package.__name__}.{module.name}").PLANTED.all:
            name = f"{module.name}: {violation.name}"
            assert name not in found, f"two violations are named {name}"
            found[name] = violation
    return found


@functools.cache
def fires(name: str) -> tuple[str, ...]:
    """The clauses that break under the violation of that name."""
    return all_planted()[name].fires()
