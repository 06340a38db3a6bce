"""hold-until: a job waits until an outside program says that what it needs is there.

    conf = {"command": ["/usr/local/bin/is-staged"], "interval": 30, "timeout": 10}

    flux-trio submit --dependency=hold-until:/data/run17 ./app

The command is run with the value of the dependency as its last argument: exit code 0 lets the job
go on, 75 (EX_TEMPFAIL) means not yet, and it is asked again after `interval` seconds; any other
ends the job with what the command wrote to standard error. So does one that cannot be run. One that
takes longer than `timeout` seconds is killed and asked again.
"""

from __future__ import annotations

import subprocess
from typing import Final

import msgspec
import trio

from flux_trio import jobtap

NOT_YET: Final = 75
ERROR_CHARS_MAX: Final = 200  # of standard error in the job's exception


class Conf(msgspec.Struct, forbid_unknown_fields=True):
    """What it is loaded with; times in seconds."""

    command: list[str]
    interval: float = 30.0
    timeout: float = 10.0


class HoldUntil(jobtap.Plugin):
    """One task for each dependency that is open."""

    name = "hold-until"

    def __init__(self) -> None:
        self._settings = Conf(command=[])

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """Read what it was loaded with."""
        self._settings = self.read_conf(Conf)

    @jobtap.on("job.dependency.hold-until")
    def depend(self, job: jobtap.Job, dependency: jobtap.Dependency) -> None:
        """Hold the job, and begin to ask."""
        text = f"hold-until:{dependency.value}"
        job.add_dependency(text)
        self.start_soon(self._hold, job.id, dependency.value, text)

    async def _hold(self, jobid: int, value: str, text: str) -> None:
        while self._waiting(jobid):
            code, said = await self._ask(value)
            job = self._waiting(jobid)
            if job is None:
                return
            if code == 0:
                job.remove_dependency(text)
                return
            if code != NOT_YET:
                job.raise_exception("dependency", 0, f"{text}: {said or f'exit code {code}'}")
                return
            await trio.sleep(self._settings.interval)

    def _waiting(self, jobid: int) -> jobtap.Job | None:
        """The job, unless it was canceled meanwhile."""
        job = self.jobs.get(jobid)
        pending = (jobtap.State.NEW, jobtap.State.DEPEND)
        return job if job is not None and job.state in pending else None

    async def _ask(self, value: str) -> tuple[int, str]:
        """Exit code and standard error of the command."""
        with trio.move_on_after(self._settings.timeout):
            try:
                done = await trio.run_process(
                    [*self._settings.command, value],
                    stdin=subprocess.DEVNULL,
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                )
            except OSError as error:
                return 127, f"{self._settings.command[0]}: {error.strerror}"
            words = done.stderr.decode(errors="replace").strip()
            return done.returncode, words[:ERROR_CHARS_MAX]
        return NOT_YET, ""
