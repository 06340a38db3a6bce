"""A command of the operator, run on this machine: started, listened to, ended when it must.

It leads a session of its own, so that a signal reaches the processes that it starts, and it never
outlives the block that opened it. What it has started in other sessions is known by its environment
(`MARK`); it is killed too if the command had to be ended. A command that ends by itself may leave a
daemon. Prologs, epilogs and checks of nodes are such commands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import trio

from flux_trio.durations import Durations

LINE_BYTES_MAX: Final = 1000  # of output; what is longer is cut into several lines
PIPE_GRACE_S: Final = 1.0  # for output that somebody outside the session still holds open

MARK: Final = "FLUX_TRIO_COMMAND"
"""The variable that a command and all that it starts have in their environment."""

SEARCHES_MAX: Final = 10  # for what a process has started while it was being found

WriteLine = Callable[[str, str], None]  # stream, line


class Process(Protocol):
    async def wait(self) -> int:
        """Its wait status, once it has ended."""

    def signal(self, signum: int) -> None:
        """Send a signal to it and to what it has started."""


class LocalProcess:
    """A process on this machine."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.was_signaled = False  # while it ran

    async def wait(self) -> int:
        """A negative return code is a signal."""
        code = await self._process.wait()
        return -code if code < 0 else code << 8

    def signal(self, signum: int) -> None:
        """To its session; one that is over is no error."""
        self.was_signaled |= self._process.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signum)


@asynccontextmanager
async def open_process(
    command: Sequence[str], environment: Mapping[str, str], write: WriteLine
) -> AsyncIterator[LocalProcess]:
    """Run `command` for the length of the block; `write` gets its output line by line.

    Raises OSError when it cannot be started. After the block nothing of its session is left, and
    nothing at all if it did not end by itself.
    """
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
            with trio.CancelScope(shield=True):
                await process.wait()
                if process.was_signaled:
                    await trio.to_thread.run_sync(_kill_marked, mark)
            nursery.cancel_scope.deadline = trio.current_time() + PIPE_GRACE_S


@dataclass(slots=True)
class Ending:
    """How a process ended; `status` is a wait status."""

    status: int = 0
    canceled: bool = False
    timed_out: bool = False
    killed: bool = False  # SIGTERM did not end it

    @property
    def failed(self) -> bool:
        """Whether it did not do its work."""
        return bool(self.status or self.canceled or self.timed_out)


async def run_to_end(
    process: Process,
    timeout: float,
    kill_timeout: float,
    canceled: trio.Event,
    durations: Durations,
) -> Ending:
    """Wait for it: SIGTERM after `timeout` or once `canceled`, SIGKILL `kill_timeout` later.

    Both are in seconds; math.inf is no timeout.
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
    """The processes on this machine with `variable` (NAME=VALUE) in their environment, and that."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it is over, or somebody else's
            variables = path.read_bytes().split(b"\0")
            if variable.encode() in variables:
                yield int(path.parent.name), variables


def _kill_marked(mark: str) -> None:
    for _ in range(SEARCHES_MAX):
        found = [pid for pid, _ in marked(f"{MARK}={mark}")]
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


async def _read_lines(pipe: trio.abc.ReceiveStream | None, stream: str, write: WriteLine) -> None:
    assert pipe is not None  # asked for
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
