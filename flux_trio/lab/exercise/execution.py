"""The acts for an execution service (RFC 32): three nodes of six cores, all of them this machine.

The jobs are real commands, which the program has to start.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import Final

import trio

from flux_trio.client import URI_VARIABLE
from flux_trio.config import DURATION_KEY
from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.acts import Acts
from flux_trio.lab.exercise.exec_jobs import (
    KILL_S,
    NNODES,
    WITHIN_S,
    ends_with,
    is_ended,
    is_killed_by,
    let_run,
    must_have_failed,
    run_on,
    running,
    runs,
    wait_until_seen,
)
from flux_trio.lab.exercise.reattaching import REATTACH_ACTS
from flux_trio.lab.exercise.stage import (
    REFUSED,
    TOLD_TO_END,
    UNHARMED,
    Stage,
    Stuck,
    many,
    resources_of,
)
from flux_trio.lab.exercise.witness import Witness
from flux_trio.messages import topics

CODE: Final = 3  # the exit code of a job that fails
LESS: Final = 2
MOST: Final = 255  # the greatest exit code
LIMIT_S: Final = 1.5  # a time limit that is exceeded
ROUNDED_S: Final = 0.1
SHORT_S: Final = 1.0  # a limit that is longer than a job runs, and shorter than it waits
MANY: Final = 20  # jobs
LARGE: Final = 100_000  # characters of an argument
MILD: Final = (1, 2, 7)  # severities of exceptions that are not fatal (RFC 21)

EXEC_ACTS: Final = Acts()


@EXEC_ACTS.act(
    "one job",
    "start, finish and the final release come, with status 0",
    ("32.start.32", "32.start.35", "32.start.36", "32.start.37"),
)
async def _one_job(stage: Stage) -> None:
    await ends_with(stage, await stage.submit("true"), 0)


@EXEC_ACTS.act(
    "jobs that fail",
    "the status is that of wait(2), and other jobs run on",
    ("32.start.32", "32.start.36", UNHARMED),
)
async def _fails(stage: Stage) -> None:
    with ExitStack() as opened:
        jobs = await let_run(stage, opened)
        await _have_their_status(stage)
        await run_on(stage, jobs)


async def _have_their_status(stage: Stage) -> None:
    for code in (CODE, MOST):
        await ends_with(stage, await stage.submit("sh", "-c", f"exit {code}"), code)
    await is_killed_by(stage, await stage.submit("sh", "-c", "kill -9 $$"), signal.SIGKILL)


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
            await ends_with(stage, jobid, 0)
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
        jobs = await let_run(stage, opened)
        await _none_start(stage)
        await run_on(stage, jobs)


async def _none_start(stage: Stage) -> None:
    for nnodes in (1, NNODES):
        jobid = await stage.submit("/nonexistent/command", nnodes=nnodes, ntasks=nnodes)
        stage.touched.add(jobid)
        await stage.event(jobid, "clean", "32.start.36")
        must_have_failed(stage, jobid, "32.criteria.3")


@EXEC_ACTS.act(
    "a job on several nodes", "all targets of the job are released", ("32.start.20", "32.start.21")
)
async def _several_nodes(stage: Stage) -> None:
    jobid = await stage.submit("true", nnodes=NNODES, ntasks=NNODES * 2)
    await ends_with(stage, jobid, 0)


@EXEC_ACTS.act(
    "the tasks of a job end one after the other",
    "it is finished with the last of them, with the greatest status",
    ("32.start.20", "32.start.21", "32.start.32"),
)
async def _one_after_the_other(stage: Stage) -> None:
    """Of three tasks the first, the middle or the last one ends with the greatest status."""
    for codes in ((LESS, CODE, LESS), (CODE, LESS, 0), (0, LESS, CODE)):
        with Witness() as witness:
            command = witness.one_ends_first(*codes)
            jobid = await stage.submit(*command, nnodes=NNODES, ntasks=NNODES)
            await stage.until("the end of one of the tasks", witness.has_first_ended, "32.start.17")
            await wait_until_seen(stage)
            if "finish" in stage.seen.events(jobid):
                witness.all_have_ended(jobid, "32.start.32")
            witness.let_end()
            await ends_with(stage, jobid, max(codes))


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
        await wait_until_seen(stage)
        if stage.seen.told(topics.START_METHOD, jobid, StartType.RELEASE):
            text = f"job {format_fluid(jobid, 'f58')}: one of its six tasks has ended"
            raise Stuck(f"{text}, and a node is released", "32.start.20")
        witness.let_end()
        await ends_with(stage, jobid, 0)


@EXEC_ACTS.act(
    "many jobs at once",
    "each gets answers of its own, and jobs that run longer run on",
    ("32.impl.3", "32.start.17", "32.start.36", "32.start.37", UNHARMED),
)
async def _many(stage: Stage) -> None:
    with ExitStack() as opened:
        jobs = await let_run(stage, opened)
        for jobid in await many(stage, MANY):
            await ends_with(stage, jobid, 0)
        await run_on(stage, jobs)


@EXEC_ACTS.act(
    "a running job is canceled",
    "its processes end, and then its resources are released",
    ("32.start.17", "32.start.20", "32.start.32", "32.start.36"),
)
async def _canceled(stage: Stage) -> None:
    with Witness() as witness:
        jobid = await running(stage, witness)
        await stage.cancel(jobid)
        await is_ended(stage, jobid, witness)


@EXEC_ACTS.act(
    "three of five jobs are canceled",
    "their processes end, all of them, and the other jobs run on",
    ("32.start.20", "32.start.36", UNHARMED),
)
async def _three_of_five(stage: Stage) -> None:
    """The first, the middle and the last of them; each has a task on each node."""
    with ExitStack() as opened:
        jobs = await let_run(stage, opened, 5)
        for jobid, _ in jobs[::2]:
            await stage.cancel(jobid)
        for jobid, witness in jobs[::2]:
            await is_ended(stage, jobid, witness)
        await wait_until_seen(stage)
        await run_on(stage, jobs[1::2])


@EXEC_ACTS.act(
    "a job is canceled whose tasks end in their own way",
    "SIGTERM tells each of them to do so, and leaves them the time for it",
    (TOLD_TO_END, "32.start.20", UNHARMED),
)
async def _told_to_end(stage: Stage) -> None:
    with ExitStack() as opened:
        witness = opened.enter_context(Witness())
        jobid = await stage.submit(*witness.ends_when_told(), nnodes=NNODES, ntasks=NNODES)
        await runs(stage, jobid, witness, NNODES)
        jobs = await let_run(stage, opened)
        await stage.cancel(jobid)
        await is_ended(stage, jobid, witness, KILL_S)
        if witness.ntold != NNODES:
            text = f"SIGTERM has told {witness.ntold} of {NNODES} tasks of a job to end"
            raise Stuck(text, TOLD_TO_END)
        await run_on(stage, jobs)


@EXEC_ACTS.act("exceptions come that are not fatal", "the jobs run on, and end well", (UNHARMED,))
async def _not_fatal(stage: Stage) -> None:
    with ExitStack() as opened:
        jobs = await let_run(stage, opened)
        for severity, (jobid, _) in zip(MILD, jobs, strict=False):
            payload = {"id": jobid, "severity": severity, "type": "exercise", "note": ""}
            await stage.call(topics.JOB_RAISE, payload)
        await wait_until_seen(stage)
        await run_on(stage, jobs)


@EXEC_ACTS.act(
    "a job is canceled that was never to be started",
    "it is nothing to the program, and the other jobs run on",
    (UNHARMED,),
)
async def _canceled_while_it_waits(stage: Stage) -> None:
    with ExitStack() as opened:
        jobs = await let_run(stage, opened)
        waiting = await stage.submit("true", nnodes=NNODES, exclusive=True)
        await stage.event(waiting, "priority")
        await stage.cancel(waiting)
        await stage.event(waiting, "clean")
        await wait_until_seen(stage)
        await run_on(stage, jobs)


@EXEC_ACTS.act(
    "somebody asks for a method that is not there",
    "it is refused, and the program serves on",
    (REFUSED, UNHARMED),
)
async def _unknown_method(stage: Stage) -> None:
    """Who asks leaves then: that is nothing to the jobs that run."""
    with ExitStack() as opened:
        jobs = await let_run(stage, opened)
        async with stage.visit("passer-by") as other:
            await stage.refused(f"{stage.seen.executor}.exercise", other)
        await wait_until_seen(stage)
        await run_on(stage, jobs)


@EXEC_ACTS.act(
    "a job that is canceled does not heed SIGTERM",
    "its processes end all the same, by SIGKILL",
    ("32.start.20", "32.start.36"),
)
async def _not_heeded(stage: Stage) -> None:
    with ExitStack() as opened:
        witness = opened.enter_context(Witness())
        jobid = await stage.submit(*witness.does_not_heed(), nnodes=NNODES)
        await runs(stage, jobid, witness, NNODES)
        jobs = await let_run(stage, opened)
        await stage.cancel(jobid)
        await stage.event(jobid, "clean", "32.start.36", KILL_S)
        await is_ended(stage, jobid, witness)
        await run_on(stage, jobs)


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
            await is_ended(stage, jobid, witness)


async def _had_s(stage: Stage, jobid: int) -> float:
    """Return for how many seconds a job had its resources before its exception."""
    return stage.seen.time_of(jobid, "exception") - (await resources_of(stage, jobid)).starttime


@EXEC_ACTS.act(
    "a job exceeds its time limit",
    "its processes end, with an exception; jobs within their limits run on",
    ("32.criteria.3", "32.start.20", "32.start.36", UNHARMED),
)
async def _out_of_time(stage: Stage) -> None:
    with ExitStack() as opened:
        witness = opened.enter_context(Witness())
        jobs = await let_run(stage, opened)
        jobid = await stage.submit(*witness.runs_on(), duration=LIMIT_S)
        stage.touched.add(jobid)
        await stage.event(jobid, "clean", "32.start.36")
        witness.all_have_ended(jobid, "32.start.20")
        found = stage.seen.events(jobid).get("exception", {})
        if (found.get("type"), found.get("severity")) != ("timeout", 0):
            text = f"job {format_fluid(jobid, 'f58')} has exceeded its time limit"
            raise Stuck(f"{text}, and has no fatal exception of type timeout", "32.criteria.3")
        had_s = await _had_s(stage, jobid)
        if had_s < LIMIT_S - ROUNDED_S:
            text = f"job {format_fluid(jobid, 'f58')} has a limit of {LIMIT_S:g} s"
            raise Stuck(f"{text}, and was ended after {had_s:.3f} s", UNHARMED)
        await run_on(stage, jobs)


@EXEC_ACTS.act(
    "the time limits of jobs change while they wait",
    "the new limit counts, be it shorter or longer; what has no limit runs on",
    ("32.criteria.3", UNHARMED),
)
async def _updated(stage: Stage) -> None:
    with ExitStack() as opened:
        first, shorter, longer, endless = (opened.enter_context(Witness()) for _ in range(4))
        running = await stage.submit(*first.ends_when_let(), nnodes=NNODES, exclusive=True)
        await runs(stage, running, first, NNODES)
        jobs = [
            await stage.submit(*each.ends_when_let(), duration=duration)
            for each, duration in ((shorter, WITHIN_S), (longer, LIMIT_S), (endless, 0.0))
        ]
        for jobid, duration in zip(jobs, (LIMIT_S, WITHIN_S), strict=False):
            updates = {DURATION_KEY: duration}
            await stage.call(topics.JOB_UPDATE, {"id": jobid, "updates": updates})
        stage.touched.add(jobs[0])
        first.let_end()
        others = ((jobs[1], longer), (jobs[2], endless))
        for jobid, witness in others:  # on a slow machine the first one may end before it runs
            await runs(stage, jobid, witness, 1)
        await stage.event(jobs[0], "clean", "32.criteria.3")
        shorter.all_have_ended(jobs[0], "32.start.20")
        await run_on(stage, others)


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
        await runs(stage, running, first, NNODES)
        await trio.sleep(SHORT_S)
        first.let_end()
        await ends_with(stage, running, 0)
        await stage.event(waiting, "clean", "32.start.36")
        if waiting in stage.seen.harms and await _had_s(stage, waiting) >= SHORT_S - ROUNDED_S:
            stage.touched.add(waiting)  # a slow machine has not run it within its limit
        else:
            await ends_with(stage, waiting, 0)


EXEC_ACTS.extend(REATTACH_ACTS)
