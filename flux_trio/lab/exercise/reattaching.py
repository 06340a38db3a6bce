"""The acts in which an execution service or the job manager goes and comes, and refusals."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.acts import Acts, where_hello_is_refused
from flux_trio.lab.exercise.exec_jobs import (
    KILL_S,
    NNODES,
    ends_with,
    is_ended,
    let_run,
    must_have_failed,
    running,
    runs,
    wait_until_seen,
)
from flux_trio.lab.exercise.stage import Stage, Stuck
from flux_trio.lab.exercise.substitute_services import START, executing
from flux_trio.lab.exercise.witness import Witness
from flux_trio.messages import topics

REATTACH_ACTS: Final = Acts()


async def _taken_up(stage: Stage, jobid: int, witness: Witness) -> None:
    """Wait until the program must have answered the second start of a job that runs."""
    await stage.asked(topics.START_METHOD, jobid, times=2)
    await wait_until_seen(stage)
    if witness.nstarts > 1:
        text = f"job {format_fluid(jobid, 'f58')} was launched {witness.nstarts} times"
        raise Stuck(f"{text}; expected that it is taken up, or fails", "32.start.10")


@REATTACH_ACTS.act(
    "the program is killed while a job runs",
    "it takes up the job, or raises an exception",
    ("32.start.10", "32.start.20"),
)
async def _killed(stage: Stage) -> None:
    with Witness() as witness:
        jobid = await running(stage, witness)
        stage.touched.add(jobid)
        await stage.program.kill()
        await stage.serve()
        await _taken_up(stage, jobid, witness)
        await stage.cancel(jobid)
        await is_ended(stage, jobid, witness)


async def _said_hello(stage: Stage, before: int) -> None:
    """Wait until the program serves the next job manager; if it has ended, start it."""
    what = f"{topics.EXEC_HELLO} to the new job manager, or the end of the program"
    if await stage.until_or_end(what, lambda: stage.nready > before, "32.hello.1"):
        await stage.program.kill()  # or the processes that it has left
        await stage.serve()


@REATTACH_ACTS.act(
    "the program is killed while jobs end",
    "what was canceled, and what has released a node, comes to its end",
    ("32.start.10", "32.start.20", "32.start.36"),
)
async def _killed_as_they_end(stage: Stage) -> None:
    """One job was canceled, and does not heed it; of another one the first task has ended."""
    with ExitStack() as opened:
        first, second = (opened.enter_context(Witness()) for _ in range(2))
        canceled = await stage.submit(*first.does_not_heed(), nnodes=NNODES)
        await runs(stage, canceled, first, NNODES)
        command = second.one_ends_first(0, 0, 0)
        releasing = await stage.submit(*command, nnodes=NNODES)
        stage.touched.add(releasing)
        await runs(stage, releasing, second, NNODES)
        await stage.cancel(canceled)
        await stage.until("the end of a task", second.has_first_ended, "32.start.17")
        await wait_until_seen(stage)
        await stage.program.kill()
        await stage.serve()
        for jobid in (canceled, releasing):
            await stage.asked(topics.START_METHOD, jobid, times=2)
        second.let_end()
        for jobid, witness in ((canceled, first), (releasing, second)):
            await stage.event(jobid, "clean", "32.start.36", KILL_S)
            witness.all_have_ended(jobid, "32.start.20")


@REATTACH_ACTS.act(
    "the job manager is started again while jobs run",
    "the program says hello to it, and takes up the jobs, or fails them",
    ("32.hello.1", "32.start.10", "32.start.20", "32.start.36"),
)
async def _manager_restarts(stage: Stage) -> None:
    """The job manager is loaded again; the program says hello to it, or ends and is started."""
    with ExitStack() as opened:
        short, long = (opened.enter_context(Witness()) for _ in range(2))
        ends = await stage.submit(*short.runs_for(1.0))
        runs = await running(stage, long)
        stage.touched.update((ends, runs))
        await stage.event(ends, "start", "32.start.17")
        before = stage.nready
        await stage.call(topics.MODULE_RELOAD, {"name": topics.JOB_MANAGER})
        await _said_hello(stage, before)
        await _taken_up(stage, runs, long)
        await stage.event(ends, "clean", "32.start.36")
        if "exception" not in stage.seen.events(ends):
            await ends_with(stage, ends, 0)
        await stage.cancel(runs)
        await is_ended(stage, runs, long)


@REATTACH_ACTS.act(
    "the R of a job cannot be read",
    "the job fails, and the final release comes; or the program ends",
    ("32.criteria.3", "32.start.36"),
)
async def _not_read(stage: Stage) -> None:
    with Witness() as witness:
        refused = stage.refuse_next(topics.KVS_LOOKUP)
        jobid = await stage.submit(*witness.runs_for(0.1))
        stage.touched.add(jobid)
        done = lambda: "clean" in stage.seen.events(jobid)  # noqa: E731
        if await stage.until_or_end("the end of a job, or that of the program", done):
            await stage.program.kill()
            await stage.serve()
        await stage.event(jobid, "clean", "32.start.36")
        if refused.is_set() and not witness.nstarts:
            must_have_failed(stage, jobid, "32.criteria.3")


@REATTACH_ACTS.act("the name of the program is refused", "it ends, or asks again", ())
async def _not_registered(stage: Stage) -> None:
    await stage.end_program(topics.JOB_MANAGER)
    before = stage.nready
    stage.refuse_next(topics.BROKER_REGISTER)
    await stage.program.start()
    what = f"{topics.EXEC_HELLO} of the program, or its end"
    if await stage.until_or_end(what, lambda: stage.nready > before):
        await stage.program.kill()  # or the processes that it has left
        await stage.serve()
    await stage.submit("true")


@REATTACH_ACTS.act(
    "a job ends while there is no job manager",
    "the next one is told of its end",
    ("32.start.10", "32.start.35", "32.start.36"),
)
async def _ends_untold(stage: Stage) -> None:
    with ExitStack() as opened:
        jobs = await let_run(stage, opened)
        stage.touched.update(jobid for jobid, _ in jobs)  # a program may end and lose them
        before = stage.nready
        await stage.call(topics.MODULE_REMOVE, {"name": topics.JOB_MANAGER})
        for _, witness in jobs:
            witness.let_end()
        for _, witness in jobs:
            await stage.until("the end of all tasks", witness.have_all_ended)
        await stage.call(topics.MODULE_LOAD, {"name": topics.JOB_MANAGER})
        await _said_hello(stage, before)
        for jobid, _ in jobs:
            await stage.event(jobid, "clean", "32.start.36")
            if "exception" not in stage.seen.events(jobid):
                await ends_with(stage, jobid, 0)


@REATTACH_ACTS.act("the program is ended and started again", "waiting jobs run", ("32.hello.1",))
async def _ended(stage: Stage) -> None:
    await stage.program.end()
    jobid = await stage.submit("true")
    await stage.event(jobid, "alloc")
    await stage.serve()
    await stage.event(jobid, "clean")


@REATTACH_ACTS.act(
    "the program is refused while another one serves",
    "it ends",
    ("32.hello.9",),
    where=where_hello_is_refused,
)
async def _not_taken(stage: Stage) -> None:
    """The job manager refuses its hello while another service runs a job (RFC 32, Hello)."""
    await stage.end_program(topics.JOB_MANAGER)
    async with executing(stage) as other:
        jobid = await stage.submit("true", nnodes=NNODES, ntasks=NNODES)
        start = await other.asked(START)
        await stage.program.start()
        await stage.left(topics.EXEC_HELLO, "32.hello.9")
        other.say(start, StartType.START)
        other.finish(start, f"0-{NNODES - 1}")
        await stage.event(jobid, "clean")
    await stage.serve()
    await stage.submit("true")
