"""The judge on what real flux-core said: every clause that it finds broken is explained.

The departures of flux-core 0.88 are in the file that is shipped for it (`flux_trio.judge.known`),
what was recorded on purpose is explained here. A violation that nothing explains, or an explanation
of nothing, is an error of a rule or of these lists.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from flux_trio.judge import Judgement, Verdict, load_clauses
from flux_trio.judge.rules import CURRENT_RULES, ROUTED_RULES
from tests.support import recorded


class Explained(NamedTuple):
    """Why these clauses are broken in these recordings (by number)."""

    why: str
    clauses: str
    recordings: str


EXPLAINED = (
    # --- what was recorded was made to be wrong
    Explained(
        "requests with errors on purpose, one after the other, all from programs named client",
        "27.hello.17 27.ready.3 27.ready.5 27.ready.9 27.ready.10 27.ready.13 27.ready.15"
        " 32.hello.3 32.hello.9",
        "45",
    ),
    Explained("a scheduler that fails on its first request on purpose", "27.impl.10", "19"),
    Explained("an execution service that fails on purpose", "32.impl.5", "28"),
    # --- what the recording does not show as it was
    Explained(
        "an answer was routed before the job manager had logged why it had asked: the router's"
        " clock and that of the events differ by a millisecond",
        "27.alloc.3 27.background.3 27.criteria.6",
        "08",
    ),
)


@functools.cache
def judged(number: str) -> Judgement:
    return recorded.judged(recorded.recording(number), at_rest=True)


def explained() -> Iterator[tuple[str, str]]:
    for each in EXPLAINED:
        for clause in each.clauses.split():
            for number in each.recordings.split():
                yield clause, number


@pytest.mark.parametrize("number", recorded.numbers())
def test_every_clause_that_flux_core_breaks_is_explained(number: str) -> None:
    allowed = set(explained())
    unexplained = [
        f"{violation.clause}: {violation.text} (at {violation.record.n}, {violation.because})"
        for violation in judged(number).violations
        if (violation.clause, number) not in allowed
    ]
    assert unexplained == []


def test_every_explanation_is_needed() -> None:
    broken = {(each.clause, n) for n in recorded.numbers() for each in judged(n).violations}
    assert sorted(set(explained()) - broken) == []


def test_every_departure_that_is_shipped_occurs() -> None:
    found = [each for n in recorded.numbers() for each in judged(n).known if each.violations]
    made = {"27.impl.10", "32.impl.5", "27.success.8", "32.start.37", "18.format.4"}
    # in no recording: tests/real plays them
    shown = {each.clause for each in found} | recorded.NEED_HEADERS | made
    assert {each.clause for each in recorded.KNOWN} == shown


def test_resources_are_judged_wherever_flux_core_names_them() -> None:
    """RFC 20 and RFC 28, in every recording."""
    for rfc, least in (("20.", 23), ("28.", 11)):
        for number in recorded.numbers():
            verdicts = judged(number).verdicts.items()
            kept = [clause for clause, verdict in verdicts if verdict == Verdict.KEPT]
            assert len([clause for clause in kept if clause.startswith(rfc)]) >= least, number


def test_what_a_router_does_not_show_is_not_exercised() -> None:
    judgement = judged("01")
    clauses = load_clauses()
    rules = [rule for rule in CURRENT_RULES if not rule.is_current]
    hidden = {rule.clause for rule in rules if rule.needs_headers or rule.needs_crossing}
    hidden |= {rule.clause for rule in rules if _is_newer(clauses, rule.clause)}
    hidden -= {rule.clause for rule in ROUTED_RULES}
    assert hidden <= judgement.left_out.keys()
    assert {judgement.verdicts[clause] for clause in hidden} == {Verdict.NOT_EXERCISED}


def _is_newer(clauses: dict[str, object], clause: str) -> bool:
    return getattr(clauses.get(clause), "newest", None) is not None


def test_recordings_exercise_the_allocation_and_execution_protocols() -> None:
    kept = {
        clause
        for number in recorded.numbers()
        for clause, verdict in judged(number).verdicts.items()
        if verdict == Verdict.KEPT
    }
    assert {"27.alloc.1", "27.hello.1", "32.start.1"} <= kept
