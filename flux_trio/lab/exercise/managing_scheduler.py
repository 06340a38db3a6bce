"""The acts in which another scheduler asks a job manager what ours never does (RFC 27)."""

from __future__ import annotations

from typing import Any, Final

import trio
from msgspec.structs import replace

from flux_trio.config import DURATION_KEY
from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.acts import UPDATES, Acts
from flux_trio.lab.exercise.other_scheduler import OtherScheduler, scheduling
from flux_trio.lab.exercise.sched_jobs import fill
from flux_trio.lab.exercise.stage import (
    LONG_S,
    REFUSED,
    UNASKED,
    UNHARMED,
    Stage,
    Stuck,
    all_have,
    many,
    resources_of,
)
from flux_trio.messages import Errno, FluxError, respond, respond_error, topics
from flux_trio.process.groups import unwrapping

OTHER_SCHEDULER_ACTS: Final = Acts()
LIMIT: Final = 3
WRONG: Final[tuple[dict[str, Any], ...]] = (
    {"mode": "limited", "limit": 0},
    {"mode": "limited", "limit": -1},
    {"mode": "limited"},
    {"mode": "limited", "limit": True},
    {"mode": "limited", "limit": "3"},
    {"mode": "exercise"},
    {},
)
"""What a scheduler may not say when it is ready (RFC 27, Ready)."""
DURATION_S: Final = 600.0


async def seen(stage: Stage, jobid: int) -> None:
    """Wait until the program must have seen what it was told before: it logs an exception."""
    payload = {"id": jobid, "severity": 7, "type": "exercise", "note": ""}
    nbefore = stage.seen.count(jobid, "exception")
    await stage.call(topics.JOB_RAISE, payload)
    await stage.another(jobid, "exception", nbefore)


def asked_for(stage: Stage, jobids: list[int]) -> list[int]:
    """Return those of the jobs that the scheduler was asked for."""
    return [each for each in jobids if stage.seen.times_asked(topics.SCHED_ALLOC, each)]


@OTHER_SCHEDULER_ACTS.act(
    "a scheduler takes three jobs at a time",
    "it has three requests at most; each last answer makes room for one, an annotation does not",
    ("27.ready.7", "27.ready.8", "27.deny.6", "27.criteria.1", "27.criteria.2", "27.criteria.5"),
)
async def limited(stage: Stage) -> None:
    async with scheduling(stage, LIMIT) as other:
        jobs = await many(stage, LIMIT + 3, run_s=LONG_S)
        requests = [await other.wanted(each, clause="27.criteria.5") for each in jobs[:LIMIT]]
        other.annotate(requests[0], {"sched": {"reason_pending": "an exercise"}})
        await seen(stage, jobs[-1])
        _must_be_asked(stage, jobs, LIMIT, "27.ready.8")
        stage.hopeless.add(jobs[1])
        other.deny(requests[1], "an exercise")
        requests.append(await other.wanted(jobs[LIMIT], clause="27.criteria.5"))
        await other.grant(requests[0])
        requests.append(await other.wanted(jobs[LIMIT + 1]))
        await stage.cancel(jobs[2])
        await other.wanted(jobs[2], topics.SCHED_CANCEL)
        await seen(stage, jobs[-1])
        _must_be_asked(stage, jobs, LIMIT + 2, "27.ready.7")
        other.withdraw(requests[2])
        requests.append(await other.wanted(jobs[LIMIT + 2]))
        for rank, request in enumerate(requests[LIMIT:], 1):
            await other.grant(request, rank)
        await end_all(stage, other, [jobs[0], *jobs[LIMIT:]])
        await all_have(stage, jobs, "clean")


def _must_be_asked(stage: Stage, jobs: list[int], count: int, clause: str) -> None:
    found = len(asked_for(stage, jobs))
    if found != count:
        raise Stuck(f"the scheduler was asked for {found} jobs; expected {count}", clause)


async def end_all(stage: Stage, other: OtherScheduler, jobs: list[int]) -> None:
    """Cancel jobs that run, and take back what they have."""
    for jobid in jobs:
        await stage.cancel(jobid)
        await other.freed(jobid)


