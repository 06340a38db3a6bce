"""The acts in which a request of a scheduler is refused: each of its requests once."""

from __future__ import annotations

from typing import Final

from flux_trio.editions.rfc28 import DEFAULT_GROUP, Acquire
from flux_trio.lab.exercise.acts import Acts, where_targets_are_taken
from flux_trio.lab.exercise.nodes import LAST
from flux_trio.lab.exercise.sched_jobs import NNODES, fill, waits
from flux_trio.lab.exercise.stage import LONG_S, Stage
from flux_trio.messages import topics

REFUSAL_ACTS: Final = Acts()


async def _left_or_begun(stage: Stage, before: int) -> None:
    """Wait until the program serves although something was refused; if it has ended, start it."""
    what = f"{stage.ready_topic} of the program, or its end"
    if await stage.until_or_end(what, lambda: stage.nready > before):
        await stage.program.kill()  # or the processes that it has left
        await stage.serve()


@REFUSAL_ACTS.act("the program is refused the resources", "it ends", ("28.error.2",))
async def not_acquired(stage: Stage) -> None:
    """The resource service refuses it the resources, since somebody else has them (RFC 28)."""
    await stage.end_program(topics.RESOURCE)
    wanted = stage.edition.acquire.write(Acquire(DEFAULT_GROUP))
    async with (
        stage.visit("holder") as holder,
        holder.stream(topics.RESOURCE_ACQUIRE, wanted) as grown,
    ):
        await anext(grown)
        await stage.program.start()
        await stage.left(topics.RESOURCE_ACQUIRE, "28.error.2")
    await stage.serve()
    await stage.submit()


@REFUSAL_ACTS.act("the name of the program is refused", "it ends, or asks again", ())
async def not_registered(stage: Stage) -> None:
    await stage.end_program(topics.RESOURCE)
    before = stage.nready
    stage.refuse_next(topics.BROKER_REGISTER)
    await stage.program.start()
    await _left_or_begun(stage, before)
    await stage.submit()


@REFUSAL_ACTS.act(
    "R cannot be stored",
    "there is no SUCCESS without it: the program ends, or stores it again",
    ("27.success.1",),
)
async def not_stored(stage: Stage) -> None:
    refused = stage.refuse_next(topics.KVS_COMMIT)
    jobs = [await stage.submit(), await stage.submit(nnodes=NNODES)]
    stage.hopeless.update(jobs)  # a scheduler may give up one of them
    await stage.until(f"{topics.KVS_COMMIT} of the program", refused.is_set, "27.success.1")
    done = lambda: all("clean" in stage.seen.events(each) for each in jobs)  # noqa: E731
    if await stage.until_or_end("the ends of two jobs, or that of the program", done):
        await stage.program.kill()
        await stage.serve()


@REFUSAL_ACTS.act(
    "the R of a running job cannot be read",
    "nobody gets what the job has: the program ends, or asks again",
    ("27.hello.12",),
)
async def not_read(stage: Stage) -> None:
    running = await fill(stage)
    await stage.program.kill()
    before = stage.nready
    stage.refuse_next(topics.KVS_LOOKUP)
    await stage.program.start()
    await _left_or_begun(stage, before)
    waiting = await waits(stage, "27.hello.12")
    stage.must_run(running, "27.hello.12")
    await stage.cancel(running)
    await stage.event(waiting, "clean")


@REFUSAL_ACTS.act(
    "the exception of a job on a node that is taken away is refused",
    "the program serves on, or ends",
    ("28.shrink.4",),
    where=where_targets_are_taken,
)
async def not_raised(stage: Stage) -> None:
    running = await stage.submit(nnodes=NNODES, run_s=LONG_S)
    await stage.event(running, "start")
    stage.hopeless.add(running)
    refused = stage.refuse_next(topics.JOB_RAISE)
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": str(LAST)})
    await stage.until(f"{topics.JOB_RAISE} of the program", refused.is_set, "28.shrink.4")
    await stage.cancel(running)
    done = lambda: "clean" in stage.seen.events(running)  # noqa: E731
    if await stage.until_or_end("the end of a job, or that of the program", done):
        await stage.program.kill()
        await stage.serve()
    await stage.event(running, "clean")
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
    await stage.event(await stage.submit(nnodes=NNODES), "clean")
