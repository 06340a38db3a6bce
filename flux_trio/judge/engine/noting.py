"""A monitor that tells by which clauses it judged each record, for those who read the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from flux_trio.judge.clauses.registry import Clause
from flux_trio.judge.engine.compiled import Found
from flux_trio.judge.engine.monitor import Monitor
from flux_trio.judge.engine.plans import Plan
from flux_trio.judge.engine.rule import Rule
from flux_trio.trace import Record

Note: TypeAlias = Callable[[Record, frozenset[str]], object]
"""Takes a record, and the clauses that it kept or broke."""


class NotingMonitor(Monitor):
    """A monitor that calls `note` with each record."""

    _is_noting = True

    def __init__(
        self,
        rules: Iterable[Rule],
        clauses: Mapping[str, Clause],
        note: Note,
        *,
        is_routed: bool = False,
    ) -> None:
        super().__init__(rules, clauses, is_routed=is_routed)
        self._note = note
        self._kept_now = set()

    def _note_clauses(self, record: Record, plan: Plan, broken: Found) -> None:
        kept = plan.kept | self._kept_now
        self._kept_now.clear()
        self._kept |= kept
        self._note(record, kept | {rule.clause for rule, _ in broken})
