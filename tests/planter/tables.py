"""Mutants of the state tables: each row deleted, and led to every other state.

Tables are those of flux_trio.protocols. A test that reads rows, or asks a table itself, only
compares one copy with another; `probe` sets it aside.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from functools import partial, wraps
from types import FrameType
from typing import Any, Final

from flux_trio import protocols
from flux_trio.protocols import InvalidTransition, Story, Table
from tests.planter.mutants import Mutant, Note

AnyTable = Table[Any, Any]

TABLES: Final[dict[str, AnyTable]] = {
    name: value for name, value in vars(protocols).items() if isinstance(value, Table)
}

_NOT_ASKING: Final = {sys.modules[Table.__module__].__file__, __file__}


def place_of(table: str, state: Enum, event: Enum) -> str:
    """The name of a row, there or not."""
    return f"{table} {state.name} {event.name}"


def mutants() -> Iterator[Mutant]:
    """Each row deleted, and led to every other state of its table."""
    for name, table in TABLES.items():
        yield from table_mutants(name, table)


def table_mutants(name: str, table: AnyTable) -> Iterator[Mutant]:
    """The mutants of one table, known as `name`."""
    for before, event, after in list(table):
        place = place_of(name, before, event)
        plant = partial(set_row, table, before, event)
        yield Mutant(f"{place} deleted", place, name, partial(plant, None))
        for other in table.rows:
            if other is not after:
                yield Mutant(f"{place} -> {other.name}", place, name, partial(plant, other))


def set_row(table: AnyTable, before: Enum, event: Enum, after: Enum | None) -> None:
    """Change one row; rows that share a dictionary with it stay."""
    row = {each: to for each, to in table.rows[before].items() if each is not event}
    if after is not None:
        row[event] = after
    table.rows = {state: row if state is before else old for state, old in table.rows.items()}


def probe(note: Note, set_aside: Note) -> None:
    """Note each row that is asked for; set aside what reads rows or asks a table itself."""
    _Probe(note, set_aside).install()


class _Probe:
    """Stands before `Table.step`, `Story.step`, `Table.allows` and `Table.rows`."""

    def __init__(self, note: Note, set_aside: Note) -> None:
        self._note = note
        self._set_aside = set_aside
        self._names = {id(table): name for name, table in TABLES.items()}
        self._is_asked = False

    def install(self) -> None:
        step, told_step, allows = Table.step, Story.step, Table.allows

        @wraps(step)
        def noted_step(table: AnyTable, state: Any, event: Any) -> Any:
            self._is_asked = True
            try:
                self._note_row(table, state, event)
                return step(table, state, event)
            except InvalidTransition:
                self._note_all(table, state)  # the error's text names them
                raise
            finally:
                self._is_asked = False

        @wraps(told_step)
        def noted_told_step(
            story: Story[Any], table: AnyTable, jobid: int, state: Any, event: Any
        ) -> Any:
            self._is_asked = True
            try:
                self._note_row(table, state, event)
                return told_step(story, table, jobid, state, event)
            except InvalidTransition:
                self._note_all(table, state)  # the error's text names them
                raise
            finally:
                self._is_asked = False

        @wraps(allows)
        def noted_allows(table: AnyTable, state: Any, event: Any) -> bool:
            self._is_asked = True
            try:
                self._note_row(table, state, event)
                return allows(table, state, event)
            finally:
                self._is_asked = False

        def rows(table: AnyTable) -> Any:
            if not self._is_asked and id(table) in self._names:
                self._set_aside("reads rows")
            return table.__dict__["rows"]

        def set_rows(table: AnyTable, value: Any) -> None:
            table.__dict__["rows"] = value

        story: Any = Story
        story.step = noted_told_step
        changed: Any = Table
        changed.step, changed.allows = noted_step, noted_allows
        changed.rows = property(rows, set_rows)

    def _note_row(self, table: AnyTable, state: Enum, event: Enum) -> None:
        if (name := self._names.get(id(table))) is None:
            return
        self._note(place_of(name, state, event))
        if is_of_tests(sys._getframe(1)):
            self._set_aside("asks a table itself")

    def _note_all(self, table: AnyTable, state: Enum) -> None:
        if (name := self._names.get(id(table))) is not None:
            for event in table.rows[state]:
                self._note(place_of(name, state, event))


def is_of_tests(frame: FrameType | None) -> bool:
    """Whether a file of tests/ asks a table in `frame`, itself or by way of the table's file."""
    while frame is not None and frame.f_code.co_filename in _NOT_ASKING:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith("tests.")
