"""The rules: one file per topic of an RFC, one rule per clause; and invariants without a clause.

Each file of this package is a rule file: its `RULES` are part of `ALL_RULES`. Rules read only the
trace and the facts, not how this project's own services decide.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from flux_trio.judge.engine.rule import Rule


def _collect() -> tuple[Rule, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    files = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(rule for file in files for rule in file.RULES.all)


_COLLECTED: Final = _collect()

ALL_RULES: Final = tuple(r for r in _COLLECTED if not r.is_current and not r.is_routed)
"""Every rule of the classic edition, in the order of files and of clauses in them."""

ROUTED_RULES: Final = tuple(rule for rule in _COLLECTED if rule.is_routed)
"""Rules for the traces of a router, of either edition, beside the others."""

_REREAD: Final = {rule.clause for rule in _COLLECTED if rule.is_current}

CURRENT_RULES: Final = tuple(
    rule
    for rule in _COLLECTED
    if rule.is_current or (rule.clause not in _REREAD and not rule.is_routed)
)
"""Every rule for traces of the current edition. A clause that this edition states otherwise has a
rule of its own here, or is left out (`judge_trace`)."""

NEED_THE_BEGINNING: Final = frozenset(
    {
        "27.background.2",  # who said sched-hello and sched-ready
        "27.hello.1",
        "27.hello.14",
        "27.ready.2",
        "28.impl.1",  # who acquires resources
        "28.impl.2",
        "32.hello.1",  # who said exec-hello
        "32.hello.5",
        "32.impl.8",
        "32.start.2",
        "6.matchtag.1",  # which requests are open
        "6.response.1",
        "invariant.nobody-stuck",  # all of these
    }
)
"""Clauses whose rules take it that the trace has all messages since the instance started."""

LATE_RULES: Final = tuple(rule for rule in ALL_RULES if rule.clause not in NEED_THE_BEGINNING)
"""Rules of the classic edition for a trace that begins while the instance runs."""

__all__ = ["ALL_RULES", "CURRENT_RULES", "LATE_RULES", "NEED_THE_BEGINNING", "ROUTED_RULES"]
