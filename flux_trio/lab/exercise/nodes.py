"""The acts for a scheduler in which nodes are drained, fail, or are taken away (RFC 28)."""

from __future__ import annotations

from typing import Final

from flux_trio.lab.exercise.sched_jobs import (
    CORES,
    DOUBLE,
    NNODES,
    fill,
    held_on,
    wait_until_seen,
    waits,
)
from flux_trio.lab.exercise.stage import LONG_S, Acts, Stage, all_have
from flux_trio.messages import topics

FIRST: Final = "0"
LAST: Final = str(NNODES - 1)  # the target that is taken away

NODE_ACTS: Final = Acts()


async def _drain(stage: Stage, targets: str) -> None:
    await stage.call(topics.RESOURCE_DRAIN, {"targets": targets, "reason": "an exercise"})


async def _undrain(stage: Stage, targets: str) -> None:
    await stage.call(topics.RESOURCE_UNDRAIN, {"targets": targets})


@NODE_ACTS.act(
    "a node is drained and undrained",
    "jobs that need it wait until it is back",
    ("28.offline.3", "28.online.3"),
)
async def drained(stage: Stage) -> None:
    """A job on all nodes, or on all cores, has to wait for any node that is drained."""
    for target in (FIRST, LAST):
        await _drain(stage, target)
        await stage.event(await stage.submit(), "clean")
        waiting = [
            await waits(stage, "28.offline.3", nnodes=NNODES),
            await waits(stage, "28.offline.3", ntasks=NNODES * CORES),
        ]
        await _undrain(stage, target)
        await all_have(stage, waiting, "clean", "28.online.3")


@NODE_ACTS.act(
    "a node with a running job is drained and undrained",
    "the job runs on, and keeps its cores",
    ("28.offline.3", "28.offline.4", DOUBLE),
)
async def drained_while_it_runs(stage: Stage) -> None:
    running = await stage.submit(nnodes=NNODES, ntasks=NNODES * (CORES - 1), run_s=LONG_S)
    await stage.event(running, "start")
    await _drain(stage, LAST)
    waiting = await waits(stage, DOUBLE, nnodes=1, ntasks=2)  # a core of each node is free
    await _undrain(stage, LAST)
    await wait_until_seen(stage, nnodes=1, ntasks=2)
    stage.must_wait(waiting, DOUBLE)
    stage.must_run(running, "28.offline.4")
    await stage.cancel(running)


@NODE_ACTS.act(
    "the program is started while a node is drained",
    "the first grow says that it is offline",
    ("28.offline.3", "28.online.3"),
)
async def started_while_drained(stage: Stage) -> None:
    await stage.end_program(topics.RESOURCE)
    await _drain(stage, LAST)
    await stage.serve()
    waiting = await waits(stage, "28.offline.3", nnodes=NNODES)
    await _undrain(stage, LAST)
    await stage.event(waiting, "clean", "28.online.3")


@NODE_ACTS.act(
    "a node fails and comes back",
    "jobs that need it wait until it is back; nobody but the execution service ends its job",
    ("28.offline.3", "28.offline.4", "28.online.3"),
)
async def node_fails(stage: Stage) -> None:
    running = await fill(stage)
    await stage.call(topics.RESOURCE_DOWN, {"targets": FIRST, "reason": "an exercise"})
    await stage.event(running, "clean")
    await stage.event(await stage.submit(), "clean")
    waiting = await waits(stage, "28.offline.3", nnodes=NNODES)
    await stage.call(topics.RESOURCE_UP, {"targets": FIRST})
    await stage.event(waiting, "clean", "28.online.3")


@NODE_ACTS.act(
    "a node is taken away and given back",
    "its job gets an exception, waiting jobs are judged anew, the node is released",
    ("28.shrink.3", "28.shrink.4", "28.shrink.5", "28.shrink.6", "28.release.1"),
)
async def shrunk(stage: Stage) -> None:
    running = await fill(stage)
    waiting = await stage.submit(nnodes=NNODES)
    stage.hopeless.update((running, waiting))
    await stage.asked(topics.SCHED_ALLOC, waiting)
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": LAST})
    await stage.event(running, "exception", "28.shrink.4")
    await all_have(stage, [running, waiting, await stage.submit()], "clean")
    too_large = await stage.submit(nnodes=NNODES)
    stage.hopeless.add(too_large)
    await stage.event(too_large, "clean", "27.deny.1")
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
    await stage.event(await stage.submit(nnodes=NNODES), "clean")


@NODE_ACTS.act(
    "a node is taken away while a job ends on it",
    "it is released when it is free, and not before",
    ("28.shrink.4", "28.shrink.6"),
)
async def shrunk_while_it_ends(stage: Stage) -> None:
    """A job takes its time to end when a node of it is taken away."""
    async with held_on(stage) as jobid:
        stage.hopeless.add(jobid)
        await stage.call(topics.RESOURCE_EXCLUDE, {"targets": LAST})
        await stage.event(jobid, "exception", "28.shrink.4")
        await wait_until_seen(stage)
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
    await stage.event(await stage.submit(nnodes=NNODES), "clean")
