"""The acts for a job manager (RFC 21, 27, 32, 33): our scheduler and execution service ask it.

The instance has four nodes of four cores; execution is simulated, so that jobs end by themselves
after a time that the act chooses. Services are taken away, come back, and others stand in for them.
"""

from __future__ import annotations

from typing import Final

import trio

from flux_trio.config import DURATION_KEY
from flux_trio.formats import format_fluid, value_at
from flux_trio.lab.exercise.acts import GUESTS, UPDATES, Acts
from flux_trio.lab.exercise.managing_execution import OTHER_EXECUTION_ACTS
from flux_trio.lab.exercise.managing_requests import REQUEST_ACTS
from flux_trio.lab.exercise.managing_scheduler import OTHER_SCHEDULER_ACTS, seen
from flux_trio.lab.exercise.sched_jobs import CORES, NNODES, fill
from flux_trio.lab.exercise.stage import (
    HELD,
    LONG_S,
    UNHARMED,
    Stage,
    Stuck,
    all_have,
    many,
    resources_of,
)
from flux_trio.messages import topics
from flux_trio.process.groups import unwrapping

MANAGER_ACTS: Final = Acts()

URGENT: Final = 31  # its priority is 2^32 - 1 (RFC 21)
USERIDS: Final = (1000, 2**32 - 2)
DURATION_S: Final = 600.0
ROUNDED_S: Final = 1.0
FRACTION_S: Final = 0.25  # by which times in this act are no whole seconds, whatever the clock is
LARGE: Final = 2**17  # characters of a jobspec


@MANAGER_ACTS.act(
    "one job",
    "it goes through all states, and each event comes in its order",
    ("21.states.1", "27.alloc.1", "27.success.6", "32.start.1", "32.start.30", "27.free.1"),
)
async def _one_job(stage: Stage) -> None:
    await stage.submit()


@MANAGER_ACTS.act(
    "three times as many jobs as fit",
    "each of them is asked for, started and freed once",
    ("27.impl.8", "27.impl.9", "32.impl.4", "32.start.2"),
)
async def _more_than_fit(stage: Stage) -> None:
    await many(stage, 3 * NNODES * CORES)


@MANAGER_ACTS.act(
    "jobs of several users",
    "the scheduler and the execution service are told whose each is",
    ("27.alloc.4", "32.start.6", "27.hello.9"),
    needs=GUESTS,
    is_for_ours=True,
)
async def _of_several_users(stage: Stage) -> None:
    jobs = [await stage.submit(run_s=LONG_S)]
    for userid in USERIDS:
        async with stage.visit("guest", userid) as guest:
            jobs.append(await stage.submit_from(guest, run_s=LONG_S))
    await all_have(stage, jobs, "start")
    await stage.reload(topics.SCHED)
    for jobid in jobs:
        await stage.cancel(jobid)


@MANAGER_ACTS.act(
    "a job with a large jobspec, and an environment",
    "the scheduler is asked for it as for any other",
    ("27.alloc.5",),
)
async def _large_jobspec(stage: Stage) -> None:
    more = {"user.exercise": "x" * LARGE, "system.environment": {"HOME": "/", "EMPTY": ""}}
    await stage.submit(more=more)
    await stage.submit()


@MANAGER_ACTS.act(
    "jobs that can never run",
    "a denial ends each with its note, and no other job",
    ("27.deny.4", "27.deny.5", "21.sync.1", UNHARMED),
)
async def _denied(stage: Stage) -> None:
    full = await fill(stage)
    fits = await stage.submit()
    too_large = await many(stage, 3, nnodes=NNODES + 1)
    stage.hopeless.update(too_large)
    await all_have(stage, too_large, "clean", "27.deny.5")
    for jobid in too_large:
        if (found := stage.seen.events(jobid).get("exception", {}).get("type")) != "alloc":
            name = format_fluid(jobid, "f58")
            raise Stuck(f"job {name} was denied, and its exception is {found}", "27.deny.5")
    stage.must_wait(fits, UNHARMED)
    await stage.cancel(full)


@MANAGER_ACTS.act(
    "waiting jobs are canceled",
    "their requests are canceled, and those of the others are not",
    ("27.exceptions.2", "27.criteria.7", UNHARMED),
)
async def _canceled_while_they_wait(stage: Stage) -> None:
    """The first, the middle and the last of five."""
    full = await fill(stage)
    waiting = await many(stage, 5)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    for jobid in waiting[::2]:
        await stage.cancel(jobid)
        await stage.asked(topics.SCHED_CANCEL, jobid)
    await all_have(stage, waiting[::2], "clean")
    for jobid in waiting[1::2]:
        stage.must_wait(jobid, UNHARMED)
    await stage.cancel(full)


