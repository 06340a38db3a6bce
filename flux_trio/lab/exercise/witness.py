"""Commands of jobs that tell the exercise what becomes of them: when they start, whether they run.

A command holds one end of a pipe that has a name. So it is known by its processes themselves
whether one is left, in whatever namespace or session they are.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.stage import LONG_S, Stuck

LOOK_S: Final = 0.05  # how often a task looks whether it may end
_LINES: Final = 4096
_CLOSED: Final = "9>&-"  # for what a command starts: the pipe tells of the command alone
_LOOK: Final = f"sleep {LOOK_S:g} {_CLOSED}"


class Witness:
    """The witness of one job, in a directory that is removed with it. A context manager.

    A task whose witness is gone ends: a program that ends no tasks leaves none behind.
    """

    def __init__(self) -> None:
        # A task that a wrong program has forgotten may write in it while it is removed.
        self._directory = tempfile.TemporaryDirectory(
            prefix="flux-trio-witness-", ignore_cleanup_errors=True
        )
        directory = Path(self._directory.name)
        self._pipe, self._first, self._may_end, self._told = (
            directory / name for name in ("pipe", "first", "go", "told")
        )
        self._told.mkdir()
        os.mkfifo(self._pipe)
        self._fd = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._nstarts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        self._directory.cleanup()

    def _script(self, then: str) -> tuple[str, ...]:
        return "sh", "-c", f"exec 9>{shlex.quote(str(self._pipe))}; echo >&9; {then}"

    def runs_for(self, seconds: float) -> tuple[str, ...]:
        """Return a command that runs for so long."""
        return self._script(f"exec sleep {seconds:g}")

    def runs_on(self) -> tuple[str, ...]:
        """Return a command that runs until it is ended."""
        return self.runs_for(LONG_S)

    def does_not_heed(self) -> tuple[str, ...]:
        """Return a command that SIGTERM does not end."""
        return self._script(f"trap '' TERM; while {self._is_there}; do {_LOOK}; done")

    def ends_when_told(self) -> tuple[str, ...]:
        """Return a command that runs until SIGTERM tells it to end; see `ntold`."""
        mark = f"mktemp {shlex.quote(str(self._told))}/XXXXXX >/dev/null {_CLOSED}"
        return self._script(f"trap '{mark}; exit 1' TERM; while {self._is_there}; do {_LOOK}; done")

    @property
    def ntold(self) -> int:
        """How many tasks have been told to end."""
        return len(list(self._told.iterdir()))

    def ends_when_let(self, code: int = 0) -> tuple[str, ...]:
        """Return a command that runs until `let_end` is called, and ends with this exit code."""
        return self._script(f"{self._waits}; exit {code}")

    @property
    def _waits(self) -> str:
        may_end = f"[ -e {shlex.quote(str(self._may_end))} ]"
        return f"while {self._is_there} && ! {may_end}; do {_LOOK}; done"

    @property
    def _is_there(self) -> str:
        return f"[ -p {shlex.quote(str(self._pipe))} ]"

    def one_ends_first(self, first: int, second: int, third: int) -> tuple[str, ...]:
        """Return a command of three tasks with these exit codes: one ends at once, the others when
        `let_end` is called, the third one last.
        """
        marks = [shlex.quote(f"{self._first}{at}") for at in range(2)]
        one = f"mkdir {marks[0]} 2>/dev/null && exit {first}"
        other = f"mkdir {marks[1]} 2>/dev/null && exit {second}"
        return self._script(f"{one}; {self._waits}; {other}; {_LOOK}; exit {third}")

    def has_first_ended(self) -> bool:
        """Return whether the task that ends at once has come to its end."""
        return Path(f"{self._first}0").exists()

    def let_end(self) -> None:
        """Let the others end."""
        self._may_end.touch()

    def tells(self, variables: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
        """Return a command of which each task writes down what it was given, see `told`.

        That are the directory in which it runs, these variables, `-` for one that is not set, and
        its arguments, which are `words`.
        """
        values = " ".join(f'"${{{name}--}}"' for name in variables)
        file = f'"$(mktemp {shlex.quote(str(self._told))}/XXXXXX)"'
        script = f"""{{ pwd; printf '%s\\n' {values} "$@"; }} > {file}"""
        return (*self._script(script), "sh", *words)

    def told(self) -> list[list[str]]:
        """Return the lines that each task has written down."""
        return [path.read_text().splitlines() for path in self._told.iterdir()]

    @property
    def nstarts(self) -> int:
        """How often a task has started."""
        self.have_all_ended()
        return self._nstarts

    def have_all_ended(self) -> bool:
        """Read what the tasks have said; return whether none of them runs."""
        with suppress(BlockingIOError):
            while lines := os.read(self._fd, _LINES):
                self._nstarts += len(lines)
            return True
        return False

    def all_have_ended(self, jobid: int, clause: str) -> None:
        """Raise Stuck, which names the clause, if a process of the job runs."""
        if not self.have_all_ended():
            text = "was said to be over, and a process of it runs"
            raise Stuck(f"job {format_fluid(jobid, 'f58')} {text}", clause)
