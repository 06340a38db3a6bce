"""hold-until: a job waits until an external program says that it may start.

    conf = {"command": ["/usr/local/bin/is-staged"], "interval": 30, "timeout": 10}

    flux-trio submit --dependency=hold-until:/data/run17 ./app

The command is run with the value of the dependency as its last argument. Exit code 0 lets the job
go on. 75 (EX_TEMPFAIL) means not yet: the command is run again after `interval` seconds. Another
exit code ends the job with the command's standard error; so does a command that cannot be run. A
command that takes longer than `timeout` seconds, or is ended by a signal, is run again. At most
`at-once` commands run at a time. Standard output is ignored.
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
NOT_RUN: Final = 127  # exit code of shells
LINGER_S: Final = 1.0  # for its last output: another process may hold the pipe open
KILLED_S: Final = 5.0  # for the end of a killed command, which may wait for a disk that hangs
ERROR_BYTES_MAX: Final = 200  # of standard error in the job's exception


Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Conf(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """The plugin's conf; times in seconds."""

    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    interval: Seconds = 30.0
    timeout: Seconds = 10.0
    at_once: Annotated[int, msgspec.Meta(ge=1)] = 8


class HoldUntil(jobtap.Plugin):
    """Runs one task for each open dependency."""

    name = "hold-until"

    def __init__(self) -> None:
        self._settings = Conf(command=[])
        self._turns = trio.CapacityLimiter(1)

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """Read the conf."""
        self._settings = self.read_conf(Conf)
        self._turns.total_tokens = self._settings.at_once

    @jobtap.on("job.dependency.hold-until")
    def depend(self, job: jobtap.Job, dependency: jobtap.Dependency) -> None:
        """Hold the job, and start to run the command."""
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
        """Return the job, or None if it has ended or does not wait for this any more."""
        job = self.jobs.get(jobid)
        if job is None or (job.state == jobtap.State.DEPEND and text not in job.dependencies):
            return None
        return job if job.state in (jobtap.State.NEW, jobtap.State.DEPEND) else None

    async def _ask(self, value: str) -> tuple[int, str]:
        """Run the command; return its exit code and standard error."""
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
    """Kill `process` and its process group after the block."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with trio.move_on_after(KILLED_S, shield=True):
            await process.wait()
        if process.stderr is not None:
            await process.stderr.aclose()


async def _read_beginning(stream: trio.abc.ReceiveStream, said: bytearray) -> None:
    """Keep the first bytes; read and drop the rest, so that the writer can go on."""
    async for some in stream:
        said += some[: ERROR_BYTES_MAX - len(said)]
