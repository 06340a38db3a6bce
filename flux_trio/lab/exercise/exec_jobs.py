"""The jobs of the acts for an execution service: real commands, and what must become of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.stage import UNHARMED, Stage, Stuck
from flux_trio.lab.exercise.witness import Witness

NNODES: Final = 3
CORES: Final = 6  # of each node
WITHIN_S: Final = 60.0  # one that is not
KILL_S: Final = 10.0  # the time from SIGTERM to SIGKILL that a program may choose
_STATUS_MAX: Final = 0xFFFF  # of wait(2)


async def ends_with(stage: Stage, jobid: int, code: int) -> None:
    """Wait until a job has ended, with this exit code."""
    await has_status(stage, jobid, code << 8)


async def is_killed_by(stage: Stage, jobid: int, signum: int) -> None:
    """Wait until a job has ended, with the status of a shell whose task a signal has killed.

    It is an exit with 128 and the number of the signal (readings: finish status); where a task is
    its own shell, its status is the signal.
    """
    await has_status(stage, jobid, (128 + signum) << 8, signum)


async def has_status(stage: Stage, jobid: int, *statuses: int) -> None:
    """Wait until a job has ended, with one of these statuses of wait(2)."""
    await stage.event(jobid, "clean", "32.start.36")
    stage.none_is_harmed()
    found = stage.seen.events(jobid).get("finish", {}).get("status")
    if found not in statuses:
        name = format_fluid(jobid, "f58")
        expected = " or ".join(map(str, statuses))
        text = f"job {name} has ended with status {found}; expected {expected}"
        raise Stuck(text, "32.start.32")


async def wait_until_seen(stage: Stage) -> None:
    """Wait until the program must have seen what was before: another job has run and ended."""
    await stage.event(await stage.submit("true"), "clean", "32.start.36")


def must_have_failed(stage: Stage, jobid: int, clause: str) -> None:
    """Raise Stuck unless a job has got an exception, or a status that says that it has failed."""
    events = stage.seen.events(jobid)
    status = events.get("finish", {}).get("status", 0)
    if not ("exception" in events or 0 < status <= _STATUS_MAX):
        raise Stuck(
            f"job {format_fluid(jobid, 'f58')} was not run, and has status {status}", clause
        )


async def running(stage: Stage, witness: Witness) -> int:
    """Submit a job that runs until it is ended, and wait until it does."""
    jobid = await stage.submit(*witness.runs_on())
    await runs(stage, jobid, witness, 1)
    return jobid


async def runs(stage: Stage, jobid: int, witness: Witness, ntasks: int) -> None:
    """Wait until all tasks of a job run."""
    await stage.event(jobid, "start", "32.start.17")
    await stage.until("the tasks of the job", lambda: witness.nstarts >= ntasks, "32.start.17")


async def is_ended(stage: Stage, jobid: int, witness: Witness, more_s: float = 0.0) -> None:
    """Wait until a job that a fatal exception has ended is over: its status is that of wait(2).

    The program may take `more_s` seconds than the deadline.
    """
    await stage.event(jobid, "clean", "32.start.36", more_s)
    witness.all_have_ended(jobid, "32.start.20")
    finish = stage.seen.events(jobid).get("finish")
    if finish is not None and not 0 < finish.get("status", 0) <= _STATUS_MAX:
        text = f"job {format_fluid(jobid, 'f58')} was killed, and has status {finish.get('status')}"
        raise Stuck(f"{text}; expected that of wait(2)", "32.start.32")


async def let_run(stage: Stage, opened: ExitStack, count: int = 3) -> list[tuple[int, Witness]]:
    """Submit jobs that run until they are let end, each with a task on each node."""
    found = []
    for _ in range(count):
        witness = opened.enter_context(Witness())
        jobid = await stage.submit(*witness.ends_when_let(), nnodes=NNODES, duration=WITHIN_S)
        found.append((jobid, witness))
    for jobid, witness in found:
        await runs(stage, jobid, witness, NNODES)
    return found


async def run_on(stage: Stage, jobs: Iterable[tuple[int, Witness]]) -> None:
    """See to it that jobs run, and end well when they are let end."""
    for jobid, witness in jobs:
        stage.must_run(jobid, UNHARMED)
        witness.let_end()
        await ends_with(stage, jobid, 0)