@MANAGER_ACTS.act(
    "running jobs are canceled",
    "they are freed when their processes have ended, and the others run on",
    ("27.exceptions.1", "27.exceptions.3", "32.start.39", UNHARMED),
)
async def _canceled_while_they_run(stage: Stage) -> None:
    running = await many(stage, 5, run_s=LONG_S)
    await all_have(stage, running, "start")
    for jobid in running[::2]:
        await stage.cancel(jobid)
    await all_have(stage, running[::2], "clean", "27.exceptions.3")
    for jobid in running[1::2]:
        stage.must_run(jobid, UNHARMED)
        await stage.cancel(jobid)


@MANAGER_ACTS.act(
    "exceptions come that are not fatal",
    "the state of no job changes",
    ("21.exceptions.3", UNHARMED),
)
async def _not_fatal(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 3)
    for severity, jobid in zip((1, 4, 7), waiting, strict=True):
        await stage.asked(topics.SCHED_ALLOC, jobid)
        for each in (jobid, full):
            payload = {"id": each, "severity": severity, "type": "exercise", "note": "mild"}
            await stage.call(topics.JOB_RAISE, payload)
            await stage.event(each, "exception", "21.exceptions.4")
    stage.must_run(full, UNHARMED)
    for jobid in waiting:
        stage.must_wait(jobid, UNHARMED)
    await stage.cancel(full)


@MANAGER_ACTS.act(
    "a waiting job is held and released",
    "its request is canceled, and it is asked for again; events have the time that it is then",
    ("27.alloccancel.4", "18.format.6", HELD),
)
async def _held(stage: Stage) -> None:
    full = await fill(stage)
    jobs = await many(stage, 3)
    for jobid in jobs:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.call(topics.JOB_URGENCY, {"id": jobs[1], "urgency": 0})
    await stage.asked(topics.SCHED_CANCEL, jobs[1], clause="27.alloccancel.4")
    await stage.answered(topics.SCHED_ALLOC, jobs[1])
    await seen(stage, jobs[0])
    if stage.seen.times_asked(topics.SCHED_ALLOC, jobs[1]) > 1:
        raise Stuck("a job was held, and the scheduler is asked for it", HELD)
    await trio.sleep(FRACTION_S)
    before, released_at = len(stage.seen.timestamps(jobs[1])), stage.now()
    await stage.call(topics.JOB_URGENCY, {"id": jobs[1], "urgency": 16})
    await stage.asked(topics.SCHED_ALLOC, jobs[1], 2)
    await stage.cancel(full)
    await stage.event(jobs[1], "clean")
    stamps = stage.seen.timestamps(jobs[1])
    if stamps != sorted(stamps) or not released_at <= stamps[before] <= stamps[-1] <= stage.now():
        raise Stuck(f"the timestamps of the events of a job are {stamps}", "18.format.6")


@MANAGER_ACTS.act(
    "priorities of waiting jobs change",
    "the scheduler is told the new ones, from the least to the greatest",
    (
        *(f"27.prioritize.{number}" for number in range(1, 6)),
        *("27.criteria.8", "21.criteria.6", "21.events.18"),
    ),
)
async def _prioritized(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 4, nnodes=NNODES, exclusive=True)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    for jobid, urgency in zip(waiting, (1, URGENT, 12, 20), strict=True):
        await stage.call(topics.JOB_URGENCY, {"id": jobid, "urgency": urgency})
        await stage.event(jobid, "urgency", "21.criteria.6")
    last = await stage.submit(urgency=2)  # it is asked for after what the scheduler is told
    await stage.asked(topics.SCHED_ALLOC, last)
    await stage.cancel(full)
    await all_have(stage, waiting, "clean")
    stage.started_in([waiting[at] for at in (1, 3, 2, 0)], "27.prioritize.1")


@MANAGER_ACTS.act(
    "the time limit of a waiting job changes",
    "its request is canceled, and the scheduler is asked for it with the new jobspec",
    ("33.defaults.7", "33.defaults.9", "21.states.9", UNHARMED),
    needs=UPDATES,
)
async def _updated(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 3, duration=DURATION_S)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await trio.sleep(ROUNDED_S)  # a limit counts from the start, not from the submission
    updates = {DURATION_KEY: 2 * DURATION_S}
    await stage.call(topics.JOB_UPDATE, {"id": waiting[1], "updates": updates})
    await stage.event(waiting[1], "jobspec-update", "33.defaults.9")
    await stage.asked(topics.SCHED_ALLOC, waiting[1], 2, "33.defaults.7")
    await stage.cancel(full)
    await all_have(stage, waiting, "clean")
    for jobid in waiting:
        resources = await resources_of(stage, jobid)
        found = resources.expiration - resources.starttime
        expected = DURATION_S * (1 + (jobid == waiting[1]))
        if abs(found - expected) > ROUNDED_S:
            name = format_fluid(jobid, "f58")
            raise Stuck(f"job {name} has got {found:g} s; expected {expected:g}", "33.defaults.7")


