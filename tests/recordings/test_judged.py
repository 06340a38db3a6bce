"""The judge on what real flux-core said: every clause that it finds broken is explained here.

flux-core speaks the current edition, so clauses that it has otherwise are left out. A violation
that no line explains, or a line that explains nothing, is an error of a rule or of this list.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flux_trio.judge import Judgement, Verdict, judge_trace, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.trace import read_trace

DATA = Path(__file__).parent.parent / "data" / "messages"
EVERYWHERE = "*"


class Explained(NamedTuple):
    """Why these clauses are broken in these recordings (by number)."""

    why: str
    clauses: str
    recordings: str = EVERYWHERE


EXPLAINED = (
    # --- flux-core differs from the RFCs
    Explained(
        'release names its ranks "all", never an idset',
        "32.start.20",
    ),
    Explained(
        "expirations are numbers with a fraction, where the texts have an integer",
        "27.expiration.3",
        "40 41",
    ),
    Explained("as above, in the event", "21.events.11", "40"),
    Explained(
        "free is not answered, so the frees of parts of a job follow each other",
        "invariant.one-in-flight",
        "30",
    ),
    Explained("the text of the feasibility check is long", "6.response.4", "07"),
    # --- a defect of flux-core 0.88.0
    Explained("after a prolog that failed, epilog-finish is lost", "21.events.25", "39"),
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


def recordings() -> list[str]:
    """Numbers, as the files are named."""
    return sorted(path.name[:2] for path in DATA.glob("*.json"))


@functools.cache
def judged(number: str) -> Judgement:
    (path,) = DATA.glob(f"{number}-*.json")
    with path.open() as lines:
        return judge_trace(read_trace(lines), ALL_RULES, load_clauses(), classic=False)


def explained() -> Iterator[tuple[str, str]]:
    for each in EXPLAINED:
        for clause in each.clauses.split():
            for number in each.recordings.split():
                yield clause, number


@pytest.mark.parametrize("number", recordings())
def test_every_clause_that_flux_core_breaks_is_explained(number: str) -> None:
    allowed = set(explained())
    unexplained = [
        f"{violation.clause}: {violation.text} (at {violation.record.n}, {violation.because})"
        for violation in judged(number).violations
        if not {(violation.clause, number), (violation.clause, EVERYWHERE)} & allowed
    ]
    assert unexplained == []


def test_every_explanation_is_needed() -> None:
    broken = {(each.clause, n) for n in recordings() for each in judged(n).violations}
    broken |= {(clause, EVERYWHERE) for clause, _ in broken}
    assert sorted(set(explained()) - broken) == []


def test_what_a_router_does_not_show_is_not_exercised() -> None:
    judgement = judged("01")
    clauses = load_clauses()
    hidden = {rule.clause for rule in ALL_RULES if rule.needs_headers or rule.needs_crossing}
    hidden |= {rule.clause for rule in ALL_RULES if _is_newer(clauses, rule.clause)}
    assert hidden <= judgement.left_out.keys()
    assert {judgement.verdicts[clause] for clause in hidden} == {Verdict.NOT_EXERCISED}


def _is_newer(clauses: dict[str, object], clause: str) -> bool:
    return getattr(clauses.get(clause), "newest", None) is not None


def test_recordings_exercise_the_allocation_and_execution_protocols() -> None:
    kept = {
        clause
        for number in recordings()
        for clause, verdict in judged(number).verdicts.items()
        if verdict == Verdict.KEPT
    }
    assert {"27.alloc.1", "27.hello.1", "32.start.1"} <= kept
