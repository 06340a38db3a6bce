"""The program that is exercised: what an exercise does with it, and a program that is a process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

import trio

from flux_trio.client import TOKEN_VARIABLE, URI_VARIABLE
from flux_trio.process.local import reap
from flux_trio.process.proc import PROC, process_ids

TERM_S: Final = 5.0
"""Seconds that the program has to end by itself after SIGTERM; then it gets SIGKILL."""

BUSY: Final = 0.1
"""The part of the time in which the program is busy that counts: it may be about to answer, but it
is not waited for without end."""
CROWDED: Final = 0.25
"""The part of the time that counts while more threads can run than there are processors: then it
may be the instance that is late, or what the program has started in another session."""
_RUNNABLE: Final = "R"


def _is_crowded() -> bool:
    """Return whether somebody waits for a processor (proc(5), loadavg)."""
    try:
        running = int((PROC / "loadavg").read_text().split()[3].partition("/")[0])
    except OSError:
        return False
    return running > (os.cpu_count() or 1)


def _session(sid: int) -> Iterator[tuple[str, int]]:
    """Yield the state, and the ticks of processor time, of each process of a session (proc(5))."""
    for pid in process_ids():
        with suppress(OSError):  # it has ended
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == sid:
                yield fields[0], int(fields[11]) + int(fields[12])


class ProgramNotStarted(Exception):
    """The command cannot be run; the text has the command and the reason."""


class Driven(Protocol):
    """A program that an exercise starts, ends and kills."""

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal, of a program that ended by itself."""

    @property
    def is_running(self) -> bool:
        """Whether the program was started and has not ended."""

    def pace(self) -> float:
        """Return which part of the time since the last call counts as time that the program has
        had: all of it, from 0 to 1, if it had nothing to do.
        """

    async def start(self) -> None:
        """Start it. Raises ProgramNotStarted."""

    async def wait(self) -> None:
        """Wait until it has ended, if it was started."""

    async def kill(self) -> None:
        """End it at once, if it was started."""

    async def end(self) -> None:
        """End it in an orderly way, if it was started."""


class Program:
    """A command that connects to the instance at `uri` with `token`.

    Both are in its environment (FLUX_TRIO_URI, FLUX_TRIO_TOKEN). What it prints goes to standard
    error, so that it cannot mix with the report. The processes that it starts, for example those of
    a script that is its command, are killed with it.
    """

    def __init__(self, command: Sequence[str], uri: str, token: str) -> None:
        self.command = list(command)
        self._environment = os.environ | {URI_VARIABLE: uri, TOKEN_VARIABLE: token}
        self._process: trio.Process | None = None
        self._used = 0  # of the processor, in ticks, when it was looked at last

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal, of a program that ended by itself."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def pace(self) -> float:
        """See `Driven`. On a machine without /proc it is taken to be idle.

        It is idle if it has used no processor, and waits for none.
        """
        if not self._is_idle():
            return BUSY
        return CROWDED if _is_crowded() else 1.0

    def _is_idle(self) -> bool:
        if self._process is None:
            return True
        found = list(_session(self._process.pid))
        used = sum(ticks for _, ticks in found)
        is_idle = used == self._used and all(state != _RUNNABLE for state, _ in found)
        self._used = used
        return is_idle

    async def start(self) -> None:
        """Start a process. Raises ProgramNotStarted."""
        try:
            self._process = await trio.lowlevel.open_process(
                self.command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard error
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramNotStarted(f"{self.command[0]}: {error.strerror}") from None

    async def wait(self) -> None:
        """Wait until the process has ended, if there is one."""
        if self._process is not None:
            await self._process.wait()

    async def kill(self) -> None:
        """End the process, and those that it has started, by SIGKILL."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            await reap(self._process)
            self._process = None

    def _signal(self, signum: int) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signum)

    async def end(self) -> None:
        """End the process by SIGTERM; by SIGKILL if it does not end within TERM_S."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        with trio.move_on_after(TERM_S, shield=True):
            await self._process.wait()
        await self.kill()
