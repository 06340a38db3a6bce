"""Plays the cells of `outside`; `python -m tests.lab.played_outside` writes what is named."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import trio

from flux_trio.broker import Handle
from flux_trio.instance import Instance
from flux_trio.lab.exercise import Act, Driven, Findings, Stuck
from flux_trio.process.groups import unwrapping
from tests.lab.outside import EXEC_MESSAGES, SCHED_MESSAGES, Cell, Lying, cells_of, lying_handle
from tests.lab.test_exercise_mistakes import (
    EXEC,
    FIFO,
    InProcess,
    exercised,
    pretending,
    program_of,
)

TABLE: Final = Path(__file__).with_name("outside.txt")
NOTHING: Final = "-"
"""Stands for a cell that passes."""


class LyingProcess(InProcess):
    """A right program, of which one kind of message is changed on its way."""

    def __init__(
        self, cell: Cell, lie: Lying, module: object, nursery: trio.Nursery, instance: Instance
    ) -> None:
        super().__init__(module, nursery, instance)
        self._cell = cell
        self._lie = lie

    def _connected(self, instance: Instance) -> AbstractAsyncContextManager[Handle]:
        return self._lying(instance)

    @asynccontextmanager
    async def _lying(self, instance: Instance) -> AsyncIterator[Handle]:
        handle = lying_handle(instance, self._cell.message.is_it, self._lie)
        try:
            yield handle
        finally:
            handle.close()


class Played(NamedTuple):
    """What came of a cell."""

    nchanged: int
    """How many messages were changed."""
    is_wrong: bool
    """Whether `flux-trio exercise` ends with 1."""
    named: tuple[str, ...]
    """The clauses that are named."""


def acts_of(cell: Cell, acts: Iterable[Act]) -> list[Act]:
    """Return the acts that have the message of a cell."""
    found = [act for act in acts if act.title in cell.message.titles]
    assert len(found) == len(cell.message.titles), cell.message.titles
    return found


def outcome_of(lie: Lying, play: Callable[[], Findings]) -> Played:
    """Play acts with a lie, and return what came of them."""
    try:
        with unwrapping(Stuck):
            found = play()
    except Stuck:
        return Played(lie.nchanged, True, ())
    causes = [each.clause for each in found.judgement.violations if each.cause is None]
    return Played(lie.nchanged, not found.is_clean, tuple(dict.fromkeys(causes)))


def played(cell: Cell) -> Played:
    """Play the acts that have the message of a cell."""
    planted = EXEC if cell.message in EXEC_MESSAGES else FIFO
    acts = acts_of(cell, planted.acts)
    lie = cell.lie()

    def program(module: object, nursery: trio.Nursery, instance: Instance) -> Driven:
        return LyingProcess(cell, lie, module, nursery, instance)

    module = program_of(planted)
    module = pretending(module) if planted is EXEC else module
    return outcome_of(lie, lambda: exercised(planted.kit, module, acts, program=program))


def write_lines(
    cells: Iterable[Cell], play: Callable[[Cell], Played], words: Sequence[str]
) -> None:
    """Write a line for each cell of the messages or operators with these names, or for all."""
    for cell in cells:
        if not words or {cell.name, cell.message.name, cell.operator} & {*words}:
            found = play(cell)
            if found.nchanged:
                named = ", ".join(found.named) or ("stuck" if found.is_wrong else NOTHING)
                print(f"{cell.name} -> {named}", flush=True)


if __name__ == "__main__":
    write_lines(cells_of((*SCHED_MESSAGES, *EXEC_MESSAGES)), played, sys.argv[1:])
