"""The acts for an execution service (RFC 32): two nodes of two cores, both of them this machine.

The jobs are real commands, which the program has to start.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.stage import Acts, Stage, Stuck, many
from flux_trio.lab.exercise.standing_in import START, executing
from flux_trio.lab.exercise.witness import Witness
from flux_trio.messages import topics

NNODES: Final = 2
CORES: Final = 2  # of each node
CODE: Final = 3  # the exit code of a job that fails
LESS: Final = 2
_STATUS_MAX: Final = 0xFFFF  # of wait(2)

EXEC_ACTS: Final = Acts()


async def _ends_with(stage: Stage, jobid: int, code: int) -> None:
    """Wait until a job has ended, with this exit code."""
    await stage.event(jobid, "clean", "32.start.36")
    found = stage.events(jobid).get("finish", {}).get("status")
    if found != code << 8:
        name = format_fluid(jobid, "f58")
        text = f"job {name} has ended with status {found}; expected {code << 8}"
        raise Stuck(text, "32.start.32")


@EXEC_ACTS.act(
    "one job",
    "start, finish and the final release come, with status 0",
    ("32.start.32", "32.start.35", "32.start.36", "32.start.37"),
)
async def _one_job(stage: Stage) -> None:
    await _ends_with(stage, await stage.submit("true"), 0)


@EXEC_ACTS.act("a job that fails", "the status is that of wait(2)", ("32.start.32", "32.start.36"))
async def _fails(stage: Stage) -> None:
    await _ends_with(stage, await stage.submit("sh", "-c", f"exit {CODE}"), CODE)


@EXEC_ACTS.act(
    "a command that cannot be started",
    "the job fails, and the final release comes",
    ("32.criteria.3", "32.start.21", "32.start.36"),
)
async def _cannot_start(stage: Stage) -> None:
    for nnodes in (1, NNODES):
        jobid = await stage.submit("/nonexistent/command", nnodes=nnodes, ntasks=nnodes)
        await stage.event(jobid, "clean", "32.start.36")
        _failed(stage, jobid, "32.criteria.3")


def _failed(stage: Stage, jobid: int, clause: str) -> None:
    """Raise Stuck unless a job has got an exception, or a status that says that it has failed."""
    events = stage.events(jobid)
    status = events.get("finish", {}).get("status", 0)
    if not ("exception" in events or 0 < status <= _STATUS_MAX):
        raise Stuck(
            f"job {format_fluid(jobid, 'f58')} was not run, and has status {status}", clause
        )


async def _wait_until_seen(stage: Stage) -> None:
    """Wait until the program must have seen what was before: another job has run and ended."""
    await stage.event(await stage.submit("true"), "clean", "32.start.36")


@EXEC_ACTS.act(
    "a job on several nodes", "all targets of the job are released", ("32.start.20", "32.start.21")
)
async def _several_nodes(stage: Stage) -> None:
    jobid = await stage.submit("true", nnodes=NNODES, ntasks=NNODES * CORES)
    await _ends_with(stage, jobid, 0)


@EXEC_ACTS.act(
    "the tasks of a job end one after the other",
    "it is finished with the last of them, with the greatest status",
    ("32.start.20", "32.start.21", "32.start.32"),
)
async def _one_after_the_other(stage: Stage) -> None:
    """Of two tasks one ends before the other, with a smaller or a greater status."""
    for first, second in ((0, 0), (LESS, CODE), (CODE, LESS)):
        with Witness() as witness:
            command = witness.one_ends_first(first, second)
            jobid = await stage.submit(*command, nnodes=NNODES, ntasks=NNODES)
            await stage.until("the end of one of two tasks", witness.has_first_ended, "32.start.17")
            await _wait_until_seen(stage)
            if "finish" in stage.events(jobid):
                witness.all_have_ended(jobid, "32.start.32")
            witness.let_end()
            await _ends_with(stage, jobid, max(first, second))


@EXEC_ACTS.act(
    "many jobs at once", "each gets answers of its own", ("32.impl.3", "32.start.36", "32.start.37")
)
async def _many(stage: Stage) -> None:
    for jobid in await many(stage, 4 * NNODES * CORES):
        await _ends_with(stage, jobid, 0)


async def _running(stage: Stage, witness: Witness) -> int:
    """Submit a job that runs until it is ended, and wait until it does."""
    jobid = await stage.submit(*witness.runs_on())
    await stage.event(jobid, "start", "32.start.17")
    await stage.until("the command of the job", lambda: witness.nstarts > 0, "32.start.17")
    return jobid


async def _ended_by_an_exception(stage: Stage, jobid: int, witness: Witness) -> None:
    """Wait until a job that a fatal exception has ended is over: its status is that of wait(2)."""
    await stage.event(jobid, "clean", "32.start.36")
    witness.all_have_ended(jobid, "32.start.20")
    finish = stage.events(jobid).get("finish")
    if finish is not None and not 0 < finish.get("status", 0) <= _STATUS_MAX:
        text = f"job {format_fluid(jobid, 'f58')} was killed, and has status {finish.get('status')}"
        raise Stuck(f"{text}; expected that of wait(2)", "32.start.32")


@EXEC_ACTS.act(
    "a running job is canceled",
    "its processes end, and then its resources are released",
    ("32.start.17", "32.start.20", "32.start.32", "32.start.36"),
)
async def _canceled(stage: Stage) -> None:
    with Witness() as witness:
        jobid = await _running(stage, witness)
        await stage.cancel(jobid)
        await _ended_by_an_exception(stage, jobid, witness)


@EXEC_ACTS.act(
    "jobs are canceled as they start",
    "their processes end, and then their resources are released",
    ("32.start.20", "32.start.36"),
)
async def _canceled_at_once(stage: Stage) -> None:
    for _ in range(5):
        with Witness() as witness:
            jobid = await stage.submit(*witness.runs_on())
            await stage.event(jobid, "alloc")
            await stage.cancel(jobid)
            await _ended_by_an_exception(stage, jobid, witness)


@EXEC_ACTS.act(
    "a job exceeds its time limit",
    "its processes end, and it has failed",
    ("32.criteria.3", "32.start.20", "32.start.36"),
)
async def _out_of_time(stage: Stage) -> None:
    with Witness() as witness:
        jobid = await stage.submit(*witness.runs_on(), duration=0.5)
        await stage.event(jobid, "clean", "32.start.36")
        witness.all_have_ended(jobid, "32.start.20")
        _failed(stage, jobid, "32.criteria.3")


async def _taken_up(stage: Stage, jobid: int, witness: Witness) -> None:
    """Wait until the program must have answered the second start of a job that runs."""
    await stage.asked(topics.START_METHOD, jobid, times=2)
    await _wait_until_seen(stage)
    if witness.nstarts > 1:
        text = f"job {format_fluid(jobid, 'f58')} was launched {witness.nstarts} times"
        raise Stuck(f"{text}; expected that it is taken up, or fails", "32.start.10")


@EXEC_ACTS.act(
    "the program is killed while a job runs",
    "it takes up the job, or raises an exception",
    ("32.start.10", "32.start.20"),
)
async def _killed(stage: Stage) -> None:
    with Witness() as witness:
        jobid = await _running(stage, witness)
        await stage.program.kill()
        await stage.serve()
        await _taken_up(stage, jobid, witness)
        await stage.cancel(jobid)
        await _ended_by_an_exception(stage, jobid, witness)


@EXEC_ACTS.act(
    "the job manager is started again while jobs run",
    "the program says hello to it, and takes up the jobs, or fails them",
    ("32.hello.1", "32.start.10", "32.start.20", "32.start.36"),
)
async def _manager_restarts(stage: Stage) -> None:
    """The job manager is loaded again; the program says hello to it, or ends and is started."""
    with ExitStack() as opened:
        short, long = (opened.enter_context(Witness()) for _ in range(2))
        ends = await stage.submit(*short.runs_for(1.0))
        runs = await _running(stage, long)
        await stage.event(ends, "start", "32.start.17")
        before = stage.nready
        await stage.call(topics.MODULE_RELOAD, {"name": topics.JOB_MANAGER})
        await stage.until(
            f"{topics.EXEC_HELLO} to the new job manager, or the end of the program",
            lambda: stage.nready > before or stage.program.returncode is not None,
            "32.hello.1",
        )
        if stage.program.returncode is not None:
            await stage.program.kill()  # or the processes that it has left
            await stage.serve()
        await _taken_up(stage, runs, long)
        await stage.event(ends, "clean", "32.start.36")
        if "exception" not in stage.events(ends):
            await _ends_with(stage, ends, 0)
        await stage.cancel(runs)
        await _ended_by_an_exception(stage, runs, long)


@EXEC_ACTS.act("the program is ended and started again", "waiting jobs run", ("32.hello.1",))
async def _ended(stage: Stage) -> None:
    await stage.program.end()
    jobid = await stage.submit("true")
    await stage.event(jobid, "alloc")
    await stage.serve()
    await stage.event(jobid, "clean")


@EXEC_ACTS.act("the program is refused while another one serves", "it ends", ("32.hello.9",))
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
