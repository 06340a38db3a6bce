"""The acts for a scheduler (RFC 27, RFC 28): the instance has four nodes of four cores.

Execution is simulated, so that jobs end by themselves after a time that the act chooses.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import trio

from flux_trio.config import DURATION_KEY
from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.abilities import ABILITY_ACTS
from flux_trio.lab.exercise.acts import Acts, Order
from flux_trio.lab.exercise.nodes import NODE_ACTS
from flux_trio.lab.exercise.refusals import REFUSAL_ACTS
from flux_trio.lab.exercise.restarts import RESTART_ACTS, after_a_restart
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
from flux_trio.lab.exercise.stage import (
    LONG_S,
    ONCE,
    REFUSED,
    Stage,
    Stuck,
    all_have,
    many,
    resources_of,
)
from flux_trio.lab.exercise.substitute_services import STAND_IN_ACTS
from flux_trio.messages import FluxError, topics

CROSSINGS: Final = 10  # attempts to send something while the answer is on its way
LIMIT_S: Final = 0.3  # a time limit that passes
LARGE: Final = 2**17  # characters of a jobspec
DURATION_S: Final = 60.0
WAITED_S: Final = 1.5  # how long a job waits, more than by which an end may be rounded
ROUNDED_S: Final = 1.0
URGENT: Final = 31  # its priority is 2^32 - 1 (RFC 21)

SCHED_ACTS: Final = Acts()
SCHED_LIMITED_ACTS: Final = Acts()
_ORDERED: Final = frozenset({Order.FIFO, Order.PRIORITY})
_AGAIN: Final = frozenset(
    {
        "jobs that can never run",
        "priorities of waiting jobs change",
        "a job with a time limit waits",
        "a node is drained and undrained",
    }
)
"""Acts that are played again by a program that was killed while a job ran."""


@SCHED_ACTS.act("one job", "it gets resources, runs, is freed", ("27.success.1", "27.free.6"))
async def _one_job(stage: Stage) -> None:
    await stage.submit()


@SCHED_ACTS.act(
    "jobs of several sizes",
    "each gets the cores and nodes that it asks for",
    ("27.success.1", "20.nslots.3"),
)
async def _small_and_large(stage: Stage) -> None:
    nslots = {
        await stage.submit(ntasks=3): 3,
        await stage.submit(nnodes=2, ntasks=4): 4,
        await stage.submit(ntasks=2, cores_per_task=2): 2,
        await stage.submit(nnodes=NNODES, ntasks=NNODES * CORES): NNODES * CORES,
        await stage.submit(nnodes=NNODES, exclusive=True): NNODES,
        await stage.submit(ntasks=NNODES * CORES): NNODES * CORES,
        await stage.submit(ntasks=NNODES, cores_per_task=CORES): NNODES,
        await stage.submit(nnodes=1, cores_per_task=CORES, duration=1800.5): 1,
    }
    for jobid, expected in nslots.items():
        await stage.event(jobid, "clean")
        found = (await resources_of(stage, jobid)).nslots
        if found != expected:
            clause = "20.nslots.3" if found is None else "20.nslots.1"
            text = f"job {format_fluid(jobid, 'f58')}: execution.nslots: expected {expected}"
            raise Stuck(f"{text}, got {found}", clause)


@SCHED_ACTS.act(
    "a job with a large jobspec",
    "its request, of more than 64 KiB, is answered as any other",
    ("27.success.1",),
)
async def _large_jobspec(stage: Stage) -> None:
    await stage.submit(more={"user.exercise": "x" * LARGE})
    await stage.submit()


@SCHED_LIMITED_ACTS.act(
    "limited: more jobs than it may be asked for", "all of them run", ("27.ready.9", "27.ready.10")
)
@SCHED_ACTS.act(
    "three times as many jobs as fit",
    "no core is given twice, and those that are freed are given again",
    (DOUBLE, "27.free.5"),
)
async def _more_than_fit(stage: Stage) -> None:
    await many(stage, 3 * NNODES * CORES)


@SCHED_ACTS.act(
    "more jobs of several sizes than fit",
    "no core of a job on many cores or nodes is given twice",
    (DOUBLE, "27.free.5"),
)
async def _large_more_than_fit(stage: Stage) -> None:
    jobids: list[int] = []
    for _ in range(3):
        jobids += await many(stage, 3, ntasks=3)
        jobids += await many(stage, 2, nnodes=2, ntasks=4)
        jobids.append(await stage.submit(nnodes=NNODES, ntasks=2 * NNODES))
    await all_have(stage, jobids, "clean", "27.free.5")


@SCHED_ACTS.act(
    "one of two jobs ends while a third one waits for both",
    "only the resources of the job that has ended are free",
    (DOUBLE, "27.free.5"),
)
async def _one_of_two_ends(stage: Stage) -> None:
    one, other = await many(stage, 2, nnodes=NNODES // 2, exclusive=True, run_s=LONG_S)
    await all_have(stage, [one, other], "start")
    waiting = await waits(stage, DOUBLE, nnodes=NNODES, exclusive=True)
    await stage.cancel(one)
    await stage.answered(topics.SCHED_FREE, one, "27.free.6")
    await wait_until_seen(stage, nnodes=NNODES, exclusive=True)
    stage.must_wait(waiting, DOUBLE)
    await stage.cancel(other)
    await stage.event(waiting, "start", "27.free.5")


@SCHED_ACTS.act(
    "jobs end here and there",
    "cores and nodes that do not lie side by side are given again, and no other ones",
    (DOUBLE, "27.free.5"),
)
async def _gaps(stage: Stage) -> None:
    """Every second core of each node becomes free, and then every second node."""
    running = await one_on_each(stage, NNODES * CORES)
    for jobids in running.values():
        await ended(stage, sorted(jobids)[::2])
    left = [each for jobids in running.values() for each in sorted(jobids)[1::2]]
    fitting = await many(stage, NNODES, cores_per_task=CORES // 2, run_s=LONG_S)
    await all_have(stage, fitting, "start", "27.free.5")
    await waits(stage, DOUBLE)
    await ended(stage, [*left, *fitting])
    running = await one_on_each(stage, NNODES, nnodes=1, exclusive=True)
    await ended(stage, [running[rank][0] for rank in (0, 2)])
    fits = await stage.submit(nnodes=2, exclusive=True, run_s=LONG_S)
    await stage.event(fits, "start", "27.free.5")
    await waits(stage, DOUBLE)
    await ended(stage, [fits, *(running[rank][0] for rank in (1, 3))])


@SCHED_ACTS.act(
    "jobs that can never run",
    "they are denied while the machine is full, and a job that fits later is not",
    ("27.deny.1", "27.impl.10", "28.criteria.3"),
)
async def _not_satisfiable(stage: Stage) -> None:
    full = await fill(stage)
    await stage.submit()
    too_large = [
        await stage.submit(nnodes=NNODES + 1),
        await stage.submit(ntasks=NNODES * CORES + 1),
        await stage.submit(nnodes=1, ntasks=CORES + 1),
        await stage.submit(cores_per_task=CORES + 1),
        await stage.submit(ntasks=NNODES + 1, cores_per_task=CORES - 1),
    ]
    stage.hopeless.update(too_large)
    await all_have(stage, too_large, "clean", "27.deny.1")
    await stage.cancel(full)


@SCHED_ACTS.act(
    "a waiting job is canceled",
    "its request is answered with CANCEL",
    ("27.alloccancel.1", "27.alloccancel.2", "27.cancel.4", "27.cancel.5", "27.success.1"),
)
async def _canceled(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 3)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.canceled(waiting[1])
    await stage.cancel(full)


@SCHED_ACTS.act(
    "cancel crosses the answer", "a cancel that comes too late is ignored", ("27.cancel.4",)
)
async def _cancel_crosses(stage: Stage) -> None:
    for _ in range(CROSSINGS):
        jobid = await stage.submit(run_s=LONG_S)
        await stage.asked(topics.SCHED_ALLOC, jobid)
        await stage.cancel(jobid)


async def ended(stage: Stage, jobids: Iterable[int]) -> None:
    """End jobs that run, and wait until they have released what they had."""
    for jobid in jobids:
        await stage.cancel(jobid)
        await stage.event(jobid, "clean")


async def _reprioritized(stage: Stage) -> list[int]:
    """Change the priorities of jobs that wait; return them, the highest priority first."""
    full = await fill(stage)
    waiting = await many(stage, 4, nnodes=NNODES, exclusive=True)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    for jobid, urgency in zip(waiting, (1, URGENT, 12, 20), strict=True):
        await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": urgency})
    await wait_until_seen(stage, nnodes=NNODES, exclusive=True)
    await stage.cancel(full)
    await all_have(stage, waiting, "clean")
    return [waiting[at] for at in (1, 3, 2, 0)]


@SCHED_ACTS.act(
    "priorities of waiting jobs change",
    "nothing is answered to sched.prioritize",
    ("27.prioritize.8",),
    frozenset({Order.ANY}),
)
async def _prioritized(stage: Stage) -> None:
    await _reprioritized(stage)


@SCHED_ACTS.act(
    "priorities of waiting jobs change",
    "jobs start in the order of their new priorities",
    ("27.prioritize.6", "27.prioritize.8"),
    _ORDERED,
)
async def _in_order_of_priority(stage: Stage) -> None:
    stage.started_in(await _reprioritized(stage), "27.prioritize.6")


@SCHED_ACTS.act(
    "jobs of every urgency wait",
    "they start in the order of their priorities, of which the greatest is 2^32 - 1",
    ("27.prioritize.6",),
    _ORDERED,
)
async def _of_every_urgency(stage: Stage) -> None:
    full = await fill(stage)
    waiting = [
        await stage.submit(urgency=urgency, nnodes=NNODES, exclusive=True)
        for urgency in (1, 17, URGENT, URGENT - 1)
    ]
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.cancel(full)
    await all_have(stage, waiting, "clean")
    stage.started_in([waiting[at] for at in (2, 3, 1, 0)], "27.prioritize.6")


@SCHED_ACTS.act(
    "a small job gets a higher priority than a large one that waits",
    "it starts at once, if not before",
    ("27.prioritize.6",),
    _ORDERED,
)
async def _overtakes(stage: Stage) -> None:
    running = await stage.submit(nnodes=NNODES - 1, exclusive=True, run_s=LONG_S)
    await stage.event(running, "start")
    large = await waits(stage, DOUBLE, nnodes=NNODES, exclusive=True)
    small = await stage.submit(nnodes=1)
    await stage.asked(topics.SCHED_ALLOC, small)
    with suppress(FluxError):  # it runs already
        await stage.call(topics.JOB_URGENCY, {"id": small, "urgency": 20})
    await stage.event(small, "clean", "27.prioritize.6")
    stage.must_wait(large, DOUBLE)
    await stage.cancel(running)


@SCHED_ACTS.act(
    "equal jobs wait",
    "they start in the order of their submission",
    ("order.fifo",),
    frozenset({Order.FIFO}),
)
async def _in_order_of_submission(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 4, nnodes=NNODES, exclusive=True)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.cancel(full)
    await all_have(stage, waiting, "clean")
    stage.started_in(waiting, "order.fifo")


@SCHED_ACTS.act(
    "a new priority crosses the answer",
    "a job that does not wait any more is ignored",
    ("27.prioritize.8",),
)
async def _priority_crosses(stage: Stage) -> None:
    for _ in range(CROSSINGS):
        jobid = await stage.submit()
        await stage.asked(topics.SCHED_ALLOC, jobid)
        with suppress(FluxError):  # it runs already
            await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": 20})


@SCHED_ACTS.act(
    "a waiting job is held and released",
    "it is asked for again, and runs",
    ("27.cancel.8", "27.alloccancel.1"),
)
async def _held(stage: Stage) -> None:
    full = await fill(stage)
    jobid = await stage.submit()
    await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": 0})
    await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": 16})
    await stage.cancel(full)


@SCHED_ACTS.act(
    "somebody asks for a method that is not there",
    "it is refused, and the program serves on",
    (REFUSED,),
)
async def _unknown_method(stage: Stage) -> None:
    waiting = await many(stage, 3)
    async with stage.visit("passer-by") as other:
        await stage.refused(f"{topics.SCHED}.exercise", other, id=waiting[1])
    await all_have(stage, waiting, "clean")


@SCHED_ACTS.act(
    "a running job gets a new expiration",
    "the request is answered once, be it with a refusal",
    (ONCE,),
)
async def _expiration(stage: Stage) -> None:
    jobid = await stage.submit(duration=600.0, run_s=LONG_S)
    await stage.event(jobid, "start")
    updates = {DURATION_KEY: 1200.0}
    with suppress(FluxError):  # the scheduler may refuse it (RFC 27, Expiration)
        await stage.call(topics.JOB_UPDATE, {"id": jobid, "updates": updates})
    await stage.cancel(jobid)


@SCHED_ACTS.act(
    "a job with a time limit waits",
    "its time counts from when it gets its resources",
    ("14.attributes.2",),
)
async def _limit_after_a_wait(stage: Stage) -> None:
    full = await fill(stage)
    jobid = await stage.submit(nnodes=NNODES, duration=DURATION_S)
    await stage.asked(topics.SCHED_ALLOC, jobid)
    await trio.sleep(WAITED_S)
    freed = stage.now()
    await stage.cancel(full)
    await stage.event(jobid, "clean")
    end = (await resources_of(stage, jobid)).expiration
    if end < freed + DURATION_S - ROUNDED_S:
        text = f"job {format_fluid(jobid, 'f58')} has {DURATION_S:g} s, and its R ends "
        text += f"{end - freed:.3f} s after it could start"
        raise Stuck(text, "14.attributes.2")


@SCHED_ACTS.act(
    "a job holds its cores after its time limit",
    "nobody gets them before they are freed",
    (DOUBLE,),
)
async def _past_its_limit(stage: Stage) -> None:
    """The execution service takes its time to end a job that has exceeded its limit."""
    async with held_on(stage, duration=LIMIT_S):
        waiting = await waits(stage, DOUBLE)
        await trio.sleep(LIMIT_S)
        await wait_until_seen(stage)
        stage.must_wait(waiting, DOUBLE)
        await stage.canceled(waiting)


SCHED_ACTS.extend(NODE_ACTS)
SCHED_ACTS.extend(RESTART_ACTS)
SCHED_ACTS.extend([after_a_restart(each) for each in SCHED_ACTS if each.title in _AGAIN])
SCHED_ACTS.extend(REFUSAL_ACTS)
SCHED_ACTS.extend(STAND_IN_ACTS)
SCHED_ACTS.extend(ABILITY_ACTS)


@SCHED_LIMITED_ACTS.act(
    "limited: jobs are canceled and prioritized",
    "that of jobs that it was not asked for does not disturb it",
    ("27.prioritize.8",),
)
async def _limited(stage: Stage) -> None:
    """Cancel and prioritize the job that it was asked for, and jobs that it was not asked for."""
    full = await fill(stage)
    waiting = await many(stage, 5)
    await stage.asked(topics.SCHED_ALLOC, waiting[0])
    await stage.call(topics.JOB_URGENCY, {"id": waiting[0], "urgency": 20})
    await stage.call(topics.JOB_URGENCY, {"id": waiting[4], "urgency": 24})
    await stage.cancel(waiting[0])
    await stage.cancel(waiting[3])
    await stage.cancel(full)


@SCHED_LIMITED_ACTS.act(
    "limited: the program is killed", "what it has not answered is asked again", ("27.hello.12",)
)
async def _limited_killed(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 5)
    await stage.asked(topics.SCHED_ALLOC, waiting[0])
    await stage.program.kill()
    await stage.serve()
    await stage.cancel(full)
