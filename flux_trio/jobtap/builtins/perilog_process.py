"""The processes of perilog: simulated ones, and those that are left after a restart.

If the instance is killed, its prologs and epilogs go on. A variable in their environment (`OWNER`)
identifies them, and the instance that takes up their job ends them. Left out: what an end means for
the job.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from flux_trio.formats import FluidForm, format_fluid
from flux_trio.process.local import marked

OWNER: Final = "FLUX_TRIO_PERILOG"
"""The variable with the pid of the instance that has started a process."""

JOB_ID: Final = "FLUX_JOB_ID"


class PretendedProcess:
    """A process that ends at once with status 0; nothing runs."""

    async def wait(self) -> int:
        """Return 0."""
        await trio.lowlevel.checkpoint()
        return 0

    def signal(self, signum: int) -> None:
        """Do nothing."""


def kill_leftovers(jobid: int) -> None:
    """Kill the processes of a job whose instance has ended, in whichever locale it was."""
    forms: tuple[FluidForm, ...] = ("f58", "f58plain")
    for form in forms:
        for pid, variables in marked(f"{JOB_ID}={format_fluid(jobid, form)}"):
            if _is_orphan(variables):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _is_orphan(variables: Sequence[bytes]) -> bool:
    """Return whether the instance that started the process has ended."""
    prefix = f"{OWNER}=".encode()
    owners = [each.removeprefix(prefix) for each in variables if each.startswith(prefix)]
    return bool(owners) and not Path("/proc", owners[0].decode()).exists()
