"""Conformance: every normative clause of the RFCs, and what is known of each.

`load_clauses` reads the registry, `Clause` is one entry of it; `judge` says of each clause whether
a test shows it, a written reason says why none does, or it is open. Nothing here may import
`protocols`: the judge reads the RFCs, so a wrong row in a state table cannot excuse itself.
"""

from flux_trio.conformance.registry import (
    Clause,
    Kind,
    Observable,
    load_clauses,
    load_reasons,
    parse_clauses,
    parse_reasons,
    select,
)
from flux_trio.conformance.status import ClauseStatus, Word, contradictions, judge, report

__all__ = [
    "Clause",
    "ClauseStatus",
    "Kind",
    "Observable",
    "Word",
    "contradictions",
    "judge",
    "load_clauses",
    "load_reasons",
    "parse_clauses",
    "parse_reasons",
    "report",
    "select",
]
