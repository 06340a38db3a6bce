"""Pairs of state and event that occur in a test though their table has no row for them.

A service answers such a pair as its protocol wants, so a missing row can look like an error of the
other side. `EXPECTED` lists the pairs that a test brings about on purpose; every other pair fails
the test in which it occurs. Instances that a test starts as processes write their pairs to a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final

from flux_trio.protocols import InvalidTransition
from tests.planter.planting import REFUSED, is_planted
from tests.planter.tables import TABLES, is_of_tests, place_of

EXPECTED: Final[dict[str, str]] = {
    "ACQUIRE REQUESTED ONLINE": "resource service says online before grow",
    "ACQUIRE REQUESTED SHRINK": "resource service says shrink before grow",
    "ALLOC PENDING ALLOC": "job manager asks twice for one job",
    "ALLOC ALLOCATED ALLOC": "job manager asks for a job that holds resources",
    "ALLOC IDLE EXPIRATION": "job manager tells of an end of what is not allocated",
    "ALLOC PENDING EXPIRATION": "job manager tells of an end of what is not allocated",
    "ALLOC IDLE FREE": "job manager frees what is not allocated",
    "ALLOC IDLE FREE_PART": "job manager frees what is not allocated",
    "ALLOC PENDING FREE": "job manager frees what is not allocated",
    "ALLOC IDLE ANNOTATE": "scheduler annotates a job that it was not asked for",
    "ALLOC IDLE SUCCESS": "scheduler grants a job that it was not asked for",
    "ALLOC IDLE DENY": "scheduler denies a job that it was not asked for",
    "ALLOC IDLE CANCELED": "scheduler answers a cancel that was not sent, or answers it twice",
    "ALLOC IDLE FREED": "scheduler answers a free that was not sent",
    "ALLOC PENDING FREED": "scheduler answers a free that was not sent",
    "ALLOC PENDING CANCELED": "scheduler answers a cancel that was not sent",
    "ALLOC ALLOCATED HELLO": "job manager tells a scheduler twice of a job",
    "ALLOC ALLOCATED SUCCESS": "scheduler answers twice",
    "ALLOC ALLOCATED ANNOTATE": "scheduler annotates a job that it has granted",
    "ALLOC ALLOCATED CANCELED": "scheduler answers a cancel of a job that it has granted",
    "ALLOC ALLOCATED DENY": "scheduler answers twice",
    "ALLOC ALLOCATED FREED": "scheduler answers a free that was not sent",
    "ALLOC FREEING SUCCESS": "scheduler answers twice, and the job is canceled in between",
    "EXECUTION IDLE START": "execution service answers a start that was not sent",
    "EXECUTION RUNNING START": "execution service says start twice",
    "EXECUTION FINISHED START": "execution service says start after finish",
    "EXECUTION FINISHED FINISH": "execution service says finish twice",
    "EXECUTION RELEASED EXCEPTION": "execution service goes on after the final release",
    "EXECUTION RELEASED RELEASE_FINAL": "execution service goes on after the final release",
    "EXECUTION RELEASED FINISH": "execution service goes on after the final release",
    "EXECUTION RELEASED START": "execution service goes on after the final release",
    "HOOK ASKED ASK": "test asks plugins about a job that they are asked about",
    "LINK DETACHED READY": "scheduler says ready without hello",
    "LINK READY READY": "scheduler says ready twice",
    "JOB NEW SUBMIT": "an eventlog has submit twice",
    "JOB NEW ALLOC": "journal has an event before those that must come first",
    "JOB CLEANUP URGENCY": "plugin posts an event that has no place in the job's state",
}
"""Which pair, and who does what wrong."""

_NAMES: Final = {table.name: name for name, table in TABLES.items()}


class _Noting:
    """Notes each pair that a table of the program refuses, unless a test asks the table for it."""

    def __init__(self) -> None:
        self.pairs: set[str] = set()
        self.file: Path | None = None  # of the process that started this one

    def install(self) -> None:
        init = InvalidTransition.__init__

        def noted(
            error: InvalidTransition, table: str, state: Enum, event: Enum, *rest: Any
        ) -> None:
            init(error, table, state, event, *rest)
            name = _NAMES.get(table)
            if name is None or is_of_tests(sys._getframe(1)):
                return
            rows = vars(TABLES[name])["rows"]  # unseen by a probe: the test has not read them
            if event not in rows[state]:
                self._note(place_of(name, state, event))

        changed: Any = InvalidTransition
        changed.__init__ = noted

    def _note(self, pair: str) -> None:
        self.pairs.add(pair)
        if self.file is not None and not is_planted():
            with suppress(OSError), self.file.open("a", encoding="utf-8") as file:
                file.write(pair + "\n")


_noting = _Noting()
_noting.install()


def report_to(path: str) -> None:
    """Append refused pairs to the file at `path`, for the test that started this process."""
    _noting.file = Path(path)


def watch_processes() -> None:
    """Let the processes that this one starts from now on report to it."""
    import tempfile  # the processes need none

    _noting.file = None
    os.environ[REFUSED] = str(Path(tempfile.gettempdir()) / f"refused-{os.getpid()}")


def take_refused() -> set[str]:
    """Return the pairs that were refused since the last call, here and in other processes."""
    found, _noting.pairs = _noting.pairs, set()
    if path := os.environ.get(REFUSED):
        with suppress(FileNotFoundError):
            found |= set(Path(path).read_text(encoding="utf-8").splitlines())
            Path(path).unlink()
    return found


@contextmanager
def none_but_expected() -> Iterator[None]:
    """Fail when a pair outside `EXPECTED` is refused in this block.

    A process with a mutant passes: a row that was deleted is not noticed by this alone.
    """
    take_refused()
    yield
    found = sorted(take_refused() - EXPECTED.keys())
    assert not found or is_planted(), (
        f"{', '.join(found)}: occurred, and is not in its table; "
        "when a test does that on purpose, list it in tests/support/refusals.py"
    )
