"""Runs a command of the operator on this machine: prologs, epilogs and checks of nodes.

The command leads its own session, so that signals reach the processes that it starts, and it never
outlives the block that opened it. Processes that it started in other sessions are found by their
environment (`MARK`); they are killed too if the command had to be killed. A command that ends by
itself may leave a daemon.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec
import trio

from flux_trio.clock import Durations
from flux_trio.process.private import untrusted
from flux_trio.process.proc import PROC, process_ids
from flux_trio.process.threads import OWN

LINE_BYTES_MAX: Final = 1000  # of output; a longer line is split
PIPE_GRACE_S: Final = 1.0  # for a process outside the session that still holds the pipe open

MARK: Final = "FLUX_TRIO_COMMAND"
"""An environment variable of the command and of all processes that it starts."""

SEARCHES_MAX: Final = 10  # repeated because processes start others during a search

KILLED_S_MAX: Final = 5.0
"""Seconds to wait for the end of a process that got SIGKILL. One that does not end by then waits in
the kernel for a disk or a file system that hangs; it ends when that answers."""

WriteLine = Callable[[str, str], None]  # stream, line


class Process(Protocol):
    async def wait(self) -> int:
        """Wait for the end; return the wait status."""

    def signal(self, signum: int) -> None:
        """Send a signal to the process and to those it has started."""


class LocalProcess:
    """A process on this machine."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.was_signaled = False  # while it ran

    async def wait(self) -> int:
        code = await self._process.wait()
        return -code if code < 0 else code << 8  # a negative return code is a signal

    def signal(self, signum: int) -> None:
        """Send a signal to the session; no error if it has ended."""
        self.was_signaled |= self._process.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signum)


@asynccontextmanager
async def open_process(
    command: Sequence[str], environment: Mapping[str, str], write: WriteLine
) -> AsyncIterator[LocalProcess]:
    """Run `command` during the block; `write` gets its output line by line.

    Raises OSError if it cannot be started, or if others can change its program. After the block no
    process of its session is left; if the command had to be killed, none of its other processes is
    left either.
    """
    _check_program(command[0], environment)
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    pipe = subprocess.PIPE
    started = await trio.lowlevel.open_process(
        command,
        env={**environment, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
    )
    process = LocalProcess(started)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_lines, started.stdout, "stdout", write)
        nursery.start_soon(_read_lines, started.stderr, "stderr", write)
        try:
            yield process
        finally:
            process.signal(signal.SIGKILL)
            await reap(started)
            if process.was_signaled:
                with trio.move_on_after(KILLED_S_MAX, shield=True):
                    await OWN.run(_kill_marked, mark, abandon_on_cancel=True)
            nursery.cancel_scope.deadline = trio.current_time() + PIPE_GRACE_S


def _check_program(name: str, environment: Mapping[str, str]) -> None:
    """Raise PermissionError if `name` is a program that this user should not execute."""
    found = shutil.which(name, path=environment.get("PATH"))
    if found is not None and (reason := untrusted(Path(found))):
        raise PermissionError(errno.EPERM, reason, name)


async def reap(process: trio.Process) -> None:
    """Wait at most KILLED_S_MAX for the end of a process that got SIGKILL, even if cancelled."""
    with trio.move_on_after(KILLED_S_MAX, shield=True):
        await process.wait()


class Ending(msgspec.Struct):
    """How a process ended; `status` is a wait status."""

    status: int = 0
    canceled: bool = False
    timed_out: bool = False
    killed: bool = False  # it did not end on SIGTERM

    @property
    def failed(self) -> bool:
        return bool(self.status or self.canceled or self.timed_out)


async def run_to_end(
    process: Process,
    timeout: float,
    kill_timeout: float,
    canceled: trio.Event,
    durations: Durations,
) -> Ending:
    """Wait for the process: SIGTERM after `timeout` or `canceled`, SIGKILL `kill_timeout` later.

    Both are in seconds; math.inf means no timeout.
    """
    ending = Ending()

    async def end_it() -> None:
        await durations.wait(canceled, timeout)
        ending.canceled = canceled.is_set()
        ending.timed_out = not ending.canceled
        process.signal(signal.SIGTERM)
        await durations.sleep(kill_timeout)
        ending.killed = True
        process.signal(signal.SIGKILL)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_it)
        ending.status = await process.wait()
        nursery.cancel_scope.cancel()
    return ending


def marked(variable: str) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the processes of this machine that have `variable` (NAME=VALUE), with all variables."""
    for pid in process_ids():
        with suppress(OSError):  # it has ended, or belongs to another user
            variables = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
            if variable.encode() in variables:
                yield pid, variables


def _kill_marked(mark: str) -> None:
    for _ in range(SEARCHES_MAX):
        found = [pid for pid, _ in marked(f"{MARK}={mark}")]
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


async def _read_lines(pipe: trio.abc.ReceiveStream | None, stream: str, write: WriteLine) -> None:
    assert pipe is not None  # open_process asked for a pipe
    async with pipe:
        rest = b""
        async for chunk in pipe:
            *lines, rest = (rest + chunk).split(b"\n")
            while len(rest) > LINE_BYTES_MAX:
                lines.append(rest[:LINE_BYTES_MAX])
                rest = rest[LINE_BYTES_MAX:]
            for line in lines:
                write(stream, line.decode(errors="replace"))
        if rest:
            write(stream, rest.decode(errors="replace"))
