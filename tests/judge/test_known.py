"""Known departures: which violations they are of, and what a judgement says with them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from flux_trio.formats import FormatError
from flux_trio.judge import Judgement, Verdict, Violation, load_clauses
from flux_trio.judge.known import load_shipped, parse_known, shipped, sort_known
from flux_trio.trace import Record

ALL = """
[[known]]
clause = "32.start.20"
found = "got 'all'"
why = "It names all ranks."

[[known]]
clause = "21.events.11"
why = "It never was."
"""


def judgement(*texts: str) -> Judgement:
    """A judgement in which 32.start.20 is broken with these texts."""
    record = Record(1, 0.0, "send", "exec")
    violations = tuple(Violation("32.start.20", "", "exec", text, record, ()) for text in texts)
    verdict = Verdict.BROKEN if violations else Verdict.KEPT
    verdicts = {"32.start.20": verdict, "21.events.11": Verdict.KEPT}
    return Judgement("made", 1, verdicts, violations, {})


def test_a_known_violation_does_not_count():
    found = sort_known(judgement("ranks: got 'all'"), parse_known(ALL))
    assert (found.is_kept, found.verdicts["32.start.20"]) == (True, Verdict.KNOWN)
    assert [len(each.violations) for each in found.known] == [1, 0]


def test_another_violation_of_the_same_clause_counts():
    found = sort_known(judgement("ranks: got 'all'", "ranks: got 7"), parse_known(ALL))
    assert [each.text for each in found.violations] == ["ranks: got 7"]
    assert found.verdicts["32.start.20"] == Verdict.BROKEN


def test_a_departure_that_does_not_occur_has_no_violations():
    found = sort_known(judgement(), parse_known(ALL))
    assert [each.violations for each in found.known] == [(), ()]


def test_what_follows_from_a_known_violation_is_a_block_of_its_own():
    found = judgement("ranks: got 'all'", "ranks: got 7", "ranks: got 8")
    known, *others = found.violations
    linked = tuple(msgspec.structs.replace(each, cause=known) for each in others)
    left = sort_known(replace(found, violations=(known, *linked)), parse_known(ALL))
    (cause, following) = left.violations
    assert cause.cause is None
    assert following.cause is cause
    assert left.broken_things() == [(cause, [following])]


@pytest.mark.parametrize("name", shipped())
def test_what_is_shipped_names_clauses_and_reasons(name):
    departures = load_shipped(name)
    assert departures
    of_clauses = {each.clause for each in departures if not each.clause.startswith("invariant.")}
    assert of_clauses <= load_clauses().keys()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("known = 1", "known"),
        ("[[known]]\nclause = 'x'", "why"),
        ("[", "TOML"),
        (
            "[[known]]\nclause = '6.matchtag.3'\nwhy = 'y'\nfound = '('",
            r"known\[0\].found: expected a regular expression",
        ),
        (
            "[[known]]\nclause = 'x'\nwhy = 'y'",
            r"known\[0\].clause: expected a clause that is judged, such as 27.alloc.1, got ",
        ),
    ],
)
def test_what_is_no_file_of_departures_is_refused(text, said):
    with pytest.raises(FormatError, match=said):
        parse_known(text)
