"""The planted matrix of recordings: a part of it here, the whole by `make edits`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planter.edits import making, table, trying
from tests.planter.findings import Findings
from tests.support.recorded import recording

PART = 200


@pytest.fixture(scope="module")
def drawn() -> list[making.Edit]:
    return making.edits()


def test_a_seed_draws_the_same_edits_each_of_them_once(drawn: list[making.Edit]) -> None:
    again = making.edits()
    assert [each.name for each in again] == [each.name for each in drawn]
    assert len({each.name for each in drawn}) == making.COUNT


def test_each_edit_changes_its_recording(drawn: list[making.Edit]) -> None:
    same = [each.name for each in drawn[:PART] if making.made(each) == recording(each.unit.number)]
    assert same == []


def test_the_table_says_of_each_edit_what_it_breaks(drawn: list[making.Edit]) -> None:
    rows = table.rows()
    harmless = [each for each in drawn if table.row_of(each, rows).harmless]
    assert len(harmless) <= trying.HARMLESS_MAX * len(drawn)


def test_the_first_row_that_fits_counts() -> None:
    rows = table.rows("deleted | log a | | 21.x.1 21.y.*\n* | log * | | harmless: why\n")
    assert [row.harmless for row in rows] == ["", "why"]
    assert rows[0].names("21.y.7")
    assert not rows[0].names("21.x.2")


def test_edits_are_named_by_their_clause(drawn: list[making.Edit], tmp_path: Path) -> None:
    findings = Findings(tmp_path / "findings.jsonl", "now")
    part = drawn[:PART]
    trying.try_all(part, findings)
    found = trying.outcomes(part, findings)
    assert [each.edit.name for each in found if each.row.harmless and each.named] == []
    text, _ = trying.report(found)
    judged = [each for each in found if not each.row.harmless]
    own = sum(each.word == trying.OWN for each in judged)
    assert own >= trying.OWN_MIN * len(judged), text
    silent = sum(each.word == trying.SILENT for each in judged)
    assert silent <= 2 * trying.SILENT_MAX * len(judged), text  # of a part


def test_a_harmless_edit_that_is_named_is_not_well(drawn: list[making.Edit]) -> None:
    edit, harmless = drawn[0], table.Row(("*",), "*", "*", (), "why")
    assert trying.report([trying.Outcome(edit, harmless, ())])[1] is False
    own = [trying.Outcome(edit, table.Row(("*",), "*", "*", ("21.x.1",), ""), ("21.x.1",))] * 9
    assert trying.report([*own, trying.Outcome(edit, harmless, ())])[1] is True
    assert trying.report([*own, trying.Outcome(edit, harmless, ("21.x.1",))])[1] is False


def test_a_run_goes_on_where_it_was(drawn: list[making.Edit], tmp_path: Path) -> None:
    path = tmp_path / "findings.jsonl"
    trying.try_all(drawn[:3], Findings(path, "now"))
    before = path.read_text()
    trying.try_all(drawn[:4], Findings(path, "now"))
    after = path.read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == 4


def test_the_page_lists_what_is_silent(drawn: list[making.Edit]) -> None:
    """The tables of the page in the tree name edits that are drawn."""
    names = {trying._cell(each.name) for each in drawn}
    rows = [line.split(" | ") for line in trying.PAGE.read_text().splitlines() if line[:2] == "| "]
    listed = [row[0].removeprefix("| ") for row in rows if row[0] != "| edit"]
    assert listed
    assert set(listed) <= names