@OTHER_SCHEDULER_ACTS.act(
    "a scheduler annotates jobs that wait",
    "annotations are merged, key by key, and the event alloc has what has become of them",
    ("27.success.4", "27.success.7", *(f"27.annotate.{n}" for n in (3, 4, 5, 6, 7, 8, 9, 17))),
)
async def annotated(stage: Stage) -> None:
    """Three jobs: the one in the middle is annotated in several ways, the others in one."""
    told: list[dict[str, Any]] = [
        {"sched": {"a": 1, "b": {"x": 1, "y": 2}, "gone": "now"}, "exercise": {"deep": {"er": 1}}},
        {"sched": {"a": {"new": [1, None, {"z": True}]}, "b": {"x": None, "w": 2.5}, "gone": None}},
        {"exercise": {"deep": {"er": None, "est": {"way": 2**53 + 1}}}, "flag": False},
    ]
    expected = {
        "sched": {"a": {"new": [1, None, {"z": True}]}, "b": {"y": 2, "w": 2.5}},
        "exercise": {"deep": {"est": {"way": 2**53 + 1}}},
        "flag": True,
    }
    async with scheduling(stage) as other:
        jobs = await many(stage, 3, run_s=LONG_S)
        requests = [await other.wanted(each) for each in jobs]
        for each in told:
            other.annotate(requests[1], each)
        for rank, request in enumerate(requests):
            other.annotate(request, {"exercise": {"rank": rank}} if rank != 1 else {"flag": True})
            await other.grant(request, rank, **({"sched": {"last": rank}} if rank != 1 else {}))
        found = [await _annotations_of(stage, each) for each in jobs]
        others = [{"exercise": {"rank": at}, "sched": {"last": at}} for at in (0, 2)]
        _must_be_equal(jobs[1], found[1], expected)
        _must_be_equal(jobs[0], found[0], others[0])
        _must_be_equal(jobs[2], found[2], others[1])
        await end_all(stage, other, jobs)


async def _annotations_of(stage: Stage, jobid: int) -> Any:
    await stage.event(jobid, "alloc", "27.success.6")
    return stage.seen.events(jobid)["alloc"].get("annotations")


def _must_be_equal(jobid: int, found: Any, expected: Any) -> None:
    if found != expected:
        name = format_fluid(jobid, "f58")
        text = f"annotations of job {name}: expected {expected}, got {found}"
        raise Stuck(text, "27.success.7")


@OTHER_SCHEDULER_ACTS.act(
    "a job that is annotated does not get its resources, and is asked for again",
    "what was told of it before is forgotten; what others were told is not",
    ("27.annotate.20", "27.success.7"),
)
async def annotated_in_vain(stage: Stage) -> None:
    """The request of one is canceled since it is held; then the scheduler fails all of them."""
    gone = {"sched": {"reason_pending": "an exercise", "t_estimate": 1.5}}
    async with scheduling(stage) as other:
        jobs = await many(stage, 3, run_s=LONG_S)
        requests = [await other.wanted(each) for each in jobs]
        for each in requests:
            other.annotate(each, gone)
        await stage.call(topics.JOB_URGENCY, {"id": jobs[1], "urgency": 0})
        await other.wanted(jobs[1], topics.SCHED_CANCEL)
        other.withdraw(requests[1])
        await stage.call(topics.JOB_URGENCY, {"id": jobs[1], "urgency": 16})
        await other.grant(await other.wanted(jobs[1]), 1)
        await other.grant(requests[0])
        _must_be_forgotten(await _annotations_of(stage, jobs[1]))
        _must_be_equal(jobs[0], await _annotations_of(stage, jobs[0]), gone)
        other.fail(requests[2])
        await seen(stage, jobs[0])
        await other.serve()
        await other.grant(await other.wanted(jobs[2]), 2)
        _must_be_forgotten(await _annotations_of(stage, jobs[2]))
        await end_all(stage, other, jobs)


def _must_be_forgotten(found: Any) -> None:
    if found and found.get("sched"):
        text = "a job has got resources at its second request, with annotations of the first one"
        raise Stuck(f"{text}: {found}", "27.annotate.20")


@OTHER_SCHEDULER_ACTS.act(
    "a scheduler says ready in a wrong way",
    "it is refused, and asked for nothing",
    (REFUSED, "27.ready.13"),
)
async def wrongly_ready(stage: Stage) -> None:
    full = await stage.submit(run_s=LONG_S)
    await stage.event(full, "start")
    async with scheduling(stage) as other:
        jobs = await many(stage, 3)
        requests = [await other.wanted(each) for each in jobs]
        other.fail(requests[1])
        await other.hello()
        for wrong in WRONG:
            await other.refused(wrong)
        await seen(stage, full)
        for each in jobs:
            if stage.seen.times_asked(topics.SCHED_ALLOC, each) > 1:
                raise Stuck("a scheduler is asked for a job before it is ready", "27.ready.13")
        await other.serve()
        for rank, each in enumerate(jobs, 1):
            await other.grant(await other.wanted(each), rank % 4)
            await other.freed(each)
        stage.must_run(full, UNHARMED)
        await end_all(stage, other, [full])


