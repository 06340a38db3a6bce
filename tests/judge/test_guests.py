"""What a guest may not ask for is named by the numbers that the edition has for it."""

from __future__ import annotations

import pytest

from flux_trio.judge.rules import ALL_RULES, CURRENT_RULES
from flux_trio.messages import topics
from tests.support.judged import edit_payload, find, judge
from tests.support.scenarios import trace_of

CLAUSE = "invariant.guests-as-allowed"


@pytest.mark.parametrize(
    ("edition", "flags", "found"),
    [
        (ALL_RULES, 1, ""),
        (ALL_RULES, 2, "flag waitable"),
        (ALL_RULES, 4, "flag novalidate"),
        (CURRENT_RULES, 2, ""),
        (CURRENT_RULES, 4, "flag waitable"),
        (CURRENT_RULES, 8, "flag novalidate"),
    ],
)
def test_a_flag_of_the_owners_is_named(edition, flags, found):
    """invariant.guests-as-allowed: debug is for all; the others are not."""
    rules = [each for each in edition if each.clause == CLAUSE]
    trace = trace_of("guests")
    changed = edit_payload(trace, find(trace, topics.INGEST_SUBMIT, "request"), flags=flags)
    texts = [each.text for each in judge(changed, rules).violations]
    assert len(texts) == bool(found)
    assert all(found in text for text in texts)
