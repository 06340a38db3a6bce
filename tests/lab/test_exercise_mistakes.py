"""An exercise names the mistakes that are planted in a scheduler; no process takes part."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from flux_trio.lab.exercise import SCHED_ACTS, SCHED_KIT, Act, Findings, Order
from tests.lab.planted_in_python import ROWS, STORES, Row
from tests.support.exercised import changed, exercised

FIFO = Path(__file__).parents[2] / "docs" / "howto" / "any-language" / "fifo.py"
ACTS = [act for act in SCHED_ACTS if Order.FIFO in act.orders]
ONE_OF_EACH = [next(rows) for _, rows in groupby(ROWS, lambda row: row.group)]


def played(right: str, wrong: str, acts: list[Act]) -> Findings:
    return exercised(SCHED_KIT, changed(FIFO, right, wrong), acts)


def about(clause: str) -> list[Act]:
    """The acts about a clause; those that every mistake shows in, if none is."""
    return [act for act in ACTS if clause in act.clauses] or ACTS[:2]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("", "", id="prompt"),
        pytest.param(STORES, STORES + "        await trio.sleep(1)\n", id="slow"),
    ],
)
def test_right_scheduler_keeps_every_clause_that_acts_are_about(right: str, wrong: str) -> None:
    found = played(right, wrong, ACTS)
    assert found.is_clean, found.text()
    verdicts = {clause.id: found.verdict(clause) for clause in found.clauses}
    about = {clause for act in ACTS for clause in act.clauses if clause in verdicts}
    assert {clause: verdicts[clause] for clause in about} == dict.fromkeys(about, "kept")


def test_clause_whose_act_was_not_played_is_not_kept() -> None:
    found = played("", "", ACTS[:1])
    assert found.is_clean, found.text()
    offline = next(clause for clause in found.clauses if clause.id == "28.offline.3")
    assert found.verdict(offline) == "not exercised"


@pytest.mark.parametrize("row", ONE_OF_EACH, ids=lambda row: row.name)
def test_mistake_is_named_by_the_acts_about_it(row: Row) -> None:
    found = played(row.right, row.wrong, about(row.clause))
    assert row.clause in {each.clause for each in found.judgement.violations}, found.text()
    assert f"{row.clause} broken by" in found.text()


@pytest.mark.gate
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_mistake_is_named(row: Row) -> None:
    found = played(row.right, row.wrong, ACTS)
    assert row.clause in {each.clause for each in found.judgement.violations}, found.text()


def test_half_of_the_mistakes_are_from_the_rfcs_alone() -> None:
    assert len(ROWS) >= 30
    assert sum(row.is_blind for row in ROWS) * 2 >= len(ROWS)


def test_order_of_starts_is_not_looked_at_if_the_author_says_so() -> None:
    row = next(row for row in ROWS if row.name == "new priorities are ignored")
    acts = [act for act in SCHED_ACTS if act.title == "priorities of waiting jobs change"]
    found = played(row.right, row.wrong, [act for act in acts if Order.ANY in act.orders])
    assert found.is_clean, found.text()


def test_refusal_of_the_instance_is_shown_with_what_it_refuses() -> None:
    row = next(row for row in ROWS if row.name == "what is given stays free")
    found = played(row.right, row.wrong, ACTS[1:2])
    text = found.text()
    assert text.index("no-double-allocation broken by") < text.index("\n  log: ")
