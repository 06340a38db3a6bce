"""The jobs of the acts for a scheduler: such as fill the machine, have to wait, or end late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import Idset
from flux_trio.lab.exercise.machines import SCHED_MACHINE
from flux_trio.lab.exercise.stage import LONG_S, Stage, all_have, many, resources_of
from flux_trio.lab.exercise.substitute_services import START, StandIn, executing
from flux_trio.messages import Request, topics

NNODES: Final = SCHED_MACHINE.nnodes
CORES: Final = SCHED_MACHINE.ncores // NNODES  # of each node
DOUBLE: Final = "invariant.no-double-allocation"


async def fill(stage: Stage, run_s: float = LONG_S) -> int:
    """Fill the machine with one job that runs."""
    jobid = await stage.submit(nnodes=NNODES, exclusive=True, run_s=run_s)
    await stage.event(jobid, "start")
    return jobid


async def one_on_each(stage: Stage, count: int, **shape: Any) -> dict[int, list[int]]:
    """Fill the machine with equal jobs that each run on one node; return them by rank."""
    jobids = await many(stage, count, run_s=LONG_S, **shape)
    await all_have(stage, jobids, "start")
    found: dict[int, list[int]] = {}
    for jobid in jobids:
        (rank,) = (await resources_of(stage, jobid)).ranks
        found.setdefault(rank, []).append(jobid)
    return found


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


class Held:
    """A job on all nodes that ends when the act says so."""

    def __init__(self, jobid: int, service: StandIn, start: Request) -> None:
        self.id = jobid
        self._service = service
        self._start = start
        self._ranks = SCHED_MACHINE.ranks  # those that are not released
        self._has_finished = False

    def release(self, ranks: str) -> None:
        """Say that the tasks have ended, and that some ranks are released."""
        if not self._has_finished:
            self._service.say(self._start, StartType.FINISH, status=0)
        self._has_finished = True
        self._ranks -= Idset.parse(ranks)
        final = not self._ranks
        self._service.say(self._start, StartType.RELEASE, ranks=ranks, final=final)

    def end(self) -> None:
        """Say that the job has ended."""
        self.release(str(self._ranks))


@asynccontextmanager
async def held_on(stage: Stage, **shape: Any) -> AsyncIterator[Held]:
    """Have a job on all nodes that ends no sooner than at the end of the block."""
    async with executing(stage) as service:
        jobid = await stage.submit(nnodes=NNODES, exclusive=True, **shape)
        start = await service.asked(START)
        service.say(start, StartType.START)
        await stage.event(jobid, "start")
        held = Held(jobid, service, start)
        yield held
        held.end()
        await stage.event(jobid, "clean")
    await stage.call(topics.MODULE_RELOAD, {"name": topics.JOB_EXEC})
