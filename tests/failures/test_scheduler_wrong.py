"""What happens when the scheduler answers wrongly: scheduling is suspended, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from trio.testing import MockClock

from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import format_fluid
from flux_trio.formats.spelling import spelled
from flux_trio.messages import Errno, topics
from flux_trio.testing.fakes import FakeExec, FakeScheduler
from tests.support.breaking import named
from tests.support.failing import WITHOUT, Scene, allocated, both, scene, settle
from tests.support.leaks import nothing_left

ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE
UNKNOWN = 99
AFTER = "27.success.8"  # an answer after SUCCESS
UNASKED = "27.alloc.11"  # a CANCEL of a request that is open

# the clauses broken; what it says once `pending` is pending and `running` runs; what the log says
WRONG: dict[str, tuple[str, Callable[[FakeScheduler, int, int], None], str]] = {
    "SUCCESS for an id nobody knows": (
        "27.background.1",
        lambda s, _p, _r: s.answer(UNKNOWN, AllocType.SUCCESS),
        "job 99: sched.alloc: SUCCESS in state IDLE: expected state PENDING or CANCELING",
    ),
    "ANNOTATE for an id nobody knows": (
        "27.background.1",
        lambda s, _p, _r: s.answer(UNKNOWN, AllocType.ANNOTATE, annotations={}),
        "job 99: sched.alloc: ANNOTATE in state IDLE",
    ),
    "CANCEL for an id nobody knows": (
        "27.background.1",
        lambda s, _p, _r: s.answer(UNKNOWN, AllocType.CANCEL),
        "job 99: sched.alloc: CANCEL response in state IDLE",
    ),
    "second SUCCESS": (
        AFTER,
        lambda s, _p, r: s.answer(r, AllocType.SUCCESS),
        "SUCCESS in state ALLOCATED",
    ),
    "DENY after SUCCESS": (
        AFTER,
        lambda s, _p, r: s.answer(r, AllocType.DENY),
        "DENY in state ALLOCATED",
    ),
    "CANCEL that nobody asked for": (
        UNASKED,
        lambda s, p, _r: s.answer(p, AllocType.CANCEL),
        "CANCEL response in state PENDING",
    ),
    "type that there is not": (
        "27.alloc.10",
        lambda s, p, _r: s.say(ALLOC, {"id": p, "type": 4}),
        "Expected `int` <= 3 - at `$.type`",
    ),
    "type of another type": (
        "27.alloc.10",
        lambda s, p, _r: s.say(ALLOC, {"id": p, "type": "SUCCESS"}),
        "Expected `int`, got `str` - at `$.type`",
    ),
    "no id": (
        "27.alloc.9 27.impl.5",
        lambda s, _p, _r: s.say(ALLOC, {"type": 0}),
        "Object missing required field `id`",
    ),
    "id of another type": (
        "27.alloc.9",
        lambda s, _p, _r: s.say(ALLOC, {"id": "1", "type": 0}),
        "Expected `int`, got `str` - at `$.id`",
    ),
    "no payload": ("27.alloc.9", lambda s, _p, _r: s.say(ALLOC, None), "payload"),
    "annotations that are no object": (
        "27.annotate.2",
        lambda s, p, _r: s.answer(p, AllocType.ANNOTATE, annotations=[1]),
        "Expected `object | null`, got `array` - at `$.annotations`",
    ),
    "ANNOTATE without annotations": (
        "27.annotate.2",
        lambda s, p, _r: s.answer(p, AllocType.ANNOTATE),
        "expected annotations in ANNOTATE",
    ),
    "errnum to alloc": (
        "27.impl.10",
        lambda s, _p, _r: s.say(ALLOC, "no memory", 12),
        "sched.alloc: no memory",
    ),
    "errnum to free": (
        "27.impl.11",
        lambda s, _p, _r: s.say(FREE, "no", Errno.EINVAL),
        "sched.free: no",
    ),
    "free that nobody asked for": (
        "27.background.1",
        lambda s, _p, r: s.say(FREE, {"id": r}),
        "sched.free response in state ALLOCATED",
    ),
    "free of an id nobody knows": (
        "27.background.1",
        lambda s, _p, _r: s.say(FREE, {"id": UNKNOWN}),
        "job 99: sched.alloc: sched.free response in state IDLE",
    ),
    "free without an id": (
        "27.free.7 27.impl.7",
        lambda s, _p, _r: s.say(FREE, {}),
        "missing required field `id`",
    ),
}


async def pending_and_running(s: Scene) -> tuple[FakeScheduler, FakeExec, int, int]:
    sched, execution = await both(s)
    running = await allocated(s, sched)
    execution.tell(running, "start")
    pending = await s.submit()
    return sched, execution, pending, running


@pytest.mark.parametrize("what", named(WRONG))
async def test_wrong_answer_suspends_scheduling_and_nothing_else(
    autojump_clock: MockClock, what: str
) -> None:
    """27.impl.10, 27.impl.11: logged; jobs stay as they were; hello and ready go on from there."""
    _, say, text = WRONG[what]
    async with scene(WITHOUT) as s:
        sched, execution, pending, running = await pending_and_running(s)
        before = [await s.events(jobid) for jobid in (pending, running)]
        say(sched, pending, running)
        await settle()
        (logged,) = s.log()
        assert logged.startswith("job-manager.err: scheduling suspended: "), logged
        assert spelled(text) in logged
        assert [await s.events(jobid) for jobid in (pending, running)] == before
        reason = str((await s.status())["stop_reason"])
        assert reason.startswith("Scheduler has broken the protocol: ")
        later = await s.submit()
        assert later not in sched.asked(ALLOC)

        await s.end("sched", "removed", sched)
        after = FakeScheduler()
        await s.load("sched", after)
        assert after.granted == [running]
        assert after.asked(ALLOC) == [pending, later]
        execution.tell(running, "finish", "release")
        await settle()
        assert after.asked(FREE) == [running]
        assert (await s.events(running))[-1] == "clean"


# the clauses broken; the cores of each rank in R; what the log says
BAD_R: dict[str, tuple[str, dict[int, int] | None, str]] = {
    "what another job holds": (
        "invariant.no-double-allocation 25.resources.7 20.nslots.1",
        {0: 1, 1: 1},
        "expected resources that no other job holds, got rank0/core0, which job {running} has",
    ),
    "a rank that there is not": (
        "20.overview.3",
        {2: 1},
        "expected what the instance has, ranks 0-1, got rank2/core0",
    ),
    "a core that there is not": (
        "20.overview.3 25.resources.7 20.nslots.1",
        {1: 3},
        "expected what the instance has, rank1/core[0-1], got rank1/core2",
    ),
    "nothing": ("27.success.1", None, "job.0000.{key}.R: no such key"),
}


@pytest.mark.parametrize("what", named(BAD_R))
async def test_grant_of_what_it_cannot_give_suspends_scheduling_and_nothing_else(
    autojump_clock: MockClock, what: str
) -> None:
    """27.success.1: the job stays pending, the other one does not notice; both end well."""
    _, cores, text = BAD_R[what]
    async with scene(WITHOUT) as s:
        sched, execution, pending, running = await pending_and_running(s)
        before = [await s.events(jobid) for jobid in (pending, running)]
        if cores is not None:
            await sched.write(pending, cores)
        sched.answer(pending, AllocType.SUCCESS)
        await settle()
        (logged,) = s.log()
        key = format_fluid(pending, "kvs").removeprefix("job.0000.")
        told = f"SUCCESS for job {pending}: R: {text.format(running=running, key=key)}"
        assert logged == f"job-manager.err: scheduling suspended: sched.alloc: {spelled(told)}"
        assert [await s.events(jobid) for jobid in (pending, running)] == before

        await s.end("sched", "removed", sched)
        after = FakeScheduler()
        await s.load("sched", after)
        assert (after.granted, after.asked(ALLOC)) == ([running], [pending])
        execution.tell(running, "finish", "release")
        await settle()
        await after.grant(pending)
        execution.tell(pending, "start", "finish", "release")
        await settle()
        assert [(await s.events(jobid))[-1] for jobid in (running, pending)] == ["clean", "clean"]


async def test_what_a_job_held_may_be_granted_again(autojump_clock: MockClock) -> None:
    """27.free.5: at once, by a scheduler that has not answered the free yet."""
    async with scene(WITHOUT) as s:
        sched, execution, pending, running = await pending_and_running(s)
        sched.frees = False
        execution.tell(running, "finish", "release")
        await settle()
        await sched.grant(pending, {0: 1})
        assert s.log() == []
        assert "alloc" in await s.events(pending)
        sched.say(FREE, {"id": running})
        await settle()
        assert (await s.events(running))[-1] == "clean"


@pytest.mark.breaks("27.success.1", "27.alloc.9")
async def test_suspended_scheduler_may_go_on_by_saying_hello_again(
    autojump_clock: MockClock,
) -> None:
    "readings: Resume. Needs both hello and ready."
    async with scene(WITHOUT) as s:
        sched, _, pending, running = await pending_and_running(s)
        sched.say(ALLOC, None)
        sched.answer(pending, AllocType.SUCCESS)
        await settle()
        assert len(s.log()) == 1, "what follows from a suspended scheduler is not logged again"
        async with sched.handle.stream(topics.SCHED_HELLO) as told:
            assert [job["id"] async for job in told] == [running]
        assert sched.asked(ALLOC) == [running, pending]
        await sched.handle.call(topics.SCHED_READY, {"mode": "unlimited"})
        await settle()
        assert sched.asked(ALLOC) == [running, pending, pending]


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        pytest.param(
            {"mode": "single"},
            "Invalid enum value 'single' - at `$.mode`",
            marks=pytest.mark.breaks("27.ready.5"),
        ),
        pytest.param(
            {"mode": "limited"},
            "expected limit with mode limited, got none",
            marks=pytest.mark.breaks("27.ready.9"),
        ),
        pytest.param(
            {"mode": "limited", "limit": 0},
            "Expected `int` >= 1 - at `$.limit`",
            marks=pytest.mark.breaks("27.ready.10"),
        ),
        pytest.param(None, "payload", marks=pytest.mark.breaks("27.ready.3")),
    ],
)
async def test_ready_that_says_nothing_of_use_is_refused_with_text(
    autojump_clock: MockClock, mode: Any, text: str
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        sched.mode = mode
        await s.load("sched", sched)
        assert text in s.log()[-1]
        assert (await s.status())["blocked"] == "scheduler"


@pytest.mark.breaks(
    *{clause for name in named(WRONG) for clause in name.marks[0].args} - {AFTER, UNASKED}
)
async def test_wrong_answers_leave_nothing(autojump_clock: MockClock) -> None:
    async with scene(WITHOUT) as s:
        await s.submit()
        async with nothing_left(s.instance):
            for _, say, _ in WRONG.values():
                sched = FakeScheduler()
                await s.load("sched", sched)
                say(sched, UNKNOWN, UNKNOWN)
                await settle()
                await s.end("sched", "removed", sched)
