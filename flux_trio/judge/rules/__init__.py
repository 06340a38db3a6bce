"""The rules: one file per topic of an RFC, one rule per clause; and invariants without a clause.

Each file of this package is a rule file: its `RULES` are part of `ALL_RULES`. Rules read only the
trace and the facts, not how this project's own services decide.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from flux_trio.judge.clauses.registry import Clause
from flux_trio.judge.engine.rule import INSTANCE, Rule
from flux_trio.judge.judgement import applicable
from flux_trio.trace import Record, Shown

CLASSIC: Final = "classic"
_SCHEDULER: Final = "scheduler"
_EXEC: Final = "exec"
NEED_THE_BEGINNING: Final = {
    "27.background.1": _SCHEDULER,  # which requests are open
    "27.background.2": _SCHEDULER,  # who said sched-hello and sched-ready
    "27.cancel.6": _SCHEDULER,
    "27.deny.1": _SCHEDULER,  # what it has acquired
    "27.hello.1": _SCHEDULER,
    "27.hello.4": _SCHEDULER,  # of which jobs hello has told
    "27.hello.14": _SCHEDULER,
    "27.ready.2": _SCHEDULER,
    "28.impl.1": _SCHEDULER,  # who acquires resources
    "28.impl.2": _SCHEDULER,
    "32.background.1": _EXEC,  # which starts are open
    "32.hello.1": _EXEC,  # who said exec-hello
    "32.hello.2": _EXEC,  # which starts are outstanding
    "32.hello.5": _EXEC,
    "32.impl.8": _EXEC,
    "32.start.2": _EXEC,
    "32.start.3": _EXEC,
    "6.matchtag.1": INSTANCE,  # which requests are open
    "6.response.1": INSTANCE,
    "21.events.3": INSTANCE,  # which jobs there are
    "27.ready.12": INSTANCE,
    "invariant.freed-once": INSTANCE,  # which resources they have
    "invariant.nobody-stuck": INSTANCE,  # all of these
}
"""Clauses whose rules need all messages since the instance, or a party, was started. In a trace
that begins later, they are judged for the parties that come during the trace."""

NEED_IT_IN_CURRENT: Final = NEED_THE_BEGINNING | {"invariant.freed-once": _SCHEDULER}
"""The same in the current edition, where the scheduler's messages have each R."""

NEED_NO_PAYLOADS: Final = frozenset(
    {
        "27.background.2",
        "27.hello.1",
        "27.hello.14",
        "27.impl.10",
        "27.ready.1",
        "27.ready.2",
        "27.ready.13",
        "28.disconnect.2",
        "3.routing.1",
        "6.disconnect.2",
        "6.request.1",
    }
)
"""Clauses whose rules read only which party sends which message, and whether a response is an
error."""


def _collect() -> tuple[Rule, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    files = [importlib.import_module(f"{__name__}.{name}") for name in names]
    rules = (rule for file in files for rule in file.RULES.all)
    return tuple(
        replace(
            rule,
            since=(NEED_IT_IN_CURRENT if rule.is_current else NEED_THE_BEGINNING).get(
                rule.clause, ""
            ),
            needs_payloads=rule.clause not in NEED_NO_PAYLOADS,
        )
        for rule in rules
    )


_COLLECTED: Final = _collect()

JUDGED: Final = frozenset(rule.clause for rule in _COLLECTED)
"""The clauses and invariants of either edition that something can be said to break."""

ALL_RULES: Final = tuple(r for r in _COLLECTED if not r.is_current and not r.is_routed)
"""Every rule of the classic edition, in the order of files and of clauses in them."""

CLAUSE_RULES: Final = tuple(rule for rule in ALL_RULES if rule.is_of_clause)
"""Of these, the rules by which something can be broken: not those of what is unexplained."""

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


def rules_of(edition: str) -> tuple[Rule, ...]:
    """Return every rule for traces of an edition, those of routers too; `applicable` chooses."""
    return (*(ALL_RULES if edition == CLASSIC else CURRENT_RULES), *ROUTED_RULES)


def rules_of_instance(edition: str, clauses: Mapping[str, Clause]) -> list[Rule]:
    """Return the rules for what an instance that speaks an edition records itself."""
    rules, _ = applicable(rules_of(edition), Shown(), clauses, classic=edition == CLASSIC)
    return rules


def edition_of(record: Record) -> str:
    """Return the edition that an instance speaks; its first record, the configuration, says so.

    Traces that say nothing are those of instances that speak the classic edition.
    """
    return str((record.data or {}).get("edition", CLASSIC))