@MANAGER_ACTS.act(
    "the time limits of a waiting and a running job change, and the program is killed",
    "it is asked for, and taken up again, with the new jobspec",
    ("33.defaults.7", "21.criteria.8", UNHARMED),
    needs=UPDATES,
)
async def _updated_and_killed(stage: Stage) -> None:
    running = await many(stage, 3, nnodes=NNODES, duration=DURATION_S, run_s=LONG_S)
    await all_have(stage, running, "start")
    waiting = await many(stage, 3, nnodes=NNODES, exclusive=True, duration=DURATION_S)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    updates = {DURATION_KEY: 2 * DURATION_S}
    for jobid in (running[1], waiting[1]):
        await stage.call(topics.JOB_UPDATE, {"id": jobid, "updates": updates})
        await stage.event(jobid, "jobspec-update", "33.defaults.9")
    await stage.program.kill()
    await stage.serve()
    for topic, jobs in ((topics.START_METHOD, running), (topics.SCHED_ALLOC, waiting)):
        for jobid in jobs:
            await stage.asked(topic, jobid, 2, "21.criteria.8")
            found = value_at(stage.seen.jobspec_asked(topic, jobid), DURATION_KEY)
            expected = DURATION_S * (1 + (jobid == jobs[1]))
            if found != expected:
                text = f"{topic} of job {format_fluid(jobid, 'f58')} has a limit of {found} s"
                raise Stuck(f"{text}; expected {expected:g}", "33.defaults.7")
    for jobid in running:
        stage.must_run(jobid, UNHARMED)
        await stage.cancel(jobid)


@MANAGER_ACTS.act(
    "a job names a queue that is not there",
    "it is rejected, and no job is left of it",
    ("33.validation.1", "33.validation.4"),
    where=lambda edition: not edition.ingest_fills_in,  # else job ingest rejects it
)
async def _in_no_queue(stage: Stage) -> None:
    await stage.rejected("33.validation.1", more={"system.queue": "nobody"})
    await stage.submit()


@MANAGER_ACTS.act(
    "jobs of several urgencies wait for a scheduler",
    "it is asked for them in the order of their priorities, then of their submission",
    ("27.criteria.5", "27.finalization.3", "27.alloc.3"),
)
async def _wait_for_a_scheduler(stage: Stage) -> None:
    await stage.remove(topics.SCHED)
    for urgency in (1, 17, URGENT, 17, 16, 30):
        await stage.submit(urgency=urgency)
    await stage.load(topics.SCHED)


@MANAGER_ACTS.act(
    "the scheduler is loaded again while jobs run and wait",
    "hello tells what jobs hold, what was not answered is asked again, and running jobs run on",
    (
        *("27.hello.4", "27.hello.5", "27.hello.7", "27.hello.8", "27.hello.10", "27.hello.11"),
        *("27.ready.13", "27.criteria.3", "27.criteria.4", "27.criteria.6", "27.finalization.5"),
        UNHARMED,
    ),
)
async def _scheduler_again(stage: Stage) -> None:
    await trio.sleep(FRACTION_S)
    running = [
        await stage.submit(nnodes=1, exclusive=True, run_s=LONG_S, urgency=urgency)
        for urgency in (1, URGENT, 16)
    ]
    await all_have(stage, running, "start")
    waiting = await many(stage, 3, nnodes=NNODES, exclusive=True)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.reload(topics.SCHED)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid, 2)
    for jobid in running:
        stage.must_run(jobid, UNHARMED)
        await stage.cancel(jobid)


@MANAGER_ACTS.act(
    "running jobs end while there is no scheduler",
    "the next one is told that they hold resources, and is asked to free them",
    ("27.hello.4", "27.free.1", "27.finalization.4"),
)
async def _ended_without_a_scheduler(stage: Stage) -> None:
    running = await many(stage, 3, nnodes=1, exclusive=True, run_s=LONG_S)
    await all_have(stage, running, "start")
    await stage.remove(topics.SCHED)
    for jobid in running[::2]:
        await stage.cancel(jobid)
        await stage.event(jobid, "release", "27.free.1")
    await stage.load(topics.SCHED)
    stage.must_run(running[1], UNHARMED)
    await stage.cancel(running[1])


