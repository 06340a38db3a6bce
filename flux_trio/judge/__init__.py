"""Conformance: every normative clause of the RFCs, and what is known of each.

`load_clauses` reads the registry, `Clause` is one entry of it; `judge` says of each clause whether
a test shows it, a written reason says why none does, or it is open. Nothing here may import
`protocols`: the judge reads the RFCs, so a wrong row in a state table cannot excuse itself.
`judge_trace` has the rules (`rules.ALL_RULES`) judge a whole trace, a `Monitor` one as it happens.
"""

from flux_trio.judge.clauses.registry import (
    Clause,
    Kind,
    Observable,
    load_clauses,
    load_reasons,
    load_unjudged,
    parse_clauses,
    parse_reasons,
    select,
)
from flux_trio.judge.clauses.status import ClauseStatus, Word, contradictions, judge, report
from flux_trio.judge.engine.judgement import Judgement, judge_trace, pick_records
from flux_trio.judge.engine.monitor import Monitor, Verdict, Violation

__all__ = [
    "Clause",
    "ClauseStatus",
    "Judgement",
    "Kind",
    "Monitor",
    "Observable",
    "Verdict",
    "Violation",
    "Word",
    "contradictions",
    "judge",
    "judge_trace",
    "load_clauses",
    "load_reasons",
    "load_unjudged",
    "parse_clauses",
    "parse_reasons",
    "pick_records",
    "report",
    "select",
]
