"""From every state of a job, limited or not: what the next scheduler is told and asked again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from trio.testing import MockClock

from flux_trio.editions.rfc27 import AllocType
from flux_trio.jobtap import Job, Plugin, on
from flux_trio.messages import topics
from flux_trio.testing.fakes import FakeExec, FakeScheduler
from tests.support.failing import WITHOUT, Scene, scene, settle

ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE


class Epilog(Plugin):
    """Each job has an epilog, which ends when the test says so."""

    name = "epilog"

    @on("job.state.cleanup")
    def cleanup(self, job: Job) -> None:
        job.epilog_start("e")

    def finish(self, jobid: int) -> None:
        job = self.jobs.get(jobid)
        assert job is not None
        job.epilog_finish("e")


class Play:
    """A scene with both fakes, and one job brought to some state."""

    def __init__(self, scene: Scene, sched: FakeScheduler, execution: FakeExec, e: Epilog) -> None:
        self.scene = scene
        self.sched = sched
        self.exec = execution
        self.epilog = e
        self.jobid = 0
        self.ahead = (
            0  # a job that ranks above it, and keeps it from being asked for in limited mode
        )

    async def running(self) -> None:
        self.jobid = await self.scene.submit()
        await self.sched.grant(self.jobid)
        self.exec.tell(self.jobid, "start")
        await settle()

    async def make_way(self) -> None:
        """The one ahead, if there is one, is canceled and does not count any more."""
        if self.ahead:
            await self.scene.cancel(self.ahead)
            self.sched.answer(self.ahead, AllocType.CANCEL)
            await settle()

    async def ended(self) -> None:
        await self.running()
        self.exec.tell(self.jobid, "finish", "release")
        await settle()


async def queued_before_ready(p: Play) -> None:
    async with p.sched.handle.stream(topics.SCHED_HELLO) as told:
        assert [job async for job in told] == []
    p.jobid = await p.scene.submit()
    assert p.sched.asked(ALLOC) == []


async def queued_behind_another(p: Play) -> None:
    p.ahead = await p.scene.submit(urgency=20)
    p.jobid = await p.scene.submit()
    limited = p.sched.mode["mode"] == "limited"
    assert p.sched.asked(ALLOC) == [p.ahead] + [p.jobid] * (not limited)


async def sent(p: Play) -> None:
    p.jobid = await p.scene.submit()


async def being_taken_back(p: Play) -> None:
    p.jobid = await p.scene.submit()
    await p.scene.urgency(p.jobid, 0)
    assert p.sched.asked(topics.SCHED_CANCEL) == [p.jobid]


async def canceled(p: Play) -> None:
    p.jobid = await p.scene.submit()
    await p.scene.cancel(p.jobid)
    assert p.sched.asked(topics.SCHED_CANCEL) == [p.jobid]


async def granted_but_not_told(p: Play) -> None:
    p.jobid = await p.scene.submit()
    await p.sched.write(p.jobid)


async def granted_with_its_last_word(p: Play) -> None:
    p.jobid = await p.scene.submit()
    await p.sched.write(p.jobid)
    p.sched.answer(p.jobid, AllocType.SUCCESS)


async def running(p: Play) -> None:
    await p.running()


async def epilog_open(p: Play) -> None:
    await p.ended()
    assert (await p.scene.events(p.jobid))[-2:] == ["epilog-start", "release"]


async def free_sent(p: Play) -> None:
    await p.ended()
    p.epilog.finish(p.jobid)
    await settle()
    assert p.sched.asked(FREE) == [p.jobid]


async def free_not_taken_up(p: Play) -> None:
    await p.ended()
    p.epilog.finish(p.jobid)


async def free_answered_with_its_last_word(p: Play) -> None:
    await free_sent(p)
    p.sched.say(FREE, {"id": p.jobid})


# state, told by hello, asked for again, freed again
STATES: list[tuple[Callable[[Play], Awaitable[None]], bool, bool, bool]] = [
    (queued_before_ready, False, True, False),
    (queued_behind_another, False, True, False),
    (sent, False, True, False),
    (being_taken_back, False, False, False),
    (canceled, False, False, False),
    (granted_but_not_told, False, True, False),
    (granted_with_its_last_word, False, True, False),  # R was not judged yet
    (running, True, False, False),
    (epilog_open, True, False, False),
    (free_sent, True, False, True),
    (free_not_taken_up, True, False, True),
    (free_answered_with_its_last_word, False, False, False),
]


@pytest.mark.parametrize("end", ["raises", "removed"])
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize(
    ("arrange", "told", "asked", "freed"), STATES, ids=[each[0].__name__ for each in STATES]
)
async def test_next_scheduler_takes_over_from_every_state(
    autojump_clock: MockClock,
    arrange: Callable[[Play], Awaitable[None]],
    told: bool,
    asked: bool,
    freed: bool,
    limit: int | None,
    end: str,
) -> None:
    """readings: Resume; readings: No scheduler, job ends.

    The job is told once if it holds resources; otherwise its request is sent again.
    A job that was queued and not sent is sent by the next one's mode (27.ready.6, 27.ready.8).
    """
    epilog = Epilog()
    async with scene(WITHOUT, plugins=[epilog]) as s:
        sched, execution = FakeScheduler(limit, frees=False), FakeExec()
        await s.load("job-exec", execution)
        await s.load("sched", sched)
        play = Play(s, sched, execution, epilog)
        await arrange(play)
        await s.end("sched", end, sched)

        play.sched = after = FakeScheduler(limit)
        await s.load("sched", after)
        jobid = play.jobid
        assert after.granted == [jobid] * told
        await play.make_way()
        assert after.asked(ALLOC) == [play.ahead] * bool(play.ahead) + [jobid] * asked
        assert after.asked(FREE) == [jobid] * freed
        assert execution.starts() in ([], [(jobid, False)])
        await finish(play, arrange)
        events = await s.events(jobid)
        assert events[-1] == "clean"
        assert [
            name for name in {*events} - {"priority", "urgency"} if events.count(name) > 1
        ] == []
        assert after.asked(FREE) in ([], [jobid])


async def finish(p: Play, arranged: Any) -> None:
    """Bring the job to its end, whatever is left of it to do."""
    if arranged is being_taken_back:
        await p.scene.urgency(p.jobid, 16)
        assert p.sched.asked(ALLOC) == [p.jobid]
    events = await p.scene.events(p.jobid)
    if "alloc" not in events and arranged is not canceled:
        await p.sched.grant(p.jobid)
    if "finish" not in events and arranged is not canceled:
        told = ["start"] * ("start" not in events) + ["finish", "release"]
        p.exec.tell(p.jobid, *told)
        await settle()
    if "epilog-finish" not in events:
        p.epilog.finish(p.jobid)
    await settle()


@pytest.mark.parametrize("end", ["raises", "removed"])
async def test_requests_that_waited_go_to_the_next_scheduler_in_order(
    autojump_clock: MockClock, end: str
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler(1)
        await s.load("sched", sched)
        first = await s.submit()
        waiting = [await s.submit(urgency=urgency) for urgency in (10, 16, 12)]
        low, high, middle = waiting
        assert sched.asked(ALLOC) == [first]
        await s.end("sched", end, sched)
        better = await s.submit(urgency=20)
        after = FakeScheduler()
        await s.load("sched", after)
        assert after.asked(ALLOC) == [better, first, high, middle, low]


async def test_next_scheduler_may_have_another_mode(autojump_clock: MockClock) -> None:
    async with scene(WITHOUT) as s:
        jobs = [await s.submit() for _ in range(4)]
        for limit, asked in ((None, 4), (2, 2), (1, 1), (None, 4)):
            sched = FakeScheduler(limit)
            await s.load("sched", sched)
            assert sched.asked(ALLOC) == jobs[:asked]
            await s.end("sched", "removed", sched)
