"""The judge judged: each rule can fail, each violation is found, and clean traces are clean.

planted_matrix.txt has a line for each planted violation, the clauses that fire after it; rewritten
by `pytest --update-snapshots`.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from flux_trio.judge import load_clauses
from flux_trio.judge.engine.monitor import Verdict
from flux_trio.judge.rules import ALL_RULES
from tests.support.judged import judge
from tests.support.planted import all_planted, fires
from tests.support.scenarios import breaks_of, scenario_names, trace_of

MATRIX = Path(__file__).with_name("planted_matrix.txt")


def matrix() -> str:
    """A line for each violation, and the counts."""
    rows = {name: fires(name) for name in all_planted()}
    alone = sum(len(clauses) == 1 for clauses in rows.values())
    lines = [f"{name} -> {' '.join(clauses)}" for name, clauses in rows.items()]
    count = f"{len(rows)} violations of {len(ALL_RULES)} rules, {alone} break one clause alone"
    return "\n".join([*lines, "", count]) + "\n"


@functools.cache
def judged(name):
    """The monitor of a clean trace, for all tests of it in this process."""
    return judge(trace_of(name), ALL_RULES)


@pytest.mark.parametrize("name", scenario_names())
def test_a_clean_trace_breaks_nothing_but_what_it_means_to(name):
    monitor = judged(name)
    found = [*monitor.violations, *monitor.unexplained]
    meant = breaks_of(name)
    texts = [f"{v.clause} at {v.record.n}: {v.text}" for v in found if v.clause not in meant]
    assert texts == []
    assert {v.clause for v in found} == meant


@pytest.mark.in_part(4)
@pytest.mark.parametrize("name", all_planted())
def test_a_planted_violation_breaks_its_clause(name):
    assert all_planted()[name].is_found()


def test_every_rule_has_a_violation_that_breaks_it():
    proved = {violation.clause for violation in all_planted().values()}
    assert sorted({rule.clause for rule in ALL_RULES} - proved) == []


def test_every_rule_is_kept_in_some_clean_trace():
    kept = set()
    for name in scenario_names():
        verdicts = judged(name).verdicts()
        kept |= {clause for clause, verdict in verdicts.items() if verdict == Verdict.KEPT}
    assert sorted({rule.clause for rule in ALL_RULES if rule.is_of_clause} - kept) == []


def test_a_rule_is_of_a_clause_of_the_registry_or_an_invariant():
    of_clauses = [rule.clause for rule in ALL_RULES if rule.is_of_clause]
    names = [clause for clause in of_clauses if not clause.startswith("invariant.")]
    assert sorted(set(names) - set(load_clauses())) == []
    assert len(names) == len(set(names))


@pytest.mark.gate
def test_the_matrix_is_up_to_date(request):
    now = matrix()
    if request.config.getoption("--update-snapshots", default=False):
        MATRIX.write_text(now, encoding="utf-8")
    assert MATRIX.read_text(encoding="utf-8").splitlines() == now.splitlines()
    print(now.splitlines()[-1])
