"""Judging the instances that a test opens by the clauses of the RFCs.

Each is watched by a monitor of its own, as it runs. What is owed at the end is not asked for: a
test may end in the middle of things.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from flux_trio.conformance import Clause, Judgement, Monitor, Violation, load_clauses
from flux_trio.conformance.rules import ALL_RULES
from flux_trio.instance import more_sinks
from flux_trio.trace import Record, Sink
from flux_trio.views import verdict_text


class ClausesBroken(AssertionError):
    """An instance, or whoever spoke to it, broke clauses; the text shows the messages."""

    def __init__(self, violations: list[Violation], text: str) -> None:
        super().__init__(text)
        self.violations = violations


class _Watcher:
    """A monitor, and the records that may have to be shown."""

    def __init__(self) -> None:
        self._monitor = Monitor(ALL_RULES, _clauses())
        self._records: list[Record] = []

    def take(self, record: Record) -> None:
        """The next record (a Sink)."""
        self._records.append(record)
        self._monitor.observe(record)

    def broken(self) -> frozenset[str]:
        """The clauses that were broken so far."""
        return frozenset(each.clause for each in self._monitor.violations)

    def found(self, breaking: Collection[str]) -> list[Violation]:
        """Violations of clauses that are not in `breaking`."""
        return [each for each in self._monitor.violations if each.clause not in breaking]

    def show(self, violations: list[Violation]) -> str:
        """Their text, with the messages."""
        records = {record.n: record for record in self._records}
        verdicts = self._monitor.verdicts()
        shown = Judgement("watched", len(records), verdicts, tuple(violations), {})
        return verdict_text(shown, records)


@contextmanager
def watched(breaking: Collection[str] = ()) -> Iterator[Callable[[], frozenset[str]]]:
    """Judge every instance that is opened in the block (in this context, and Trio runs in it).

    Gives a function that tells which clauses were broken so far, on purpose or not.

    `breaking` are clauses that are broken on purpose. At the end of a block that has not failed
    by itself, raises ClausesBroken if others were.
    """
    watchers: list[_Watcher] = []

    def make_sink() -> Sink:
        watchers.append(_Watcher())
        return watchers[-1].take

    token = more_sinks.set((*more_sinks.get(), make_sink))
    try:
        yield lambda: frozenset[str]().union(*(watcher.broken() for watcher in watchers))
    finally:
        more_sinks.reset(token)
    for watcher in watchers:
        violations = watcher.found(breaking)
        if violations:
            raise ClausesBroken(violations, watcher.show(violations))


@functools.cache
def _clauses() -> dict[str, Clause]:
    return load_clauses()
