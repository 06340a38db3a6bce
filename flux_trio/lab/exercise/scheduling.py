"""The acts for a scheduler (RFC 27, RFC 28): the instance has four nodes of four cores.

Execution is simulated, so that jobs end by themselves after a time that the act chooses.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from flux_trio.config import DURATION_KEY
from flux_trio.editions.rfc28 import DEFAULT_GROUP
from flux_trio.lab.exercise.refusing import hello_refused, ready_refused, release_refused
from flux_trio.lab.exercise.stage import Act, Stage, all_have, many
from flux_trio.messages import FluxError, topics

NNODES: Final = 4
CORES: Final = 4  # of each node
LONG_S: Final = 3600.0  # a job that the act ends itself
CROSSINGS: Final = 10  # attempts to send something while the answer is on its way
LAST: Final = str(NNODES - 1)  # the target that is taken away


async def _one_job(stage: Stage) -> None:
    await stage.submit()


async def _small_and_large(stage: Stage) -> None:
    await stage.submit(ntasks=3)
    await stage.submit(nnodes=2, ntasks=4)
    await stage.submit(nnodes=NNODES, exclusive=True)


async def _more_than_fit(stage: Stage) -> None:
    await many(stage, 3 * NNODES * CORES)


async def _not_satisfiable(stage: Stage) -> None:
    await stage.submit(nnodes=NNODES + 1)
    await stage.submit(ntasks=NNODES * CORES + 1)
    await stage.submit()


async def _full(stage: Stage, run_s: float = LONG_S) -> int:
    """Fill the machine with one job that runs."""
    jobid = await stage.submit(nnodes=NNODES, exclusive=True, run_s=run_s)
    await stage.event(jobid, "start")
    return jobid


async def _canceled(stage: Stage) -> None:
    full = await _full(stage)
    waiting = await many(stage, 3)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.cancel(waiting[1])
    await stage.event(waiting[1], "clean")
    await stage.cancel(full)


async def _cancel_crosses(stage: Stage) -> None:
    for _ in range(CROSSINGS):
        jobid = await stage.submit(run_s=LONG_S)
        await stage.asked(topics.SCHED_ALLOC, jobid)
        await stage.cancel(jobid)


async def _prioritized(stage: Stage) -> None:
    full = await _full(stage)
    waiting = await many(stage, 4)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    for jobid, urgency in zip(waiting, (8, 24, 12, 20), strict=True):
        await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": urgency})
    await stage.cancel(full)


async def _priority_crosses(stage: Stage) -> None:
    for _ in range(CROSSINGS):
        jobid = await stage.submit()
        await stage.asked(topics.SCHED_ALLOC, jobid)
        with suppress(FluxError):  # it runs already
            await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": 20})


async def _held(stage: Stage) -> None:
    full = await _full(stage)
    jobid = await stage.submit()
    await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": 0})
    await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": 16})
    await stage.cancel(full)


async def _expiration(stage: Stage) -> None:
    jobid = await stage.submit(duration=600.0, run_s=LONG_S)
    await stage.event(jobid, "start")
    updates = {DURATION_KEY: 1200.0}
    with suppress(FluxError):  # the scheduler may refuse it (RFC 27, Expiration)
        await stage.call(topics.JOB_UPDATE, {"id": jobid, "updates": updates})
    await stage.cancel(jobid)


async def _drained(stage: Stage) -> None:
    running = await _full(stage, run_s=0.3)
    await stage.call(topics.RESOURCE_DRAIN, {"targets": LAST, "reason": "an exercise"})
    await all_have(stage, [running, await stage.submit()], "clean")
    waiting = await stage.submit(nnodes=NNODES)
    await stage.asked(topics.SCHED_ALLOC, waiting)
    await stage.call(topics.RESOURCE_UNDRAIN, {"targets": LAST})


async def _node_fails(stage: Stage) -> None:
    running = await _full(stage)
    await stage.call(topics.RESOURCE_DOWN, {"targets": LAST, "reason": "an exercise"})
    await stage.event(running, "clean")
    await stage.event(await stage.submit(), "clean")
    await stage.call(topics.RESOURCE_UP, {"targets": LAST})


async def _shrunk(stage: Stage) -> None:
    running = await _full(stage)
    waiting = await stage.submit(nnodes=NNODES)
    await stage.asked(topics.SCHED_ALLOC, waiting)
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": LAST})
    await all_have(stage, [running, waiting, await stage.submit()], "clean")
    await stage.call(topics.RESOURCE_EXCLUDE, {"targets": ""})
    await stage.event(await stage.submit(nnodes=NNODES), "clean")


async def _killed(stage: Stage) -> None:
    running = await stage.submit(nnodes=2, run_s=LONG_S)
    await stage.event(running, "start")
    waiting = await many(stage, 2, nnodes=NNODES)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.program.kill()
    await stage.serve()
    await stage.cancel(running)


async def _killed_as_it_is_asked(stage: Stage) -> None:
    jobs = await many(stage, 4)
    await stage.asked(topics.SCHED_ALLOC, jobs[1])
    await stage.program.kill()
    await stage.serve()


async def _ended(stage: Stage) -> None:
    running = await stage.submit(run_s=LONG_S)
    await stage.event(running, "start")
    await stage.program.end()
    await stage.cancel(running)
    waiting = await stage.submit()
    await stage.serve()
    await stage.event(waiting, "clean")


async def _not_acquired(stage: Stage) -> None:
    """The resource service refuses it the resources, since somebody else has them (RFC 28)."""
    await stage.end_program(topics.RESOURCE)
    async with (
        stage.visit("holder") as holder,
        holder.stream(topics.RESOURCE_ACQUIRE, {"group": DEFAULT_GROUP}) as grown,
    ):
        await anext(grown)
        await stage.program.start()
        await stage.left(topics.RESOURCE_ACQUIRE)
    await stage.serve()
    await stage.submit()


async def _limited(stage: Stage) -> None:
    """Cancel and prioritize the job that it was asked for, and jobs that it was not asked for."""
    full = await _full(stage)
    waiting = await many(stage, 5)
    await stage.asked(topics.SCHED_ALLOC, waiting[0])
    await stage.call(topics.JOB_URGENCY, {"id": waiting[0], "urgency": 20})
    await stage.call(topics.JOB_URGENCY, {"id": waiting[4], "urgency": 24})
    await stage.cancel(waiting[0])
    await stage.cancel(waiting[3])
    await stage.cancel(full)


async def _limited_killed(stage: Stage) -> None:
    full = await _full(stage)
    waiting = await many(stage, 5)
    await stage.asked(topics.SCHED_ALLOC, waiting[0])
    await stage.program.kill()
    await stage.serve()
    await stage.cancel(full)


SCHED_ACTS: Final = (
    Act("one job", _one_job),
    Act("jobs of several sizes", _small_and_large),
    Act("three times as many jobs as fit", _more_than_fit),
    Act("jobs that can never run", _not_satisfiable),
    Act("a waiting job is canceled", _canceled),
    Act("cancel crosses the answer", _cancel_crosses),
    Act("priorities of waiting jobs change", _prioritized),
    Act("a new priority crosses the answer", _priority_crosses),
    Act("a waiting job is held and released", _held),
    Act("a running job gets a new expiration", _expiration),
    Act("a node is drained and undrained", _drained),
    Act("a node fails and comes back", _node_fails),
    Act("a node is taken away and given back", _shrunk),
    Act("the program is killed while jobs run and wait", _killed),
    Act("the program is killed as it is asked", _killed_as_it_is_asked),
    Act("the program is ended and started again", _ended),
    Act("the program is refused the resources", _not_acquired),
    Act("the program's hello is refused", hello_refused),
    Act("the program's ready is refused", ready_refused),
    Act("the release of a node is refused", release_refused),
)

SCHED_LIMITED_ACTS: Final = (
    Act("limited: more jobs than it may be asked for", _more_than_fit),
    Act("limited: jobs are canceled and prioritized", _limited),
    Act("limited: the program is killed", _limited_killed),
)
