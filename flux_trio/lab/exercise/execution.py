"""The acts for an execution service (RFC 32): three nodes of four cores, all of them this machine.

The jobs are real commands, which the program has to start.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

import trio

from flux_trio.client import URI_VARIABLE
from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.acts import Acts
from flux_trio.lab.exercise.stage import UNHARMED, Stage, Stuck, many, resources_of
from flux_trio.lab.exercise.standing_in import START, executing
from flux_trio.lab.exercise.witness import Witness
from flux_trio.messages import topics

NNODES: Final = 3
CORES: Final = 4  # of each node
CODE: Final = 3  # the exit code of a job that fails
LESS: Final = 2
MOST: Final = 255  # the greatest exit code
LIMIT_S: Final = 1.5  # a time limit that is exceeded
WITHIN_S: Final = 60.0  # one that is not
SHORT_S: Final = 1.0  # a limit that is longer than a job runs, and shorter than it waits
KILL_S: Final = 10.0  # the time from SIGTERM to SIGKILL that a program may choose
MANY: Final = 20  # jobs
LARGE: Final = 100_000  # characters of an argument
MILD: Final = (1, 7)  # severities of exceptions that are not fatal (RFC 21)
_STATUS_MAX: Final = 0xFFFF  # of wait(2)

EXEC_ACTS: Final = Acts()


async def _ends_with(stage: Stage, jobid: int, code: int) -> None:
    """Wait until a job has ended, with this exit code."""
    await _has_status(stage, jobid, code << 8)


async def _has_status(stage: Stage, jobid: int, status: int) -> None:
    """Wait until a job has ended, with this status of wait(2)."""
    await stage.event(jobid, "clean", "32.start.36")
    stage.none_is_harmed()
    found = stage.events(jobid).get("finish", {}).get("status")
    if found != status:
        name = format_fluid(jobid, "f58")
        text = f"job {name} has ended with status {found}; expected {status}"
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
    for code in (CODE, MOST):
        await _ends_with(stage, await stage.submit("sh", "-c", f"exit {code}"), code)
    await _has_status(stage, await stage.submit("sh", "-c", "kill -9 $$"), signal.SIGKILL)


@EXEC_ACTS.act(
    "tasks write down what they were given",
    "each has the environment, the directory and the arguments of the jobspec",
    ("14.attributes.4", "14.submit.4"),
)
async def _as_the_jobspec_says(stage: Stage) -> None:
    """Variables are set and unset; the arguments are many, empty, long, and of several words."""
    words = ["first", "", "of several  words", "ünïcødé", "x" * LARGE, "last"]
    unset = [URI_VARIABLE, "FLUX_TRIO_FOURTH"]
    given = {"FLUX_TRIO_FIRST": "one", "FLUX_TRIO_SECOND": "", "FLUX_TRIO_THIRD": "a = b; c"}
    environment = {"PATH": os.environ.get("PATH", os.defpath), **given, **dict.fromkeys(unset)}
    for nnodes, ntasks in ((1, 1), (NNODES, NNODES)):
        with Witness() as witness:
            command = witness.tells([*given, *unset], words)
            jobid = await stage.submit(
                *command, nnodes=nnodes, ntasks=ntasks, environment=environment, cwd="/usr"
            )
            await _ends_with(stage, jobid, 0)
            told = witness.told()
        if len(told) != ntasks:
            raise Stuck(f"{len(told)} tasks have run; expected {ntasks}", "14.submit.4")
        for directory, *lines in told:
            values, arguments = lines[: len(given) + len(unset)], lines[len(given) + len(unset) :]
            if values != [*given.values(), *("-" for _ in unset)]:
                raise Stuck(f"a task has the variables {values}", "14.attributes.4")
            if arguments != words or directory != "/usr":
                text = f"a task has run in {directory} with {len(arguments)} arguments"
                raise Stuck(f"{text}; expected /usr and {len(words)}, as given", "14.submit.4")


@EXEC_ACTS.act(
    "a command that cannot be started",
    "the job fails, and the final release comes",
    ("32.criteria.3", "32.start.21", "32.start.36", UNHARMED),
)
async def _cannot_start(stage: Stage) -> None:
    with ExitStack() as opened:
        jobs = await _three(stage, opened)
        await _none_start(stage)
        await _run_on(stage, jobs)


async def _none_start(stage: Stage) -> None:
    for nnodes in (1, NNODES):
        jobid = await stage.submit("/nonexistent/command", nnodes=nnodes, ntasks=nnodes)
        stage.touched.add(jobid)
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
    jobid = await stage.submit("true", nnodes=NNODES, ntasks=NNODES * 2)
    await _ends_with(stage, jobid, 0)


@EXEC_ACTS.act(
    "the tasks of a job end one after the other",
    "it is finished with the last of them, with the greatest status",
    ("32.start.20", "32.start.21", "32.start.32"),
)
async def _one_after_the_other(stage: Stage) -> None:
    """Of three tasks the first, the middle or the last one ends with the greatest status."""
    for codes in ((0, 0, 0), (LESS, CODE, LESS), (CODE, LESS, 0), (0, LESS, CODE)):
        with Witness() as witness:
            command = witness.one_ends_first(*codes)
            jobid = await stage.submit(*command, nnodes=NNODES, ntasks=NNODES)
            await stage.until("the end of one of the tasks", witness.has_first_ended, "32.start.17")
            await _wait_until_seen(stage)
            if "finish" in stage.events(jobid):
                witness.all_have_ended(jobid, "32.start.32")
            witness.let_end()
            await _ends_with(stage, jobid, max(codes))


@EXEC_ACTS.act(
    "one of two tasks of a node ends",
    "the node is not released before the other one has ended",
    ("32.start.20",),
)
async def _one_of_two_of_a_node(stage: Stage) -> None:
    with Witness() as witness:
        command = witness.one_ends_first(0, 0, 0)
        jobid = await stage.submit(*command, nnodes=NNODES, ntasks=2 * NNODES)
        await stage.until("the end of one of the tasks", witness.has_first_ended, "32.start.17")
        await _wait_until_seen(stage)
        if stage.told(topics.START_METHOD, jobid, StartType.RELEASE):
            text = f"job {format_fluid(jobid, 'f58')}: one of its six tasks has ended"
            raise Stuck(f"{text}, and a node is released", "32.start.20")
        witness.let_end()
        await _ends_with(stage, jobid, 0)


@EXEC_ACTS.act(
    "many jobs at once", "each gets answers of its own", ("32.impl.3", "32.start.36", "32.start.37")
)
async def _many(stage: Stage) -> None:
    for jobid in await many(stage, MANY):
        await _ends_with(stage, jobid, 0)


async def _running(stage: Stage, witness: Witness) -> int:
    """Submit a job that runs until it is ended, and wait until it does."""
    jobid = await stage.submit(*witness.runs_on())
    await _runs(stage, jobid, witness, 1)
    return jobid


async def _runs(stage: Stage, jobid: int, witness: Witness, ntasks: int) -> None:
    """Wait until all tasks of a job run."""
    await stage.event(jobid, "start", "32.start.17")
    await stage.until("the tasks of the job", lambda: witness.nstarts >= ntasks, "32.start.17")


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
    "one of three jobs is canceled",
    "its processes end, all of them, and the other jobs run on",
    ("32.start.20", "32.start.36", UNHARMED),
)
async def _one_of_three(stage: Stage) -> None:
    """The first, the middle or the last of them; it has a task on each node."""
    for at in range(3):
        with ExitStack() as opened:
            jobs = await _three(stage, opened)
            one, witness = jobs.pop(at)
            await stage.cancel(one)
            await _ended_by_an_exception(stage, one, witness)
            await _wait_until_seen(stage)
            await _run_on(stage, jobs)


async def _three(stage: Stage, opened: ExitStack) -> list[tuple[int, Witness]]:
    """Submit three jobs that run until they are let end, each with a task on each node."""
    found = []
    for _ in range(3):
        witness = opened.enter_context(Witness())
        jobid = await stage.submit(*witness.ends_when_let(), nnodes=NNODES, duration=WITHIN_S)
        found.append((jobid, witness))
    for jobid, witness in found:
        await _runs(stage, jobid, witness, NNODES)
    return found


async def _run_on(stage: Stage, jobs: Iterable[tuple[int, Witness]]) -> None:
    """See to it that jobs run, and end well when they are let end."""
    for jobid, witness in jobs:
        stage.must_run(jobid, UNHARMED)
        witness.let_end()
        await _ends_with(stage, jobid, 0)


@EXEC_ACTS.act("exceptions come that are not fatal", "the jobs run on, and end well", (UNHARMED,))
async def _not_fatal(stage: Stage) -> None:
    with ExitStack() as opened:
        jobs = await _three(stage, opened)
        for severity, (jobid, _) in zip(MILD, jobs, strict=False):
            payload = {"id": jobid, "severity": severity, "type": "exercise", "note": ""}
            await stage.call(topics.JOB_RAISE, payload)
        await _wait_until_seen(stage)
        await _run_on(stage, jobs)


@EXEC_ACTS.act(
    "a job that is canceled does not heed SIGTERM",
    "its processes end all the same, by SIGKILL",
    ("32.start.20", "32.start.36"),
)
async def _not_heeded(stage: Stage) -> None:
    with Witness() as witness:
        jobid = await stage.submit(*witness.does_not_heed(), nnodes=NNODES)
        await _runs(stage, jobid, witness, NNODES)
        await stage.cancel(jobid)
        await stage.event(jobid, "clean", "32.start.36", KILL_S)
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
    "its processes end, with an exception; jobs within their limits run on",
    ("32.criteria.3", "32.start.20", "32.start.36", UNHARMED),
)
async def _out_of_time(stage: Stage) -> None:
    with ExitStack() as opened:
        witness = opened.enter_context(Witness())
        jobs = await _three(stage, opened)
        jobid = await stage.submit(*witness.runs_on(), duration=LIMIT_S)
        stage.touched.add(jobid)
        await stage.event(jobid, "clean", "32.start.36")
        witness.all_have_ended(jobid, "32.start.20")
        if stage.events(jobid).get("exception", {}).get("type") != "timeout":
            text = f"job {format_fluid(jobid, 'f58')} has exceeded its time limit"
            raise Stuck(f"{text}, and has no exception of type timeout", "32.criteria.3")
        had_s = stage.time_of(jobid, "exception") - (await resources_of(stage, jobid)).starttime
        if had_s < LIMIT_S:
            text = f"job {format_fluid(jobid, 'f58')} has a limit of {LIMIT_S:g} s"
            raise Stuck(f"{text}, and was ended after {had_s:.3f} s", UNHARMED)
        await _run_on(stage, jobs)


@EXEC_ACTS.act(
    "a job with a time limit has waited for longer than that", "it runs to its end", (UNHARMED,)
)
async def _has_waited(stage: Stage) -> None:
    """It waits for the nodes of another job; its time counts from its own start."""
    with ExitStack() as opened:
        first, second = (opened.enter_context(Witness()) for _ in range(2))
        all_nodes = {"nnodes": NNODES, "exclusive": True}
        running = await stage.submit(*first.ends_when_let(), **all_nodes)
        waiting = await stage.submit(*second.runs_for(0.1), duration=SHORT_S, **all_nodes)
        await _runs(stage, running, first, NNODES)
        await trio.sleep(SHORT_S)
        first.let_end()
        await _ends_with(stage, running, 0)
        await _ends_with(stage, waiting, 0)


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
        stage.touched.add(jobid)
        await stage.program.kill()
        await stage.serve()
        await _taken_up(stage, jobid, witness)
        await stage.cancel(jobid)
        await _ended_by_an_exception(stage, jobid, witness)


async def _said_hello(stage: Stage, before: int) -> None:
    """Wait until the program serves the next job manager; if it has ended, start it."""
    what = f"{topics.EXEC_HELLO} to the new job manager, or the end of the program"
    if await stage.until_or_end(what, lambda: stage.nready > before, "32.hello.1"):
        await stage.program.kill()  # or the processes that it has left
        await stage.serve()


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
        stage.touched.update((ends, runs))
        await stage.event(ends, "start", "32.start.17")
        before = stage.nready
        await stage.call(topics.MODULE_RELOAD, {"name": topics.JOB_MANAGER})
        await _said_hello(stage, before)
        await _taken_up(stage, runs, long)
        await stage.event(ends, "clean", "32.start.36")
        if "exception" not in stage.events(ends):
            await _ends_with(stage, ends, 0)
        await stage.cancel(runs)
        await _ended_by_an_exception(stage, runs, long)


@EXEC_ACTS.act(
    "the R of a job cannot be read",
    "the job fails, and the final release comes; or the program ends",
    ("32.criteria.3", "32.start.36"),
)
async def _not_read(stage: Stage) -> None:
    with Witness() as witness:
        refused = stage.refuse_next(topics.KVS_LOOKUP)
        jobid = await stage.submit(*witness.runs_for(0.1))
        stage.touched.add(jobid)
        done = lambda: "clean" in stage.events(jobid)  # noqa: E731
        if await stage.until_or_end("the end of a job, or that of the program", done):
            await stage.program.kill()
            await stage.serve()
        await stage.event(jobid, "clean", "32.start.36")
        if refused.is_set() and not witness.nstarts:
            _failed(stage, jobid, "32.criteria.3")


@EXEC_ACTS.act("the name of the program is refused", "it ends, or asks again", ())
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


@EXEC_ACTS.act(
    "a job ends while there is no job manager",
    "the next one is told of its end",
    ("32.start.10", "32.start.35", "32.start.36"),
)
async def _ends_untold(stage: Stage) -> None:
    with ExitStack() as opened:
        jobs = await _three(stage, opened)
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
            if "exception" not in stage.events(jobid):
                await _ends_with(stage, jobid, 0)


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
