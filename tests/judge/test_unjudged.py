"""A clause has a rule, or a sentence that says why none can be."""

from __future__ import annotations

import pytest

from flux_trio.judge import load_clauses, load_unjudged, select
from flux_trio.judge.rules import ALL_RULES

JUDGED = {rule.clause for rule in ALL_RULES}


SHOWN = ("trace", "eventlog", "format")


def test_every_clause_that_a_trace_may_show_has_a_rule_or_a_reason_why_not():
    shown = [each.id for each in load_clauses().values() if each.observable in SHOWN]
    assert [id_ for id_ in shown if id_ not in JUDGED and id_ not in load_unjudged()] == []


@pytest.mark.parametrize("rfc", [3, 6, 20, 28])
def test_every_clause_has_a_rule_or_a_reason_why_not(rfc):
    without = [each.id for each in select(load_clauses(), rfc=rfc) if each.id not in JUDGED]
    assert without == [id_ for id_ in without if id_ in load_unjudged()]


def test_what_has_no_rule_is_a_clause_and_has_none():
    assert sorted(set(load_unjudged()) - set(load_clauses())) == []
    assert sorted(JUDGED & set(load_unjudged())) == []
