"""A scheduler made of two modules: one acquires resources, the other one says hello and grants."""

from __future__ import annotations

from typing import Final

from flux_trio.judge import Judgement, Verdict
from flux_trio.trace import read_trace
from tests.support import recorded

NAME: Final = "live.fluxion.trace"
OF_BOTH: Final = (
    *("27.background.1", "27.background.2", "27.hello.1", "27.hello.4", "27.hello.14"),
    *("27.ready.2", "20.overview.3", "28.criteria.3", "28.offline.3", "28.offline.5"),
    *("28.disconnect.5", "invariant.freed-once"),
)
"""Clauses that need to know what the one has acquired, and that the other one was there since."""


def judged(old: str = "", new: str = "") -> Judgement:
    """The judgement of the trace, in which every `old` is replaced."""
    text = recorded.module_trace(NAME)
    assert old in text
    text = text.replace(old, new) if old else text
    return recorded.judged_source(read_trace(text.splitlines(keepends=True)))


def test_a_scheduler_of_two_modules_is_judged_and_breaks_nothing() -> None:
    judgement = judged()
    kept = {clause for clause in OF_BOTH if judgement.verdicts[clause] is Verdict.KEPT}
    assert kept == set(OF_BOTH)
    assert [each.text for each in judgement.violations] == []
    assert judgement.unexplained == ()


def test_what_one_module_was_told_binds_the_other() -> None:
    """Rank 1 is drained when this job gets its nodes."""
    found = judged('"rank": "0,3"', '"rank": "0-1"').violations
    assert {(each.clause, each.party) for each in found} == {
        ("28.offline.3", "sched-fluxion-qmanager")
    }
