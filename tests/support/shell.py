"""A real shell host, a client of it, and the processes that must not be left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from flux_trio.cores.exec.vocabulary import ShellConnected, ShellInput, ShellLost
from flux_trio.services.shell_client import ShellClient
from flux_trio.shell.protocol import (
    JOBS_NAME,
    Ack,
    Done,
    ShellRequest,
    Start,
    Started,
    Task,
    output_name,
)

TEST_S_MAX = 300.0  # only what hangs takes so long, however busy the machine is
MARK = "FLUX_TRIO_TEST_DIRECTORY"  # in the environment of every task

T = TypeVar("T")


class Shell:
    """A client, and what it has heard. As the exec core does, it says all again when connected.

    A host that is being killed may still accept a connection, only to drop it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._heard, self._inputs = trio.open_memory_channel[ShellInput](1000)
        self.client = ShellClient(directory, self._heard.send_nowait)
        self._sent: list[ShellRequest] = []

    def send(self, request: ShellRequest) -> None:
        """Send, and send again if need be."""
        self._sent.append(request)
        self.client.send(request)

    async def kill_host(self) -> None:
        """SIGKILL the host, and await the next one."""
        self._sent.clear()
        (host,) = hosts(self.directory)
        os.kill(host, signal.SIGKILL)
        await self.hear(ShellLost)
        await self.hear(ShellConnected)

    def start(self, jobid: int, *argv: str, ntasks: int = 1, **options: Any) -> None:
        """Ask for a job of `ntasks` tasks; `options` are env, cores and what `Start` has.

        `of_tasks` has the files of the standard streams of each task.
        """
        env = {"PATH": "/usr/bin:/bin", MARK: str(self.directory)} | options.get("env", {})
        cores = options.get("cores", [])
        of_tasks = options.get("of_tasks", {})
        tasks = [
            Task(taskid, {"FLUX_TASK_RANK": str(taskid)}, cores, of_tasks)
            for taskid in range(ntasks)
        ]
        cwd, input_ = options.get("cwd", "/"), options.get("input", False)
        limits = options.get("limits", {})
        more = {
            key: options[key] for key in ("pmi", "tmpdir", "files", "labeled") if key in options
        }
        self.send(Start(jobid, list(argv), env, cwd, tasks, input_, limits, **more))

    async def hear(self, kind: type[T], jobid: int | None = None) -> T:
        """The next thing of that kind, of that job if one is given; others are passed over."""
        while True:
            heard = await self._inputs.receive()
            if isinstance(heard, ShellConnected):
                for request in self._sent:
                    self.client.send(request)
            if isinstance(heard, kind) and jobid in (None, getattr(heard, "id", None)):
                return heard

    async def run(self, jobid: int, *argv: str, **options: Any) -> Done:
        """Start a job and await its end."""
        self.start(jobid, *argv, **options)
        assert await self.hear(Started, jobid) == Started(jobid)
        return await self.hear(Done, jobid)

    async def output_holds(self, jobid: int, text: str, taskid: int = 0) -> None:
        """Await `text` at the end of a task's standard output."""
        await until(lambda: self.output(jobid, taskid).endswith(text))

    def output(self, jobid: int, taskid: int = 0, stream: str = "stdout") -> str:
        """What a task has written."""
        path = self.directory / JOBS_NAME / output_name(jobid, taskid, stream)
        return path.read_text() if path.exists() else ""

    def forget(self, *jobids: int) -> None:
        """Acknowledge jobs."""
        for jobid in jobids:
            self.send(Ack(jobid))


@asynccontextmanager
async def open_shell(directory: Path) -> AsyncIterator[Shell]:
    """A connected client; on leaving, the host is told to end if nothing runs."""
    shell = Shell(directory)
    with trio.fail_after(TEST_S_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shell.client.run)
            await shell.hear(ShellConnected)
            yield shell
            nursery.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    """Await what other processes do. Raises trio.TooSlowError."""
    with trio.fail_after(TEST_S_MAX):
        while not condition():  # noqa: ASYNC110  # they set no event
            await trio.sleep(0.005)


@contextmanager
def no_process_left(directory: Path) -> Iterator[None]:
    """Nothing that belongs to `directory` runs afterwards."""
    yield
    deadline = time.monotonic() + TEST_S_MAX
    while left := {"hosts": hosts(directory), "tasks": tasks(directory)}:
        if not any(left.values()):
            break
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.01)


def hosts(directory: Path) -> list[int]:
    """The shell hosts of `directory`, by process id."""
    words = b"flux_trio.shell\0" + str(directory).encode() + b"\0"
    return [pid for pid in _processes() if words in _read(pid, "cmdline")]


def tasks(directory: Path) -> list[int]:
    """The processes that jobs of `directory` have started, at any remove."""
    return processes_with(f"{MARK}={directory}")


async def tasks_in_number(directory: Path, count: int) -> list[int]:
    """Await `count` processes of jobs. While a process is executed, its environment is empty."""
    await until(lambda: len(tasks(directory)) == count)
    return tasks(directory)


def processes_of(words: bytes) -> list[int]:
    """The processes whose command ends with `words`, a NUL after each."""
    return [pid for pid in _processes() if words in _read(pid, "cmdline")]


def processes_about(word: str) -> list[int]:
    """The processes with `word` in their command, also in that of a shell that is to run it."""
    return [pid for pid in _processes() if word.encode() in _read(pid, "cmdline")]


def processes_with(variable: str) -> list[int]:
    """The processes with `variable`, NAME=VALUE, in their environment."""
    wanted = variable.encode()
    return [pid for pid in _processes() if wanted in _read(pid, "environ").split(b"\0")]


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
