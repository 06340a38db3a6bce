"""Mistakes from outside a right program: each message x field x operator ends with 1 and a clause.

outside.txt and outside_manager.txt have what is named in each cell, as `python -m
tests.lab.played_outside` and `python -m tests.lab.outside_manager` write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from tests.lab import outside_clauses, outside_manager, played_outside
from tests.lab.outside import EXEC_MESSAGES, SCHED_MESSAGES, Cell, cells_of
from tests.lab.played_outside import NOTHING, Played


class Table(NamedTuple):
    """The cells of programs of one kind, what is named in each, and how they are played."""

    cells: Mapping[str, Cell]
    lines: Mapping[str, set[str]]
    excused: Mapping[str, str]
    is_own: Callable[[str, set[str]], bool]
    play: Callable[[Cell], Played]


TABLES = {
    "scheduler, execution service": Table(
        {each.name: each for each in cells_of((*SCHED_MESSAGES, *EXEC_MESSAGES))},
        dict(outside_clauses.table_lines()),
        outside_clauses.EXCUSED,
        outside_clauses.is_own,
        played_outside.played,
    ),
    "job manager": Table(
        outside_manager.CELLS,
        dict(outside_clauses.table_lines(outside_manager.TABLE)),
        outside_manager.EXCUSED,
        outside_manager.is_own,
        outside_manager.played,
    ),
}
ALL = [(of, name) for of, table in TABLES.items() for name in sorted(table.lines)]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_most_cells_are_named_by_their_own_clause_and_none_passes_without_a_reason(
    table: Table,
) -> None:
    judged = {name: named for name, named in table.lines.items() if name not in table.excused}
    passing = [name for name, named in judged.items() if named == {NOTHING}]
    other = [name for name, named in judged.items() if not table.is_own(name, named)]
    assert passing == []
    assert len(other) <= 0.05 * len(judged), other


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_excuse_is_of_a_cell_and_has_a_reason(table: Table) -> None:
    assert table.excused.keys() <= table.lines.keys()
    assert all(table.excused.values())


@pytest.mark.in_part(60)
@pytest.mark.parametrize(("of", "name"), ALL)
def test_cell_is_named_as_the_table_says(of: str, name: str) -> None:
    """It ends with 1, and names a clause of its line, unless it is excused."""
    table = TABLES[of]
    found = table.play(table.cells[name])
    expected = table.lines[name]
    assert found.nchanged
    assert found.is_wrong == (expected != {NOTHING})
    assert not found.named or expected & set(found.named), found.named
