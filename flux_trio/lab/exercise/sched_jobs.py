"""The jobs of the acts for a scheduler: such as fill the machine, have to wait, or end late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from flux_trio.editions.rfc32 import StartType
from flux_trio.lab.exercise.stage import LONG_S, SCHED_MACHINE, Stage
from flux_trio.lab.exercise.standing_in import START, executing
from flux_trio.messages import topics

NNODES: Final = SCHED_MACHINE.nnodes
CORES: Final = SCHED_MACHINE.ncores // NNODES  # of each node
DOUBLE: Final = "invariant.no-double-allocation"


async def fill(stage: Stage, run_s: float = LONG_S) -> int:
    """Fill the machine with one job that runs."""
    jobid = await stage.submit(nnodes=NNODES, exclusive=True, run_s=run_s)
    await stage.event(jobid, "start")
    return jobid


async def wait_until_seen(stage: Stage, **shape: Any) -> None:
    """Wait until the program must have seen what it was told before.

    A job that has to wait as another one of this `shape` does is asked for and canceled: the answer
    to that comes after all that the program does at once.
    """
    await stage.canceled(await stage.submit(**shape))


async def waits(stage: Stage, clause: str, **shape: Any) -> int:
    """Submit a job that has to wait, and see to it that it does."""
    jobid = await stage.submit(**shape)
    await stage.asked(topics.SCHED_ALLOC, jobid)
    await wait_until_seen(stage, **shape)
    stage.must_wait(jobid, clause)
    return jobid


@asynccontextmanager
async def held_on(stage: Stage, **shape: Any) -> AsyncIterator[int]:
    """Have a job on all nodes that ends no sooner than at the end of the block."""
    async with executing(stage) as service:
        jobid = await stage.submit(nnodes=NNODES, exclusive=True, **shape)
        start = await service.asked(START)
        service.say(start, StartType.START)
        await stage.event(jobid, "start")
        yield jobid
        service.finish(start, str(SCHED_MACHINE.ranks))
        await stage.event(jobid, "clean")
    await stage.call(topics.MODULE_RELOAD, {"name": topics.JOB_EXEC})
