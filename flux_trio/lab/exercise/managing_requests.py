"""The acts for a job manager about what users and operators ask, and about what it is refused."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.broker import Handle
from flux_trio.config import DURATION_KEY
from flux_trio.editions.flux_kvs import look_up, value_of
from flux_trio.editions.kvs import Lookup
from flux_trio.editions.rfc27 import Hello
from flux_trio.formats import EVENTLOG, format_fluid, job_key, parse_eventlog
from flux_trio.lab.exercise.acts import GUESTS, UPDATES, Acts
from flux_trio.lab.exercise.managing_scheduler import seen
from flux_trio.lab.exercise.sched_jobs import fill
from flux_trio.lab.exercise.stage import (
    LONG_S,
    ONCE,
    REFUSED,
    UNHARMED,
    URGENT,
    Stage,
    Stuck,
    all_have,
    many,
    resources_of,
)
from flux_trio.messages import Event, FluxError, topics

REQUEST_ACTS: Final = Acts()

EXPEDITED: Final = 31  # the urgency
HIGHEST: Final = 2**32 - 1  # the priority
DEFAULT: Final = 16
GUEST: Final = 1000
NOBODY: Final = 2**62  # no job has this id
NOT_STORED: Final = "21.criteria.7"
ENDS_S: Final = 1.0  # how long a program that ends by itself may be idle before
RAISED: Final[dict[str, Any]] = {"severity": 3, "type": "exercise", "note": ""}


@REQUEST_ACTS.act(
    "somebody asks for what is not there, or out of range",
    "it is refused, and no job has an event of it",
    ("21.exceptions.1", "21.events.20", "21.events.31", "21.events.33", REFUSED, UNHARMED),
)
async def out_of_range(stage: Stage) -> None:
    over = await stage.submit()
    await stage.event(over, "clean")
    full = await fill(stage)
    waiting = await many(stage, 3)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    for severity in (-1, 8):
        await stage.refused(topics.JOB_RAISE, **RAISED | {"id": waiting[1], "severity": severity})
    for urgency in (-1, EXPEDITED + 1):
        await stage.refused(topics.JOB_URGENCY, id=waiting[1], urgency=urgency)
    await stage.refused(topics.JOB_URGENCY, id=full, urgency=DEFAULT + 1)  # it runs
    for jobid in (over, NOBODY):
        await stage.refused(topics.JOB_RAISE, **RAISED | {"id": jobid})
        await stage.refused(topics.JOB_URGENCY, id=jobid, urgency=DEFAULT)
        await stage.refused(topics.JOB_UPDATE, id=jobid, updates={DURATION_KEY: 600.0})
    await stage.refused(f"{topics.JOB_MANAGER}.exercise")
    updates = {"attributes.system.exercise": 1}
    await stage.refused(topics.JOB_UPDATE, id=waiting[1], updates=updates)
    for wrong in ("600", -1.0, None):
        await stage.refused(topics.JOB_UPDATE, id=waiting[1], updates={DURATION_KEY: wrong})
    depends = [{"scheme": "exercise", "value": "1"}]
    await stage.rejected(REFUSED, more={"system.dependencies": depends})
    for jobid in (over, *waiting):
        for name in ("exception", "urgency", "jobspec-update"):
            if stage.seen.count(jobid, name):
                text = f"job {format_fluid(jobid, 'f58')} has an event {name}, which was refused"
                raise Stuck(text, REFUSED)
    await stage.cancel(full)


@REQUEST_ACTS.act(
    "a guest asks for what only the owner may, or the job's user",
    "it is refused, and what is the guest's own to ask is done",
    (REFUSED, "21.events.35", UNHARMED),
    needs=GUESTS,
    is_for_ours=True,
)
async def of_a_guest(stage: Stage) -> None:
    full = await fill(stage)
    others = await stage.submit()
    async with stage.visit("guest", GUEST) as guest:
        own = await stage.submit_from(guest)
        for jobid in (full, others):
            await stage.refused(topics.JOB_RAISE, guest, **RAISED | {"id": jobid, "severity": 0})
            await stage.refused(topics.JOB_URGENCY, guest, id=jobid, urgency=0)
            updates = {DURATION_KEY: 1.0}
            await stage.refused(topics.JOB_UPDATE, guest, id=jobid, updates=updates)
        await stage.refused(topics.JOB_URGENCY, guest, id=own, urgency=DEFAULT + 1)
        for topic in (topics.JOB_QUEUE_START, topics.JOB_QUEUE_ENABLE):
            how = {"all": True, "reason": "a guest", "nocheckpoint": True}
            await stage.refused(topic, guest, start=False, enable=False, **how)
        await stage.refused(topics.EXEC_HELLO, guest, service="guest")
        await _hello_refused(stage, guest)
        await stage.refused(topics.SCHED_READY, guest, mode="unlimited")
        await stage.refused(topics.JOB_SUBMIT, guest, jobs=[])
        await guest.call(topics.JOB_URGENCY, {"id": own, "urgency": 1})
        await stage.event(own, "urgency", "21.criteria.6")
        await seen(stage, own)
        if stage.seen.events(own)["exception"].get("userid") == GUEST:
            raise Stuck("the owner raises an exception, and it has the job's user", "21.events.35")
    stage.must_run(full, UNHARMED)
    await stage.cancel(full)


async def _hello_refused(stage: Stage, guest: Handle) -> None:
    hello = stage.edition.sched_hello.write(Hello(partial_ok=True))
    with stage.deadline():
        try:
            async with guest.stream(topics.SCHED_HELLO, hello) as told:
                found = [each async for each in told]
        except FluxError:
            return
        text = f"{topics.SCHED_HELLO} of a guest was not refused; it tells of {len(found)} jobs"
        raise Stuck(text, REFUSED)
    raise Stuck(f"no answer to {topics.SCHED_HELLO} of a guest", REFUSED)


@REQUEST_ACTS.act(
    "waiting jobs are expedited and held",
    "their priorities are the highest and 0, and the one before is told",
    ("27.criteria.8", "21.events.18", ONCE, URGENT),
)
async def expedited(stage: Stage) -> None:
    full = await fill(stage)
    first = await stage.submit(urgency=EXPEDITED)
    waiting = await many(stage, 3)
    for jobid in (first, *waiting):
        await stage.asked(topics.SCHED_ALLOC, jobid)
    before = DEFAULT
    for urgency in (EXPEDITED, 0, EXPEDITED):
        nbefore = stage.seen.count(waiting[1], "priority")
        found = await stage.call(topics.JOB_URGENCY, {"id": waiting[1], "urgency": urgency})
        if (found or {}).get("old_urgency") != before:
            raise Stuck(f"expected old_urgency {before}, got {found}")
        await stage.another(waiting[1], "priority", nbefore, "21.states.9")
        _must_have(stage, waiting[1], HIGHEST if urgency else 0)
        before = urgency
    _must_have(stage, first, HIGHEST)
    await stage.cancel(full)


def _must_have(stage: Stage, jobid: int, priority: int) -> None:
    found = stage.seen.events(jobid)["priority"].get("priority")
    if found != priority:
        text = f"job {format_fluid(jobid, 'f58')}: expected priority {priority}, got {found}"
        raise Stuck(text, URGENT)


@REQUEST_ACTS.act(
    "exceptions are raised with a note",
    "the event has what was said: a type, a severity and a note",
    ("21.events.32", "21.events.33", "21.events.34"),
)
async def noted(stage: Stage) -> None:
    running = await many(stage, 3, run_s=LONG_S)
    await all_have(stage, running, "start")
    told: dict[str, Any]
    for severity, kind, note in ((7, "other", "x" * 999), (1, "exercise", "ä, ö\tü"), (3, "z", "")):
        told = {"severity": severity, "type": kind, "note": note}
        nbefore = stage.seen.count(running[1], "exception")
        await stage.call(topics.JOB_RAISE, told | {"id": running[1]})
        await stage.another(running[1], "exception", nbefore)
        found = {key: stage.seen.events(running[1])["exception"].get(key) for key in told}
        if found != told:
            raise Stuck(f"event exception: expected {told}, got {found}", "21.events.34")
    for jobid in running:
        stage.must_run(jobid, UNHARMED)
        await stage.cancel(jobid)


@REQUEST_ACTS.act(
    "others listen for exceptions",
    "they hear of each what was raised, be it fatal or not",
    ("21.exceptions.3", UNHARMED),
    is_for_ours=True,
)
async def heard(stage: Stage) -> None:
    running = await many(stage, 3, run_s=LONG_S)
    await all_have(stage, running, "start")
    raised = ((7, "exercise"), (0, "cancel"))
    async with stage.visit("listener") as listener:
        listener.subscribe(topics.JOB_EXCEPTION_EVENT)
        for severity, kind in raised:
            payload = {"id": running[1], "severity": severity, "type": kind}
            stage.touched.add(running[1])
            await stage.call(topics.JOB_RAISE, payload | {"note": ""})
            found = await _heard_by(stage, listener)
            if {key: found.get(key) for key in payload} != payload:
                text = f"{topics.JOB_EXCEPTION_EVENT}: expected {payload}, got {found}"
                raise Stuck(text, "21.exceptions.3")
    for jobid in running[::2]:
        stage.must_run(jobid, UNHARMED)
        await stage.cancel(jobid)


async def _heard_by(stage: Stage, listener: Handle) -> dict[str, Any]:
    """Return what the next event tells that comes to a listener. Raises Stuck."""
    with stage.deadline():
        while True:
            for message in await listener.receive():
                if isinstance(message, Event) and isinstance(message.payload, dict):
                    return message.payload
    raise Stuck(f"{topics.JOB_EXCEPTION_EVENT}: nobody hears of it", "21.exceptions.3")


@REQUEST_ACTS.act(
    "a new job manager is asked for the greatest job id", "ids grow, whoever gives them next", ()
)
async def greatest_id(stage: Stage) -> None:
    jobs = await many(stage, 3)
    for jobid in jobs:
        await stage.event(jobid, "clean")
    await stage.program.kill()
    await stage.serve()
    found = await stage.call(topics.JOB_GETINFO, {})
    if found.get("max_jobid", 0) < max(jobs):
        raise Stuck(f"max_jobid: expected {max(jobs)} or more, got {found.get('max_jobid')}")


# --- what it is refused


async def _serves_again(stage: Stage, before: int) -> None:
    """Wait until the program serves, though something was refused; if it has ended, start it."""
    what = f"{stage.ready_topic} of the program, or its end"
    if await stage.until_or_end(what, lambda: stage.nready > before):
        await stage.program.kill()  # or the processes that it has left
        await stage.serve()


@REQUEST_ACTS.act(
    "events of jobs cannot be stored",
    "nothing follows from them: the program ends, or stores them again",
    (NOT_STORED, UNHARMED),
    is_for_ours=True,
)
async def not_stored(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 3)
    for jobid in waiting:
        await stage.asked(topics.SCHED_ALLOC, jobid)
    stage.refuse_next(topics.KVS_COMMIT)
    is_told = True
    try:
        await stage.call(topics.JOB_URGENCY, {"id": waiting[1], "urgency": 20})
    except FluxError:
        is_told = False
    await _goes_on(stage)
    wanted = look_up(Lookup(job_key(waiting[1], EVENTLOG)))
    stored = value_of(await stage.call(topics.KVS_LOOKUP, wanted)) or ""
    if is_told and "urgency" not in [each.name for each in parse_eventlog(stored)]:
        raise Stuck(
            "the user is told that the urgency is another, and it is not stored", NOT_STORED
        )
    for jobid in waiting:
        stage.must_wait(jobid, UNHARMED)
    stage.must_run(full, UNHARMED)
    await stage.cancel(full)


async def _goes_on(stage: Stage) -> None:
    """Start the program again, if it has ended since something was refused."""
    with stage.idle(ENDS_S):
        await stage.program.wait()
    if not stage.program.is_running:
        await stage.program.kill()  # or the processes that it has left
        await stage.serve()


@REQUEST_ACTS.act(
    "eventlogs cannot be read when the program starts",
    "no job is lost or started twice: the program ends, or reads them again",
    ("21.criteria.8", UNHARMED),
    is_for_ours=True,
)
async def not_read_back(stage: Stage) -> None:
    running = await many(stage, 3, run_s=LONG_S)
    await all_have(stage, running, "start")
    for topic in (topics.KVS_LOOKUP, topics.BROKER_REGISTER):
        await stage.program.kill()
        before = stage.nready
        stage.refuse_next(topic)
        await stage.program.start()
        await _serves_again(stage, before)
        for jobid in running:
            await stage.asked(topics.START_METHOD, jobid, 2, "21.criteria.8")
            stage.must_run(jobid, UNHARMED)
    for jobid in running:
        await stage.cancel(jobid)


@REQUEST_ACTS.act(
    "the R of a running job cannot be read when its time limit changes",
    "the user is told, or it is read again; the job runs on",
    ("21.events.11", UNHARMED),
    needs=UPDATES,
    is_for_ours=True,
)
async def r_not_read(stage: Stage) -> None:
    running = await many(stage, 3, duration=600.0, run_s=LONG_S)
    await all_have(stage, running, "start")
    begin = (await resources_of(stage, running[1])).starttime
    stage.refuse_next(topics.KVS_LOOKUP)
    try:
        await stage.call(topics.JOB_UPDATE, {"id": running[1], "updates": {DURATION_KEY: 1200.0}})
    except FluxError:
        await _goes_on(stage)
    else:
        await stage.event(running[1], "resource-update", "21.events.11")
        found = stage.seen.events(running[1])["resource-update"].get("expiration", 0)
        if abs(found - begin - 1200) > 2:
            raise Stuck(f"expected an expiration 1200 s after {begin}, got {found}", "21.events.11")
    await seen(stage, running[0])
    for jobid in running:
        stage.must_run(jobid, UNHARMED)
        await stage.cancel(jobid)
