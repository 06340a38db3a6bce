"""The acts for a scheduler in which nodes are drained, fail, or are taken away (RFC 28)."""

from __future__ import annotations

from typing import Final

from flux_trio.lab.exercise.acts import Acts, where_targets_are_taken, where_targets_stay
from flux_trio.lab.exercise.sched_jobs import (
    CORES,
    DOUBLE,
    NNODES,
    fill,
    held_on,
    one_on_each,
    wait_until_seen,
    waits,
)
from flux_trio.lab.exercise.stage import LONG_S, UNHARMED, Stage, all_have, many, resources_of
from flux_trio.messages import topics

FIRST: Final = 0
LAST: Final = NNODES - 1
STAYS: Final = 1
TAKEN: Final = "0,2-3"  # all but one

NODE_ACTS: Final = Acts()


async def drain(stage: Stage, targets: str) -> None:
    await stage.call(topics.RESOURCE_DRAIN, {"targets": targets, "reason": "an exercise"})


async def undrain(stage: Stage, targets: str) -> None:
    await stage.call(topics.RESOURCE_UNDRAIN, {"targets": targets})


@NODE_ACTS.act(
    "a node is drained and undrained",
    "jobs that need it wait until it is back",
    ("28.offline.3", "28.online.3"),
)
async def drained(stage: Stage) -> None:
    """A job on all nodes, or on all cores, has to wait for any node that is drained."""
    for targets in (str(FIRST), str(LAST), TAKEN):
        await drain(stage, targets)
        await stage.event(await stage.submit(), "clean")
        nnodes = 2 if targets == TAKEN else NNODES  # one more than there are
        waiting = [
            await waits(stage, "28.offline.3", nnodes=nnodes),
            await waits(stage, "28.offline.3", ntasks=NNODES * CORES),
        ]
        await undrain(stage, targets)
        await all_have(stage, waiting, "clean", "28.online.3")


@NODE_ACTS.act(
    "all nodes are drained",
    "jobs wait, and are not denied",
    ("28.offline.3", "28.criteria.3", "28.online.3"),
)
async def all_drained(stage: Stage) -> None:
    """One job runs, one has waited before, others come later."""
    running = await stage.submit(nnodes=NNODES, run_s=LONG_S)
    await stage.event(running, "start")
    before = await waits(stage, DOUBLE, nnodes=NNODES, exclusive=True)
    await drain(stage, str(stage.machine.ranks))
    await wait_until_seen(stage)
    stage.must_wait(before, "28.offline.3")
    await stage.cancel(before)  # else it may be for its sake that others wait
    waiting = [
        await waits(stage, "28.offline.3"),
        await waits(stage, "28.offline.3", nnodes=NNODES, exclusive=True),
    ]
    await stage.cancel(running)
    await stage.event(running, "clean")
    await undrain(stage, str(stage.machine.ranks))
    await all_have(stage, waiting, "clean", "28.online.3")


@NODE_ACTS.act(
    "a node with a running job is drained and undrained",
    "the job runs on, and keeps its cores",
    ("28.offline.3", "28.offline.4", DOUBLE),
)
async def drained_while_it_runs(stage: Stage) -> None:
    running = await stage.submit(nnodes=NNODES, ntasks=NNODES * (CORES - 1), run_s=LONG_S)
    await stage.event(running, "start")
    await drain(stage, str(LAST))
    waiting = await waits(stage, DOUBLE, nnodes=1, ntasks=2)  # a core of each node is free
    await undrain(stage, str(LAST))
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
    await drain(stage, str(LAST))
    await stage.serve()
    waiting = await waits(stage, "28.offline.3", nnodes=NNODES)
    await undrain(stage, str(LAST))
    await stage.event(waiting, "clean", "28.online.3")


@NODE_ACTS.act(
    "a node fails and comes back",
    "jobs that need it wait until it is back; nobody but the execution service ends its job",
    ("28.offline.3", "28.offline.4", "28.online.3"),
)
async def node_fails(stage: Stage) -> None:
    running = await fill(stage)
    stage.touched.add(running)
    await stage.call(topics.RESOURCE_DOWN, {"targets": str(FIRST), "reason": "an exercise"})
    await stage.event(running, "clean")
    await stage.event(await stage.submit(), "clean")
    waiting = await waits(stage, "28.offline.3", nnodes=NNODES)
    await stage.call(topics.RESOURCE_UP, {"targets": str(FIRST)})
    await stage.event(waiting, "clean", "28.online.3")


