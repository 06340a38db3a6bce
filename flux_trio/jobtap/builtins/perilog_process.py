"""What is perilog's own about its processes: those that pretend, and those of an earlier life.

When the instance is killed its prologs and epilogs go on; they are known by their environment
(`OWNER`), and the instance that takes up their job ends them. Left out: what an end means for the
job.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

OWNER: Final = "FLUX_TRIO_PERILOG"
"""The variable with the pid of the instance that has started a process."""

JOB_ID: Final = "FLUX_JOB_ID"


class PretendedProcess:
    """One that does its work at once, and runs nothing."""

    async def wait(self) -> int:
        """Always 0."""
        await trio.lowlevel.checkpoint()
        return 0

    def signal(self, signum: int) -> None:
        """Nobody is there to hear it."""


def kill_leftovers(jobid: str) -> None:
    """Kill the processes of a job whose instance is gone. `jobid` is as in their environment."""
    mine = f"{JOB_ID}={jobid}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
            if mine in variables and _is_orphan(variables):
                os.kill(int(path.parent.name), signal.SIGKILL)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # it is over, or somebody else's


def _is_orphan(variables: Sequence[bytes]) -> bool:
    """Whether the instance that has started it does not run any more."""
    prefix = f"{OWNER}=".encode()
    owners = [each.removeprefix(prefix) for each in variables if each.startswith(prefix)]
    return bool(owners) and not Path("/proc", owners[0].decode()).exists()