@OTHER_SCHEDULER_ACTS.act(
    "somebody says ready who has not said hello",
    "it is refused, and the scheduler is asked as before",
    (REFUSED, UNHARMED),
    is_for_ours=True,  # flux-core's job manager takes whoever says ready for the scheduler
)
async def ready_without_hello(stage: Stage) -> None:
    full = await fill(stage)
    waiting = await many(stage, 3)
    async with stage.visit("not-a-scheduler") as other:
        await stage.refused(topics.SCHED_READY, other, mode="unlimited")
    for jobid in waiting:
        stage.must_wait(jobid, UNHARMED)
    await stage.remove(topics.SCHED)
    async with stage.visit("not-a-scheduler") as other:
        await stage.refused(topics.SCHED_READY, other, mode="unlimited")
    await stage.load(topics.SCHED)
    stage.must_run(full, UNHARMED)
    await stage.cancel(full)


@OTHER_SCHEDULER_ACTS.act(
    "a scheduler answers once more, and what it was not asked",
    "no job changes by it",
    (UNASKED, UNHARMED),
    is_for_ours=True,  # flux-core's job manager ends by some of it
)
async def unasked(stage: Stage) -> None:
    """A held job is given resources, and a running one is given them again, and denied them."""
    async with scheduling(stage) as other:
        jobs = await many(stage, 3, run_s=LONG_S)
        requests = [await other.wanted(each) for each in jobs]
        held = await stage.submit(urgency=0)
        for rank, request in enumerate(requests):
            await other.grant(request, rank)
        await all_have(stage, jobs, "start")
        await other.grant(requests[1], 1)
        await _none_changes(stage, other, jobs, held)
        stage.hopeless.add(jobs[1])
        other.deny(requests[1], "an exercise")
        await _none_changes(stage, other, jobs, held)
        await other.grant(replace(requests[1], payload={"id": held}), 3)
        await _none_changes(stage, other, jobs, held)
        await stage.cancel(held)
        await end_all(stage, other, jobs)


async def _none_changes(stage: Stage, other: OtherScheduler, running: list[int], held: int) -> None:
    """Serve again, if the program takes such an answer for the end of the scheduler's service."""
    await seen(stage, running[0])
    await other.serve()
    for jobid in running:
        stage.must_run(jobid, UNASKED)
        if stage.seen.count(jobid, "alloc") > 1:
            raise Stuck("a job has got resources twice", UNASKED)
    if "alloc" in stage.seen.events(held):
        raise Stuck("a job has got resources that nobody asked for", UNASKED)


@OTHER_SCHEDULER_ACTS.act(
    "a job gets resources when it is canceled already",
    "they are freed, and the job does not run",
    ("27.cancel.7", UNHARMED),
)
async def granted_though_canceled(stage: Stage) -> None:
    async with scheduling(stage) as other:
        jobs = await many(stage, 3, run_s=LONG_S)
        requests = [await other.wanted(each) for each in jobs]
        await stage.cancel(jobs[1])
        await other.wanted(jobs[1], topics.SCHED_CANCEL)
        for rank, request in enumerate(requests):
            await other.grant(request, rank)
        await other.freed(jobs[1], "27.cancel.7")
        await stage.event(jobs[1], "clean")
        if "start" in stage.seen.events(jobs[1]):
            raise Stuck("a job was started that was canceled before", "27.cancel.7")
        await all_have(stage, jobs[::2], "start")
        await end_all(stage, other, jobs[::2])


@OTHER_SCHEDULER_ACTS.act(
    "a request for resources is answered with an error",
    "nothing is sent to the scheduler any more before it has said hello and ready again",
    (
        *("27.impl.12", "27.impl.14", "27.finalization.2", "27.finalization.5", "27.ready.12"),
        *("27.criteria.4", UNHARMED),
    ),
)
async def alloc_fails(stage: Stage) -> None:
    async with scheduling(stage) as other:
        jobs = await many(stage, 4, run_s=LONG_S)
        requests = [await other.wanted(each) for each in jobs]
        await other.grant(requests[0])
        await stage.event(jobs[0], "start")
        other.fail(requests[1])
        await seen(stage, jobs[0])
        await stage.call(topics.JOB_URGENCY, {"id": jobs[2], "urgency": 20})
        await stage.cancel(jobs[3])
        late = await stage.submit(run_s=LONG_S)
        await stage.event(jobs[3], "clean", "27.finalization.2")
        await stage.cancel(jobs[0])
        await stage.event(jobs[0], "release")
        await seen(stage, jobs[1])
        # where a free has no answer, it may be over while nobody is there to hear of it
        is_over = stage.edition.free_answer is None and "free" in stage.seen.events(jobs[0])
        if (found := await other.serve()) != 3:
            raise Stuck(f"three jobs wait, and sched-ready is answered with {found}", "27.ready.12")
        if [each.get("id") for each in other.held] != ([] if is_over else [jobs[0]]):
            raise Stuck("one job holds resources, and hello tells of another", "27.hello.4")
        if not is_over:
            await other.freed(jobs[0])
        for rank, jobid in enumerate((jobs[2], jobs[1], late)):
            await other.grant(await other.wanted(jobid), rank)
        await end_all(stage, other, [jobs[1], jobs[2], late])


