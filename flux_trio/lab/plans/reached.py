"""Which transitions of the protocols' tables the worlds of a campaign took, and with which faults.

A campaign that breaks no property may still have tried little. A transition counts with a fault if
a world took it after that fault had struck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, get_args

import msgspec

from flux_trio import protocols
from flux_trio.lab.catalogue import FAULTS, Fault, is_drawn
from flux_trio.protocols import Table
from flux_trio.trace import Kind, Record

TABLES: Final[dict[str, Table[Any, Any]]] = {
    name: value for name, value in vars(protocols).items() if isinstance(value, Table)
}


def name_of_transition(table: str, state: Enum, event: Enum) -> str:
    """Return `ALLOC PENDING LOST`: the table, the state and the event."""
    return f"{table} {state.name} {event.name}"


def all_transitions() -> list[str]:
    """Return the names of all rows of all tables, in their order."""
    return [
        name_of_transition(name, state, event)
        for name, table in TABLES.items()
        for state, event, _ in table
    ]


def name_of_fault(fault: Fault) -> str:
    """Return the kind of a fault, and its module if it has one: `crash sched`."""
    kind = str(type(fault).__struct_config__.tag)
    module = getattr(fault, "module", "")
    return f"{kind} {module}".rstrip()


def all_faults() -> list[str]:
    """Return the names of all faults that a seed can draw."""
    names: list[str] = []
    for each in filter(is_drawn, FAULTS):
        kind = str(each.__struct_config__.tag)
        fields = {field.name: field.type for field in msgspec.structs.fields(each)}
        modules = get_args(fields["module"]) if "module" in fields else ()
        names += [f"{kind} {module}" for module in modules] or [kind]
    return names


class Noted:
    """Notes the transitions that are taken, and which of them after which fault.

    It has to get the records of the trace, which tell of the faults; see `transitions_noted`.
    """

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.after: dict[str, set[str]] = {}
        """By fault that struck: the transitions that were taken afterwards."""

    def observe(self, record: Record) -> None:
        """Note the fault that the next record of the trace tells of, if it does."""
        if record.kind == Kind.FAULT and record.data is not None:
            name = f"{record.data['type']} {record.data.get('module', '')}".rstrip()
            self.after.setdefault(name, set())

    def note(self, transition: str) -> None:
        """Note a transition that was taken, by its name."""
        self.taken.add(transition)
        for each in self.after.values():
            each.add(transition)


@contextmanager
def transitions_noted() -> Iterator[Noted]:
    """In this block, note each transition of any table that is taken in this process."""
    noted = Noted()
    before = {name: table.rows for name, table in TABLES.items()}
    for name, table in TABLES.items():
        table.rows = {
            state: _NotedRow(row, name, state, noted.note) for state, row in table.rows.items()
        }
    try:
        yield noted
    finally:
        for name, rows in before.items():
            TABLES[name].rows = rows


class _NotedRow(dict[Any, Any]):
    """A row of a table that notes each event for which it is asked."""

    def __init__(self, row: Any, table: str, state: Enum, note: Callable[[str], None]) -> None:
        super().__init__(row)
        self._names = {event: name_of_transition(table, state, event) for event in row}
        self._note = note

    def __getitem__(self, event: Any) -> Any:
        after = super().__getitem__(event)
        self._note(self._names[event])
        return after


class Reached:
    """Which transitions the worlds of a campaign took, all together and after each fault."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.struck: Counter[str] = Counter()  # by fault: worlds in which it struck
        self._after: dict[str, set[str]] = {}  # by fault: transitions

    def add(self, taken: Iterable[str], after: Mapping[str, Iterable[str]]) -> None:
        """Count a world that took the transitions `taken`, some of them `after` each fault."""
        self.taken.update(taken)
        for fault, transitions in after.items():
            self.struck[fault] += 1
            self._after.setdefault(fault, set()).update(transitions)

    def never_taken(self) -> list[str]:
        """Return the transitions that no world took, in the order of the tables."""
        return [each for each in all_transitions() if each not in self.taken]

    def never_after(self, fault: str) -> list[str]:
        """Return the transitions that no world took after `fault` had struck in it."""
        found = self._after.get(fault, set())
        return [each for each in all_transitions() if each not in found]
