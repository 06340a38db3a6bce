"""The commands of housekeeping under Trio: one for each rank of a job that has ended.

They run on this machine as the instance owner, as long as the job manager does. What an instance
that was killed has left of them is ended before they run again. Left out: what an end means.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from flux_trio.cores.job_manager.calls import Housekeep, HousekeepingEnded, HousekeepingSignal
from flux_trio.formats import format_fluid
from flux_trio.jobtap.builtins.perilog_process import JOB_ID, OWNER, kill_leftovers
from flux_trio.jobtap.tasks import HostTasks
from flux_trio.messages import Level
from flux_trio.process.console import id_form
from flux_trio.process.local import LocalProcess, open_process
from flux_trio.process.threads import OWN


class HousekeepingRuns:
    """The commands that run; `post` gets the end of each. With `pretends` nothing is executed."""

    def __init__(
        self,
        tasks: HostTasks,
        post: Callable[[HousekeepingEnded], None],
        log: Callable[[Level, str], None],
        *,
        pretends: bool,
    ) -> None:
        self._tasks = tasks
        self._post = post
        self._log = log
        self._pretends = pretends
        self._running: dict[tuple[int, int], LocalProcess] = {}  # by job id and rank

    def begin(self, asked: Housekeep) -> None:
        """Run the command for each rank."""
        self._tasks.start_soon(self._run_all, asked)

    def signal(self, asked: HousekeepingSignal) -> None:
        """Send a signal to the commands that run."""
        for rank in asked.ranks:
            if (process := self._running.get((asked.jobid, rank))) is not None:
                process.signal(asked.signum)

    async def _run_all(self, asked: Housekeep) -> None:
        if asked.again and not self._pretends:
            await OWN.run(kill_leftovers, asked.jobid)
        async with trio.open_nursery() as nursery:
            for rank in asked.pending:
                nursery.start_soon(self._run, asked, rank)

    async def _run(self, asked: Housekeep, rank: int) -> None:
        failure = ""
        if not self._pretends:
            try:
                failure = await self._execute(asked, rank)
            except OSError as error:
                failure = f"{asked.command[0]}: {error.strerror}"
        self._post(HousekeepingEnded(asked.jobid, rank, failure))

    async def _execute(self, asked: Housekeep, rank: int) -> str:
        """Run the command for a rank; return how it has failed. Raises OSError."""
        environment = os.environ | {
            OWNER: str(os.getpid()),
            JOB_ID: format_fluid(asked.jobid, id_form()),
            "FLUX_JOB_USERID": str(asked.userid),
            "FLUX_JOB_RANKS": asked.ranks,
        }
        write = partial(self._write, format_fluid(asked.jobid, "f58"), rank)
        async with open_process(asked.command, environment, write) as process:
            self._running[asked.jobid, rank] = process
            try:
                status = await process.wait()
            finally:
                with suppress(KeyError):
                    del self._running[asked.jobid, rank]
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return f"killed by signal {-code}"
        return f"nonzero exit code {code}" if code else ""

    def _write(self, name: str, rank: int, stream: str, line: str) -> None:
        level = Level.ERR if stream == "stderr" else Level.INFO
        self._log(level, f"housekeeping: (rank {rank}) {name}: {stream}: {line}")
