"""Plays the cells of `outside`; `python -m tests.lab.played_outside` writes what is named."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import trio

from flux_trio.broker import Handle
from flux_trio.instance import Instance
from flux_trio.lab.exercise import Driven, Stuck
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


def played(cell: Cell) -> Played:
    """Play the acts that have the message of a cell."""
    planted = EXEC if cell.message in EXEC_MESSAGES else FIFO
    acts = [act for act in planted.acts if act.title in cell.message.titles]
    assert len(acts) == len(cell.message.titles), cell.message.titles
    lie = cell.lie()

    def program(module: object, nursery: trio.Nursery, instance: Instance) -> Driven:
        return LyingProcess(cell, lie, module, nursery, instance)

    module = program_of(planted)
    module = pretending(module) if planted is EXEC else module
    try:
        with unwrapping(Stuck):
            found = exercised(planted.kit, module, acts, program=program)
    except Stuck:
        return Played(lie.nchanged, True, ())
    causes = [each.clause for each in found.judgement.violations if each.cause is None]
    return Played(lie.nchanged, not found.is_clean, tuple(dict.fromkeys(causes)))


def main(words: Sequence[str]) -> None:
    """Write a line for each cell of the messages or operators with these names, or of all."""
    for cell in cells_of((*SCHED_MESSAGES, *EXEC_MESSAGES)):
        if not words or {cell.message.name, cell.operator} & {*words}:
            found = played(cell)
            if found.nchanged:
                named = ", ".join(found.named) or ("stuck" if found.is_wrong else NOTHING)
                print(f"{cell.name} -> {named}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