@NODE_ACTS.act(
    "nodes are taken away and given back",
    "their jobs get an exception and no other ones, waiting jobs are judged anew, the nodes are "
    "released",
    ("28.shrink.3", "28.shrink.4", "28.shrink.5", "28.shrink.6", "28.release.1", UNHARMED),
    where=where_targets_are_taken,
)
async def shrunk(stage: Stage) -> None:
    """A job is on each node, and one waits for all of them; one node stays."""
    running = await one_on_each(stage, NNODES, nnodes=1, exclusive=True)
    waiting = await stage.submit(nnodes=NNODES)
    fits = await stage.submit(nnodes=1, exclusive=True)
    ended = [running[rank][0] for rank in running if rank != STAYS]
    stage.hopeless.update((*ended, waiting))
    await stage.asked(topics.SCHED_ALLOC, fits)
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": TAKEN})
    await all_have(stage, ended, "exception", "28.shrink.4")
    await all_have(stage, [*ended, waiting], "clean")
    stage.must_run(running[STAYS][0], UNHARMED)
    too_large = await stage.submit(nnodes=2)
    stage.hopeless.add(too_large)
    await stage.event(too_large, "clean", "27.deny.1")
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
    await stage.event(fits, "clean")
    waiting = await waits(stage, DOUBLE, nnodes=NNODES)
    await stage.cancel(running[STAYS][0])
    await stage.event(waiting, "clean")


@NODE_ACTS.act(
    "one core of each job's nodes is on a node that is taken away",
    "every job that has something there gets an exception",
    ("28.shrink.4",),
    where=where_targets_are_taken,
)
async def shrunk_below_several(stage: Stage) -> None:
    """Three jobs are on the node that is taken away, of which two are on others, too.

    The program was killed meanwhile: it knows them by hello.
    """
    running = await many(stage, 2, nnodes=NNODES, run_s=LONG_S)
    running += [await stage.submit(ntasks=2 * NNODES, run_s=LONG_S)]
    await all_have(stage, running, "start")
    await stage.program.kill()
    await stage.serve()
    there = [each for each in running if LAST in (await resources_of(stage, each)).ranks]
    stage.hopeless.update(there)
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": str(LAST)})
    await all_have(stage, there, "exception", "28.shrink.4")
    for jobid in running:
        if jobid not in there:
            await stage.cancel(jobid)
    await all_have(stage, running, "clean")
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
    await stage.event(await stage.submit(nnodes=NNODES), "clean")


@NODE_ACTS.act(
    "a node is taken away while a job ends on it",
    "it is released when it is free, and not before; if it is given back before, the job keeps it",
    ("28.shrink.4", "28.shrink.6", DOUBLE),
    where=where_targets_are_taken,
)
async def shrunk_while_it_ends(stage: Stage) -> None:
    """A job takes its time to end when a node of it is taken away."""
    for is_back_before in (False, True):
        async with held_on(stage) as held:
            stage.hopeless.add(held.id)
            await stage.call(topics.RESOURCE_EXCLUDE, {"targets": str(LAST)})
            await stage.event(held.id, "exception", "28.shrink.4")
            await wait_until_seen(stage)
            if is_back_before:
                await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
                await waits(stage, DOUBLE)
        if not is_back_before:
            await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
        await stage.event(await stage.submit(nnodes=NNODES), "clean")


@NODE_ACTS.act(
    "nodes are excluded while jobs run on them, and given back",
    "the jobs run on without an exception, and others wait until the nodes are back",
    ("28.offline.3", "28.online.3", UNHARMED),
    where=where_targets_stay,
)
async def excluded(stage: Stage) -> None:
    """A job is on each node; one node is left, and has room when its job has ended."""
    running = await one_on_each(stage, NNODES, nnodes=1, exclusive=True)
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": TAKEN})
    await wait_until_seen(stage)
    await stage.cancel(running[STAYS][0])
    await stage.event(await stage.submit(nnodes=1, exclusive=True), "clean")
    waiting = await waits(stage, "28.offline.3", nnodes=2)
    for rank, (jobid, *_) in running.items():
        if rank != STAYS:
            stage.must_run(jobid, UNHARMED)
            await stage.cancel(jobid)
            await stage.event(jobid, "clean")
    stage.must_wait(waiting, "28.offline.3")
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
    await stage.event(waiting, "clean", "28.online.3")
