"""perilog's processes, real ones."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from flux_trio.jobtap.builtins.perilog_process import kill_leftovers
from tests.support.instance import DEADLINE_S

pytestmark = pytest.mark.real

DEAD_PID = 1 << 22  # the kernel gives out smaller ones


async def test_process_of_an_instance_that_was_killed_is_ended():
    """And no other: that of another job, or of an instance that runs."""
    processes = {
        "orphan": (DEAD_PID, "ƒ7"),
        "orphan in ASCII": (DEAD_PID, "f7"),
        "other job": (DEAD_PID, "ƒ8"),
        "other instance": (os.getpid(), "ƒ7"),
    }
    started = {
        name: await trio.lowlevel.open_process(
            ["sleep", "1000"], env={"FLUX_TRIO_PERILOG": str(pid), "FLUX_JOB_ID": jobid}
        )
        for name, (pid, jobid) in processes.items()
    }
    kill_leftovers(6)  # ƒ7
    with trio.fail_after(DEADLINE_S):
        for name in ("orphan", "orphan in ASCII"):
            assert await started[name].wait() == -signal.SIGKILL
    for name in ("other job", "other instance"):
        assert started[name].poll() is None
        started[name].kill()
        await started[name].wait()
