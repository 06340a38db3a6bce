"""Rules for a trace that begins while the instance runs: nobody is accused for what was before."""

from __future__ import annotations

import random

import pytest

from flux_trio.judge import Monitor, load_clauses
from flux_trio.judge.rules import ALL_RULES, LATE_RULES, NEED_THE_BEGINNING
from tests.support.scenarios import trace_of

SCENARIOS = ("everyday", "calls", "execution_reload", "drains", "two_groups", "answers_by_hand")
CUTS = 8
SEED = 7


@pytest.mark.parametrize("name", SCENARIOS)
def test_trace_without_its_beginning_breaks_no_late_rule(name: str) -> None:
    trace, clauses = trace_of(name), load_clauses()
    for first in random.Random(f"{SEED} {name}").sample(range(len(trace)), CUTS):
        monitor = Monitor(LATE_RULES, clauses)
        for record in trace[first:]:
            found = monitor.observe(record)
            assert not found, (name, first, found)


def test_rules_that_are_left_out_would_accuse() -> None:
    """Each set of rules has its reason: without its beginning this trace breaks some of them."""
    monitor = Monitor(ALL_RULES, load_clauses())
    for record in trace_of("everyday")[100:]:
        monitor.observe(record)
    broken = {each.clause for each in monitor.violations}
    assert {"6.response.1", "32.hello.1"} <= broken <= NEED_THE_BEGINNING
    assert {rule.clause for rule in ALL_RULES} - {rule.clause for rule in LATE_RULES} == (
        NEED_THE_BEGINNING
    )
