"""The acts in which a scheduler is killed, ended and started again, in every state of the jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flux_trio.lab.exercise.acts import Act, Acts, where_targets_are_taken
from flux_trio.lab.exercise.nodes import LAST, TAKEN, drain, undrain
from flux_trio.lab.exercise.sched_jobs import (
    CORES,
    DOUBLE,
    NNODES,
    fill,
    held_on,
    wait_until_seen,
    waits,
)
from flux_trio.lab.exercise.stage import LONG_S, Stage, all_have, many
from flux_trio.messages import topics

RESTART_ACTS: Final = Acts()


@RESTART_ACTS.act(
    "the program is killed while jobs run and wait",
    "jobs that run keep what they have, as hello tells it",
    ("27.hello.12", "28.disconnect.5", DOUBLE),
)
async def killed(stage: Stage) -> None:
    """Jobs have all cores; after the restart that is still so."""
    running = [
        await stage.submit(nnodes=1, ntasks=CORES - 1, run_s=LONG_S),
        await stage.submit(nnodes=2, exclusive=True, run_s=LONG_S),
        await stage.submit(ntasks=CORES + 1, run_s=LONG_S),
    ]
    await all_have(stage, running, "start")
    waiting = await many(stage, 2)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.program.kill()
    await stage.serve()
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid, times=2)
    await wait_until_seen(stage)
    for jobid in waiting:
        stage.must_wait(jobid, "27.hello.12")
    for jobid in running:
        stage.must_run(jobid, "27.hello.12")
        await stage.cancel(jobid)


@RESTART_ACTS.act(
    "the program is killed as it is asked",
    "what it has not answered is asked again",
    ("27.hello.1",),
)
async def killed_as_it_is_asked(stage: Stage) -> None:
    jobs = await many(stage, 4)
    await stage.asked(topics.SCHED_ALLOC, jobs[1])
    await stage.program.kill()
    await stage.serve()


@RESTART_ACTS.act(
    "the program is ended and started again",
    "what was freed meanwhile is free",
    ("27.hello.1", "27.free.5"),
)
async def ended(stage: Stage) -> None:
    running = await stage.submit(run_s=LONG_S)
    await stage.event(running, "start")
    await stage.program.end()
    await stage.cancel(running)
    waiting = await stage.submit()
    await stage.serve()
    await stage.event(waiting, "clean")


@RESTART_ACTS.act(
    "the program is killed while jobs run on nodes that are down",
    "they keep what they have there, also when the nodes are back",
    ("27.hello.12", "28.offline.3", DOUBLE),
)
async def killed_while_nodes_are_down(stage: Stage) -> None:
    running = await fill(stage)
    await drain(stage, TAKEN)
    await stage.program.kill()
    await stage.serve()
    waiting = [await waits(stage, "27.hello.12"), await waits(stage, "27.hello.12", nnodes=1)]
    await undrain(stage, TAKEN)
    await wait_until_seen(stage)
    for jobid in waiting:
        stage.must_wait(jobid, "27.hello.12")
    stage.must_run(running, "28.offline.4")
    await stage.cancel(running)


@RESTART_ACTS.act(
    "the program is killed while a job ends on a node that is taken away",
    "it copes with a job on a node that it is not given, and takes the free",
    ("27.hello.12", "28.shrink.5"),
    where=where_targets_are_taken,
)
async def killed_while_shrunk(stage: Stage) -> None:
    """What is left of the machine is not free before the job has ended."""
    async with held_on(stage) as held:
        stage.hopeless.add(held.id)
        await stage.call(topics.RESOURCE_EXCLUDE, {"targets": str(LAST)})
        await stage.event(held.id, "exception", "28.shrink.4")
        await stage.program.kill()
        await stage.serve()
        waiting = await waits(stage, "27.hello.12")
    await stage.event(waiting, "clean", "27.free.5")
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
    await stage.event(await stage.submit(nnodes=NNODES, exclusive=True), "clean")


@RESTART_ACTS.act(
    "the program is killed while a job that was canceled releases its nodes",
    "nobody gets them before they are freed",
    ("27.hello.12", "27.free.5", DOUBLE),
)
async def killed_while_releasing(stage: Stage) -> None:
    async with held_on(stage) as held:
        await stage.cancel(held.id)
        await stage.event(held.id, "exception")
        held.release("0,2")
        await stage.program.kill()
        await stage.serve()
        waiting = [await waits(stage, "27.hello.12", nnodes=1), await waits(stage, "27.hello.12")]
    await all_have(stage, waiting, "clean", "27.free.5")


@RESTART_ACTS.act(
    "another scheduler has run before",
    "what it has given is kept, as its R says it, and each job is freed alone",
    ("27.hello.12", "27.free.5", DOUBLE),
)
async def takes_over(stage: Stage) -> None:
    await stage.end_program(topics.RESOURCE)
    await stage.call(topics.MODULE_LOAD, {"name": topics.SCHED})
    running = [
        await stage.submit(nnodes=NNODES, run_s=LONG_S),
        await stage.submit(nnodes=NNODES - 1, ntasks=(NNODES - 1) * (CORES - 1), run_s=LONG_S),
        await stage.submit(nnodes=1, ntasks=CORES - 1, run_s=LONG_S),
    ]
    await all_have(stage, running, "start")
    await stage.call(topics.MODULE_REMOVE, {"name": topics.SCHED})
    await stage.serve()
    waiting = [await waits(stage, "27.hello.12"), await waits(stage, "27.hello.12", nnodes=3)]
    await stage.cancel(running[1])
    await stage.event(running[1], "clean")
    await all_have(stage, waiting, "clean", "27.free.5")
    last = await waits(stage, DOUBLE, nnodes=NNODES, exclusive=True)
    stage.must_run(running[0], "27.hello.12")
    stage.must_run(running[2], "27.hello.12")
    for jobid in (running[0], running[2]):
        await stage.cancel(jobid)
    await stage.event(last, "clean", "27.free.5")


def after_a_restart(act: Act) -> Act:
    """Return the act as it is played by a program that hello has told of a job, which has ended."""

    async def play(stage: Stage) -> None:
        running = await fill(stage)
        await stage.program.kill()
        await stage.serve()
        await stage.cancel(running)
        await stage.event(running, "clean", "27.free.5")
        await act.play(stage)

    return replace(act, title=f"after a restart: {act.title}", play=play)