@OTHER_SCHEDULER_ACTS.act(
    "a request to free resources is answered with an error",
    "nothing is sent any more, and the next hello tells that the job holds them",
    ("27.impl.13", "27.finalization.2", "27.hello.4", "27.free.1"),
    where=lambda edition: edition.free_answer is not None,
)
async def free_fails(stage: Stage) -> None:
    async with scheduling(stage) as other:
        jobs = await many(stage, 3, run_s=LONG_S)
        for rank, each in enumerate(jobs):
            await other.grant(await other.wanted(each), rank)
        await all_have(stage, jobs, "start")
        await stage.cancel(jobs[1])
        other.fail(await other.wanted(jobs[1], topics.SCHED_FREE))
        await seen(stage, jobs[0])
        late = await stage.submit()
        await seen(stage, jobs[0])
        await other.serve()
        if sorted(each.get("id", 0) for each in other.held) != sorted(jobs):
            raise Stuck(f"hello tells of {len(other.held)} jobs; expected 3", "27.hello.4")
        await other.freed(jobs[1])
        await other.grant(await other.wanted(late), 1)
        await other.freed(late)
        await end_all(stage, other, jobs[::2])


@OTHER_SCHEDULER_ACTS.act(
    "jobs that run get other time limits",
    "the scheduler is asked; it may agree, know nothing of it, or refuse, which the user is told",
    (
        *("27.criteria.12", "27.expiration.1", "27.expiration.2", "27.expiration.3"),
        *("27.expiration.4", "27.expiration.10", "27.expiration.11", "21.events.11", UNHARMED),
    ),
    needs=UPDATES,
)
async def expirations(stage: Stage) -> None:
    answers = ((0, 2), (Errno.ENOSYS, 0.5), (Errno.EINVAL, 3), (0, 0.25))
    async with scheduling(stage) as other:
        jobs = await many(stage, 3, run_s=LONG_S, duration=DURATION_S)
        for rank, each in enumerate(jobs):
            await other.grant(await other.wanted(each), rank)
        await all_have(stage, jobs, "start")
        for errnum, factor in answers:
            await _update(stage, other, jobs[1], errnum, DURATION_S * factor)
        for each in jobs[::2]:
            if "resource-update" in stage.seen.events(each):
                raise Stuck("a job has another expiration that was not asked for", UNHARMED)
        await end_all(stage, other, jobs)


async def _update(
    stage: Stage, other: OtherScheduler, jobid: int, errnum: int, duration: float
) -> None:
    """Ask for another time limit, which the scheduler answers so."""
    names = ("jobspec-update", "resource-update")
    before = {name: stage.seen.count(jobid, name) for name in names}
    begin = (await resources_of(stage, jobid)).starttime
    seen_s = stage.seen.time_of(jobid, "alloc") - begin  # until the alloc event was stored
    clause = "27.expiration.10" if errnum == Errno.EINVAL else "27.expiration.11"
    payload = {"id": jobid, "updates": {DURATION_KEY: duration}}
    is_told, unanswered = True, None

    async def answer() -> None:
        request = await other.wanted(jobid, topics.SCHED_EXPIRATION)
        why = "an exercise"
        other.answer(respond_error(request, errnum, why) if errnum else respond(request, None))

    with unwrapping(Stuck):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            try:
                await stage.call(topics.JOB_UPDATE, payload)
            except FluxError:
                is_told = False
            except Stuck as stuck:
                unanswered = stuck  # if the scheduler was not asked, that is the cause
    if unanswered is not None:
        raise unanswered
    if is_told == (errnum == Errno.EINVAL):
        raise Stuck(f"the scheduler answers {errnum}; the user is told otherwise", clause)
    await seen(stage, jobid)
    for name, count in before.items():
        if stage.seen.count(jobid, name) != count + is_told:
            found = "no" if is_told else "an"
            raise Stuck(
                f"the scheduler answers {errnum}, and there is {found} event {name}", clause
            )
    end = stage.seen.events(jobid).get("resource-update", {}).get("expiration", 0)
    if is_told and not -2 <= end - begin - duration <= seen_s + 2:
        text = f"expected an expiration {duration:g} s after alloc, got {end - begin:g} s"
        raise Stuck(text, "27.expiration.3")
