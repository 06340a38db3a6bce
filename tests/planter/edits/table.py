"""The table of what edits break (`expected.txt`)."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from tests.planter.edits.making import Edit

PATH: Final = Path(__file__).with_name("expected.txt")
HARMLESS: Final = "harmless: "


class Row(NamedTuple):
    """Which edits it is about, and the clauses, or why these are harmless."""

    kinds: tuple[str, ...]
    subject: str
    field: str
    clauses: tuple[str, ...]
    harmless: str

    def is_of(self, edit: Edit) -> bool:
        """Whether the row is about an edit."""
        return (
            any(fnmatchcase(each, kind) for kind in self.kinds for each in edit.kinds)
            and _fits(edit.subject, self.subject)
            and _fits(edit.field, self.field)
        )

    def names(self, clause: str) -> bool:
        """Whether the clause is one that the edit is to break."""
        return any(fnmatchcase(clause, each) for each in self.clauses)


def _fits(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[]", "[[]]"))


def rows(text: str | None = None) -> list[Row]:
    """The rows of the table, in order."""
    lines = (text if text is not None else PATH.read_text(encoding="utf-8")).splitlines()
    return [_row(line) for line in lines if line.strip() and not line.startswith("#")]


def _row(line: str) -> Row:
    kinds, subject, field, expected = (each.strip() for each in line.split("|", 3))
    is_harmless = expected.startswith(HARMLESS)
    clauses = () if is_harmless else tuple(expected.split())
    assert clauses or is_harmless, f"no clause: {line}"
    harmless = expected.removeprefix(HARMLESS) if is_harmless else ""
    return Row(tuple(kinds.split("+")), subject, field, clauses, harmless)


def row_of(edit: Edit, table: list[Row]) -> Row:
    """The first row that is about an edit. Raises LookupError."""
    for row in table:
        if row.is_of(edit):
            return row
    raise LookupError(f"no row of {PATH.name} is about: {edit.name}")
