"""The judge: every normative clause of the RFCs, and the rules that check traces by them.

`load_clauses` reads the registry; a `Clause` is one entry of it. `judge_trace` applies the rules
(`rules.ALL_RULES`) to a whole trace, a `Monitor` to a trace as it happens. A suspension, a lost
service or an error response that no broken clause explains is reported too (`UNEXPLAINED`). This
package must not import `protocols`: the judge reads the RFCs, so that a wrong row in a state table
cannot excuse itself.
"""

from flux_trio.judge.clauses.registry import (
    Clause,
    Kind,
    Observable,
    load_clauses,
    load_unjudged,
    parse_clauses,
    parse_reasons,
)
from flux_trio.judge.engine.causes import UNEXPLAINED, Violation
from flux_trio.judge.engine.monitor import Monitor, MonitorState, Verdict
from flux_trio.judge.judgement import Expected, Judgement, judge_trace, pick_records

__all__ = [
    "UNEXPLAINED",
    "Clause",
    "Expected",
    "Judgement",
    "Kind",
    "Monitor",
    "MonitorState",
    "Observable",
    "Verdict",
    "Violation",
    "judge_trace",
    "load_clauses",
    "load_unjudged",
    "parse_clauses",
    "parse_reasons",
    "pick_records",
]
