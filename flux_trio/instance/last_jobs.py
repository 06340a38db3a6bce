"""The jobs of a temporary instance, which has no successor: they end before it does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from flux_trio.broker import ModuleNotStarted
from flux_trio.instance.running import Instance
from flux_trio.messages import USERID_UNKNOWN, FluxError, topics
from flux_trio.protocols import ACTIVE

IDLE_S_MAX: Final = 30.0  # wait for canceled jobs to end: kill-timeout and a little more

Step = Callable[[Callable[[], str], float], object]


async def cancel_jobs(instance: Instance) -> int:
    """Cancel all jobs; return how many there were. Raises FluxError without a job manager."""
    asked = {
        "states": ACTIVE,
        "userid": USERID_UNKNOWN,  # everybody's
        "severity": 0,
        "type": "cancel",
        "note": "the instance ends",
    }
    async with instance.connect("start") as handle:
        return int((await handle.call(topics.JOB_RAISEALL, asked))["count"])


async def end_jobs(instance: Instance, step: Step = lambda *_: None) -> None:
    """Cancel all jobs, and wait until they are gone: a temporary instance has no successor.

    Modules that jobs need to end may have been removed, or a scheduler of the user is gone: these
    modules are loaded again. `step` is told what is waited for, and how long at most.
    """
    with suppress(FluxError), trio.move_on_after(IDLE_S_MAX):
        step(lambda: "the job manager, which is to cancel the jobs", IDLE_S_MAX)
        await _load_if_gone(instance, "job-manager")
        njobs = await cancel_jobs(instance)
        step(lambda: f"the end of {njobs} jobs, which were canceled", IDLE_S_MAX)
        if njobs:
            await _load_if_gone(instance, "resource", "sched", "job-exec")
        async with instance.connect("start") as handle:
            await handle.call(topics.JOB_DRAIN, {})


async def _load_if_gone(instance: Instance, *names: str) -> None:
    """Load the modules whose services nobody has, as far as they start."""
    for name in names:
        if name not in instance.supervisor and name not in instance.router.services:
            with suppress(FluxError, ModuleNotStarted):
                await instance.supervisor.load(name)
