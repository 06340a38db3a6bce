"""hold-until: a job waits until an outside program says that what it needs is there.

    conf = {"command": ["/usr/local/bin/is-staged"], "interval": 30, "timeout": 10}

    flux-trio submit --dependency=hold-until:/data/run17 ./app

The command is run with the value of the dependency as its last argument: exit code 0 lets the job
go on, 75 (EX_TEMPFAIL) means not yet, and it is asked again after `interval` seconds; any other
ends the job with what the command wrote to standard error. So does one that cannot be run. One that
takes longer than `timeout` seconds, or is ended by a signal, is asked again; so many as `at-once`
says run at a time. What it writes to standard output is not looked at.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

import msgspec
import trio

from flux_trio import jobtap

NOT_YET: Final = 75
NOT_RUN: Final = 127  # as shells have it
LINGER_S: Final = 1.0  # for what it wrote last: somebody else may hold the pipe open
ERROR_BYTES_MAX: Final = 200  # of standard error in the job's exception


Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Conf(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """What it is loaded with; times in seconds."""

    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    interval: Seconds = 30.0
    timeout: Seconds = 10.0
    at_once: Annotated[int, msgspec.Meta(ge=1)] = 8


class HoldUntil(jobtap.Plugin):
    """One task for each dependency that is open."""

    name = "hold-until"

    def __init__(self) -> None:
        self._settings = Conf(command=[])
        self._turns = trio.CapacityLimiter(1)

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """Read what it was loaded with."""
        self._settings = self.read_conf(Conf)
        self._turns.total_tokens = self._settings.at_once

    @jobtap.on("job.dependency.hold-until")
    def depend(self, job: jobtap.Job, dependency: jobtap.Dependency) -> None:
        """Hold the job, and begin to ask."""
        if "\0" in dependency.value:
            raise jobtap.Reject("hold-until: expected a value without NUL")
        text = f"hold-until:{dependency.value}"
        job.add_dependency(text)
        self.start_soon(self._hold, job.id, dependency.value, text)

    async def _hold(self, jobid: int, value: str, text: str) -> None:
        while self._waiting(jobid, text):
            async with self._turns:
                code, said = await self._ask(value)
            job = self._waiting(jobid, text)
            if job is None:
                return
            if code == 0:
                job.remove_dependency(text)
                return
            if code != NOT_YET:
                job.raise_exception("dependency", 0, f"{text}: {said or f'exit code {code}'}")
                return
            await trio.sleep(self._settings.interval)

    def _waiting(self, jobid: int, text: str) -> jobtap.Job | None:
        """The job, unless it was canceled meanwhile, or need not wait for this any more."""
        job = self.jobs.get(jobid)
        if job is None or (job.state == jobtap.State.DEPEND and text not in job.dependencies):
            return None
        return job if job.state in (jobtap.State.NEW, jobtap.State.DEPEND) else None

    async def _ask(self, value: str) -> tuple[int, str]:
        """Exit code and standard error of the command."""
        try:
            process = await trio.lowlevel.open_process(
                [*self._settings.command, value],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return NOT_RUN, f"{self._settings.command[0]}: {error.strerror}"
        assert process.stderr is not None
        code, said = NOT_YET, bytearray()
        with trio.move_on_after(self._settings.timeout):
            async with _ended(process), trio.open_nursery() as nursery:
                nursery.start_soon(_read_beginning, process.stderr, said)
                code = await process.wait()
                nursery.cancel_scope.deadline = trio.current_time() + LINGER_S
        return NOT_YET if code < 0 else code, said.decode(errors="replace").strip()


@asynccontextmanager
async def _ended(process: trio.Process) -> AsyncIterator[None]:
    """After the block nothing of `process` is left, nor of what it started."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()
            if process.stderr is not None:
                await process.stderr.aclose()


async def _read_beginning(stream: trio.abc.ReceiveStream, said: bytearray) -> None:
    """What comes first; the rest is read, so that the writer can go on, and forgotten."""
    async for some in stream:
        said += some[: ERROR_BYTES_MAX - len(said)]
