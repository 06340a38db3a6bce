"""The acts for an execution service (RFC 32): two nodes of two cores, both of them this machine.

The jobs are real commands, which the program has to start.
"""

from __future__ import annotations

from typing import Final

from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.stage import Act, Stage, Stuck, many
from flux_trio.messages import respond_stream, topics

NNODES: Final = 2
CORES: Final = 2  # of each node
CODE: Final = 3  # the exit code of a job that fails
OTHER: Final = "other-exec"
_FINISHED: Final[tuple[tuple[str, dict[str, object]], ...]] = (
    (StartType.START, {}),
    (StartType.FINISH, {"status": 0}),
    (StartType.RELEASE, {"ranks": f"0-{NNODES - 1}", "final": True}),
)
"""The answers to a start of a job on all nodes: types and data."""


async def _ends_with(stage: Stage, jobid: int, status: int) -> None:
    """Wait until a job has ended, with this wait status."""
    await stage.event(jobid, "clean")
    found = stage.events(jobid).get("finish", {}).get("status")
    if found != status:
        name = format_fluid(jobid, "f58")
        raise Stuck(f"job {name} has ended with status {found}; expected {status}", "32.start.32")


async def _one_job(stage: Stage) -> None:
    await _ends_with(stage, await stage.submit("true"), 0)


async def _fails(stage: Stage) -> None:
    await stage.submit("sh", "-c", f"exit {CODE}")


async def _cannot_start(stage: Stage) -> None:
    await stage.submit("/nonexistent/command")


async def _several_nodes(stage: Stage) -> None:
    jobid = await stage.submit("true", nnodes=NNODES, ntasks=NNODES * CORES)
    await _ends_with(stage, jobid, 0)


async def _many(stage: Stage) -> None:
    for jobid in await many(stage, 4 * NNODES * CORES):
        await _ends_with(stage, jobid, 0)


async def _running(stage: Stage) -> int:
    jobid = await stage.submit("sleep", "3600")
    await stage.event(jobid, "start")
    return jobid


async def _canceled(stage: Stage) -> None:
    await stage.cancel(await _running(stage))


async def _canceled_at_once(stage: Stage) -> None:
    for _ in range(5):
        jobid = await stage.submit("sleep", "3600")
        await stage.event(jobid, "alloc")
        await stage.cancel(jobid)


async def _out_of_time(stage: Stage) -> None:
    await stage.submit("sleep", "3600", duration=0.5)


async def _killed(stage: Stage) -> None:
    jobid = await _running(stage)
    await stage.program.kill()
    await stage.serve()
    await stage.cancel(jobid)
    await stage.submit("true")


async def _ended(stage: Stage) -> None:
    await stage.program.end()
    jobid = await stage.submit("true")
    await stage.event(jobid, "alloc")
    await stage.serve()
    await stage.event(jobid, "clean")


async def _not_taken(stage: Stage) -> None:
    """The job manager refuses its hello while another service runs a job (RFC 32, Hello)."""
    await stage.end_program(topics.JOB_MANAGER)
    async with stage.visit(OTHER) as other:
        other.register(OTHER)
        await other.call(topics.EXEC_HELLO, {"service": OTHER})
        jobid = await stage.submit("true", nnodes=NNODES, ntasks=NNODES)
        await stage.asked(f"{OTHER}.{topics.START_METHOD}", jobid)
        (start,) = await other.receive()
        await stage.program.start()
        await stage.left(topics.EXEC_HELLO, "32.hello.9")
        for kind, data in _FINISHED:
            answer = respond_stream(start, {"id": jobid, "type": kind, "data": data})
            assert answer is not None  # a start wants responses
            other.send(answer)
        await stage.event(jobid, "clean")
    await stage.serve()
    await stage.submit("true")


EXEC_ACTS: Final = (
    Act(
        "one job",
        "start, finish and the final release come, with status 0",
        ("32.start.32", "32.start.35", "32.start.36", "32.start.37"),
        _one_job,
    ),
    Act("a job that fails", "the final release comes", ("32.start.36",), _fails),
    Act(
        "a command that cannot be started",
        "the final release comes",
        ("32.start.36",),
        _cannot_start,
    ),
    Act(
        "a job on several nodes",
        "all targets of the job are released",
        ("32.start.20", "32.start.21"),
        _several_nodes,
    ),
    Act("many jobs at once", "each gets answers of its own", ("32.impl.3", "32.start.36"), _many),
    Act("a running job is canceled", "it ends", ("32.start.36",), _canceled),
    Act("jobs are canceled as they start", "they end", ("32.start.36",), _canceled_at_once),
    Act("a job exceeds its time limit", "it ends", ("32.start.36",), _out_of_time),
    Act(
        "the program is killed while a job runs",
        "it takes up the job, or raises an exception",
        ("32.start.10",),
        _killed,
    ),
    Act("the program is ended and started again", "waiting jobs run", ("32.hello.1",), _ended),
    Act("the program is refused while another one serves", "it ends", ("32.hello.9",), _not_taken),
)
