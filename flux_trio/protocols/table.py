"""State tables: the one way a conversation's state changes.

A table knows states and events, not which side of the conversation asks; a pair that is not in it
is an error that names the conversation, the state and what would have been allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Generic, TypeVar

from flux_trio.messages import ProtocolError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Member(Enum):
    """A state or event of a table. Each step looks two up: the hash of an Enum's own is slow."""

    __hash__ = object.__hash__


class InvalidTransition(ProtocolError):
    """An event that its conversation's table has no row for in this state."""

    def __init__(self, table: str, state: Enum, event: Enum, allowed: list[str]) -> None:
        expected = ", ".join(allowed) or "nothing more"
        super().__init__(f"{table}: {event.value} in state {state.name}: expected {expected}")
        self.state = state
        self.event = event


class Table(Generic[S, E]):
    """The transitions of one conversation: state, event → next state."""

    def __init__(self, name: str, initial: S, rows: Mapping[S, Mapping[E, S]]) -> None:
        self.name = name
        self.initial = initial
        self.rows = rows

    def step(self, state: S, event: E) -> S:
        """The state after `event`. Raises InvalidTransition when there is no such row."""
        try:
            return self.rows[state][event]
        except KeyError:
            allowed = [e.value for e in self.rows[state]]
            raise InvalidTransition(self.name, state, event, allowed) from None

    def allows(self, state: S, event: E) -> bool:
        """Whether there is a row for `event` in `state`."""
        return event in self.rows[state]

    def __iter__(self) -> Iterator[tuple[S, E, S]]:
        for state, row in self.rows.items():
            for event, after in row.items():
                yield state, event, after