@MANAGER_ACTS.act(
    "there is no execution service when jobs get their resources",
    "the next one is asked to start them, and not before its hello is answered",
    ("32.start.1", "32.start.2", "32.criteria.6"),
)
async def _no_executor(stage: Stage) -> None:
    await stage.remove(topics.JOB_EXEC)
    jobs = await many(stage, 3)
    await all_have(stage, jobs, "alloc")
    await stage.cancel(jobs[1])
    await stage.event(jobs[1], "clean")
    await stage.load(topics.JOB_EXEC)


@MANAGER_ACTS.act(
    "a queue is stopped and started",
    "requests are canceled, none is sent while it is stopped, and what ends is freed",
    ("33.admin.6", "33.admin.7", UNHARMED),
)
async def _stopped(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 3)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    about = {"all": True, "reason": "an exercise", "nocheckpoint": True}
    await stage.call(topics.JOB_QUEUE_START, {"start": False, **about})
    for jobid in waiting:
        await stage.asked(topics.SCHED_CANCEL, jobid)
    late = await stage.submit()
    await stage.cancel(full)
    await stage.event(full, "clean", "33.admin.7")
    for jobid in (*waiting, late):
        stage.must_wait(jobid, "33.admin.7")
    await stage.call(topics.JOB_QUEUE_START, {"start": True, "all": True, "nocheckpoint": True})


@MANAGER_ACTS.act(
    "a queue is disabled and enabled",
    "it rejects jobs, and those that it has run on",
    ("33.admin.3", "33.validation.4"),
)
async def _disabled(stage: Stage) -> None:
    """Of several jobs that come at once, each is rejected."""
    full = await fill(stage)
    waiting = await many(stage, 3)
    about = {"all": True, "reason": "an exercise", "nocheckpoint": True}
    await stage.call(topics.JOB_QUEUE_ENABLE, {"enable": False, **about})
    with unwrapping(Stuck):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(stage.rejected, "33.admin.3")
    await stage.reload(topics.SCHED)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid, 2, "33.admin.3")
    await stage.cancel(full)
    await all_have(stage, waiting, "clean", "33.admin.3")
    await stage.call(topics.JOB_QUEUE_ENABLE, {"enable": True, "all": True, "nocheckpoint": True})


@MANAGER_ACTS.act(
    "a queue is stopped and disabled, then enabled, and disabled and started",
    "whether it takes jobs and whether it is scheduled have nothing to do with each other",
    ("33.admin.3", "33.admin.7"),
)
async def _stopped_and_disabled(stage: Stage) -> None:
    about = {"all": True, "reason": "an exercise", "nocheckpoint": True}

    async def start(*, start: bool) -> None:
        await stage.call(topics.JOB_QUEUE_START, {"start": start, **about})

    async def enable(*, enable: bool) -> None:
        await stage.call(topics.JOB_QUEUE_ENABLE, {"enable": enable, **about})

    await start(start=False)
    await enable(enable=False)
    await enable(enable=True)
    waiting = await many(stage, 3)
    await all_have(stage, waiting, "priority")
    await seen(stage, waiting[1])
    for jobid in waiting:
        if stage.seen.times_asked(topics.SCHED_ALLOC, jobid):
            raise Stuck("a queue is stopped, and the scheduler is asked for its job", "33.admin.7")
    await enable(enable=False)
    await start(start=True)
    await all_have(stage, waiting, "clean", "33.admin.7")
    await stage.rejected("33.admin.3")
    await enable(enable=True)
    await stage.submit()


@MANAGER_ACTS.act(
    "the program is killed while jobs run and wait",
    "they go on: nothing is started twice, and what waited is asked for again",
    ("32.start.9", "21.events.19", "21.criteria.8", "27.hello.4", UNHARMED),
)
async def _killed(stage: Stage) -> None:
    running = await many(stage, 3, nnodes=1, exclusive=True, run_s=LONG_S)
    await all_have(stage, running, "start")
    waiting = await many(stage, 3, nnodes=NNODES, exclusive=True)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    await stage.program.kill()
    await stage.serve()
    for jobid in waiting:
        await stage.event(jobid, "flux-restart", "21.events.19")
        await stage.asked(topics.SCHED_ALLOC, jobid, 2, "21.criteria.8")
    for jobid in running:
        await stage.asked(topics.START_METHOD, jobid, 2)
        stage.must_run(jobid, UNHARMED)
        await stage.cancel(jobid)
    await all_have(stage, [*running, *waiting], "clean")
    stage.said_once([*running, *waiting], ("flux-restart", "start", "finish"))


MANAGER_ACTS.extend(REQUEST_ACTS)
MANAGER_ACTS.extend(OTHER_SCHEDULER_ACTS)
MANAGER_ACTS.extend(OTHER_EXECUTION_ACTS)
