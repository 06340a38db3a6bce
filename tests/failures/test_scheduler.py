"""What happens when the scheduler ends, hangs, or is replaced (RFC 27; design, failure table)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.editions.rfc27 import AllocType
from flux_trio.jobtap import Job, Plugin, on
from flux_trio.messages import (
    Errno,
    FluxError,
    Level,
    Request,
    Response,
    respond,
    respond_error,
    topics,
)
from flux_trio.testing.fakes import FakeExec, FakeScheduler
from flux_trio.trace import Kind
from tests.support.failing import ENDS, EPOCH, HOUR, Scene, scene, settle
from tests.support.leaks import nothing_left

ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE
STATS = topics.stats_of(topics.SCHED)
WITHOUT = ("sched", "job-exec")
RUN = ["submit", "validate", "depend", "priority", "alloc", "start"]


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


# --- the end of a scheduler


async def test_scheduler_that_raises_is_told_by_its_name_and_its_error(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        await s.end("sched", "raises", sched)
        assert s.log() == ["sched.crit: module sched: ZeroDivisionError: as asked"]


async def test_scheduler_that_returns_is_told_like_one_that_raises(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        await s.end("sched", "returns", sched)
        assert s.log() == ["sched.crit: module sched: returned without being asked to"]


async def test_unload_and_reload_of_a_scheduler_log_no_error(autojump_clock: MockClock) -> None:
    async with scene() as s:
        running = await s.submit(run_s=HOUR, ncores=4)
        pending = await s.submit(run_s=10)
        await s.supervisor.reload("sched")
        await s.wait(running)
        await s.wait(pending)
        assert s.log(Level.WARNING) == []


@pytest.mark.parametrize("end", ENDS)
async def test_scheduler_that_ends_leaves_nothing_and_its_callers_are_answered(
    autojump_clock: MockClock, end: str
) -> None:
    "6.disconnect: names dropped, ENOSYS to who waits, the job manager told."
    async with scene(WITHOUT) as s, nothing_left(s.instance):
        sched = FakeScheduler()
        await s.load("sched", sched)
        jobid = await s.submit()
        s.handle.send(Request("sched.expiration", {"id": jobid, "expiration": 0}, 99))
        await settle()
        await s.end("sched", end, sched)
        (refused,) = await s.handle.receive()
        text = {
            "raises": "sched ended: ZeroDivisionError: as asked",
            "returns": "sched ended: returned without being asked to",
            "removed": "sched is gone",
        }[end]
        assert (refused.matchtag, refused.errnum, refused.error_text) == (99, Errno.ENOSYS, text)
        unknown = "No service matching sched.expiration is registered"
        with pytest.raises(FluxError, match=unknown if end == "removed" else text):
            await s.call("sched.expiration", {"id": jobid, "expiration": 0})
        assert (await s.stats())["sched"] == {"link": "detached", "waiting": 1, "outstanding": 0}


async def test_scheduler_that_ends_again_and_again_leaves_nothing(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        jobid = await s.submit()
        async with nothing_left(s.instance):
            for _ in range(10):
                for end in ENDS:
                    sched = FakeScheduler()
                    await s.load("sched", sched)
                    assert sched.asked(ALLOC) == [jobid]
                    await s.end("sched", end, sched)


async def test_queue_without_a_scheduler_says_that_it_is_offline(autojump_clock: MockClock) -> None:
    async with scene(WITHOUT) as s:
        offline = {"enable": True, "start": False, "stop_reason": "Scheduler is offline"}
        assert await s.status() == {**offline, "blocked": "scheduler"}
        sched = FakeScheduler()
        await s.load("sched", sched)
        assert await s.status() == {"enable": True, "start": True}
        await s.end("sched", "raises", sched)
        assert await s.status() == {**offline, "blocked": "scheduler"}
        await s.call(topics.JOB_QUEUE_START, {"start": False})
        assert await s.status() == offline


# --- from every state of a job, limited or not: hello, ready, and what is asked again


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


# --- crossing a reload


async def test_priority_that_changes_while_no_scheduler_is_there_is_in_the_next_request(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        jobid, other = await s.submit(), await s.submit()
        await s.urgency(other, 20)
        assert sched.asked(topics.SCHED_PRIORITIZE) == [[[other, 20]]]
        await s.end("sched", "removed", sched)
        await s.urgency(jobid, 25)
        after = FakeScheduler()
        await s.load("sched", after)
        assert after.asked(ALLOC) == [jobid, other]
        assert after.asked(topics.SCHED_PRIORITIZE) == []


async def test_prioritize_that_crosses_a_crash_is_not_repeated(autojump_clock: MockClock) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        jobid = await s.submit()
        sched.handle.post(ZeroDivisionError("as asked"))
        await s.call(topics.JOB_URGENCY, {"id": jobid, "urgency": 20})
        await settle()
        after = FakeScheduler()
        await s.load("sched", after)
        assert (after.asked(ALLOC), after.asked(topics.SCHED_PRIORITIZE)) == ([jobid], [])


async def test_cancel_that_crosses_a_crash_ends_the_job_and_asks_nobody(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        jobid = await s.submit()
        sched.handle.post(ZeroDivisionError("as asked"))
        await s.cancel(jobid)
        assert (await s.events(jobid))[-2:] == ["exception", "clean"]
        after = FakeScheduler()
        await s.load("sched", after)
        assert after.came == []


async def test_expiration_that_changed_before_it_came_is_told_to_the_next_scheduler(
    autojump_clock: MockClock,
) -> None:
    "27.expiration.1: R in the kvs has the first one, and hello has none."
    async with scene() as s:
        jobid = await s.submit(run_s=HOUR)
        await trio.sleep(1)
        updates = {"attributes.system.duration": 2 * HOUR}
        await s.call(topics.JOB_UPDATE, {"id": jobid, "updates": updates})
        await s.supervisor.reload("sched")
        await trio.sleep(1)
        told = [
            record.message.payload["expiration"]
            for record in s.records
            if record.kind == Kind.RECV
            and isinstance(record.message, Request)
            and record.message.topic == topics.SCHED_EXPIRATION
            and isinstance(record.message.payload, dict)
        ]
        assert told == [EPOCH + 2 * HOUR] * 2
        assert s.log() == []


async def test_annotations_of_a_scheduler_go_with_it(autojump_clock: MockClock) -> None:
    "readings: Annotations. Those of the next one start from nothing of the last one's."
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        jobid = await s.submit()
        sched.answer(jobid, AllocType.ANNOTATE, annotations={"sched": {"x": 1}, "user": {"y": 2}})
        sched.handle.post(ZeroDivisionError("as asked"))
        await settle()
        after = FakeScheduler()
        await s.load("sched", after)
        after.answer(jobid, AllocType.ANNOTATE, annotations={"sched": {"z": 3}})
        await after.grant(jobid)
        (alloc,) = [event for event in await s.eventlog(jobid) if event.name == "alloc"]
        assert alloc.context == {"annotations": {"sched": {"z": 3}, "user": {"y": 2}}}


# --- hangs


async def test_silence_of_the_scheduler_is_counted_and_nothing_times_out(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        await trio.sleep(100)
        assert "silent" not in await s.status(), "it was not asked anything"
        jobid = await s.submit()
        await trio.sleep(30)
        await s.submit()
        await trio.sleep(HOUR)
        status = await s.status()
        assert status == {
            "enable": True,
            "start": True,
            "silent": ["scheduler has not answered for 3630 s"],
        }
        sched.answer(jobid, AllocType.ANNOTATE, annotations={"sched": {}})
        await trio.sleep(100)
        assert "silent" not in await s.status()
        await s.cancel(jobid)
        await trio.sleep(20)
        assert (await s.status())["silent"] == ["scheduler has not answered for 20 s"]
        await s.end("sched", "removed", sched)
        assert "silent" not in await s.status()


async def test_scheduler_that_waits_for_resources_is_not_silent(autojump_clock: MockClock) -> None:
    async with scene() as s:
        await s.submit(run_s=10 * HOUR, ncores=4)
        for _ in range(3):  # the policy says nothing about jobs behind the first that waits
            await s.submit()
            await trio.sleep(HOUR)
            assert await s.status() == {"enable": True, "start": True}


@pytest.mark.parametrize("errnum", [0, Errno.ENOSYS, Errno.EPROTO])
async def test_any_answer_of_a_silent_scheduler_is_a_sign_of_life(
    autojump_clock: MockClock, errnum: int
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        await s.submit()
        await trio.sleep(2.5)
        assert (await s.status())["silent"] == ["scheduler has not answered for 2 s"]
        (asked,) = [m for m in sched.came if isinstance(m, Request) and m.topic == STATS]
        answer = respond_error(asked, errnum) if errnum else respond(asked, {})
        assert answer is not None
        sched.handle.send(answer)
        await trio.sleep(HOUR)
        assert "silent" not in await s.status()
        assert len([m for m in sched.came if getattr(m, "topic", "") == STATS]) == 1
        await s.submit()
        await trio.sleep(30)
        assert (await s.status())["silent"] == ["scheduler has not answered for 30 s"]


async def test_scheduler_that_is_lost_answers_no_sign_of_life_of_the_next(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        old, new = FakeScheduler(), FakeScheduler()
        await s.load("sched", old)
        await s.submit()
        await trio.sleep(10)
        await s.end("sched", "raises", old)
        await s.load("sched", new)
        await trio.sleep(20)
        assert (await s.status())["silent"] == ["scheduler has not answered for 20 s"]


# --- a scheduler that was replaced


@pytest.mark.breaks("27.success.1")
async def test_answer_of_a_replaced_scheduler_is_dropped_and_traced(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        old, new = FakeScheduler(), FakeScheduler()
        await s.load("sched", old)
        jobid = await s.submit()
        await s.end("sched", "removed", old)
        await s.load("sched", new)
        old.answer(jobid, AllocType.SUCCESS)
        await settle()
        assert s.drops(ALLOC) == ["sched does not hold that service"]
        assert await s.events(jobid) == RUN[:4]
        assert (await s.stats())["sched"]["outstanding"] == 1


async def test_second_scheduler_is_refused_while_the_first_serves(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        await s.load("sched", FakeScheduler())
        text = "service sched is already held by sched"
        with pytest.raises(FluxError, match=text):
            await s.call("broker.register", {"service": "sched"})


@pytest.mark.breaks("27.background.2")
async def test_scheduler_may_serve_from_outside(autojump_clock: MockClock) -> None:
    "The same conversation over a peer that registered by broker.register."
    async with scene(WITHOUT) as s, s.instance.connect("remote") as remote:
        await remote.call("broker.register", {"service": "sched"})
        jobid = await s.submit()
        async with remote.stream(topics.SCHED_HELLO) as told:
            assert [job async for job in told] == []
        await remote.call(topics.SCHED_READY, {"mode": "unlimited"})
        (alloc,) = await remote.receive()
        denied = {"id": jobid, "type": 2, "note": "no"}
        remote.send(Response(ALLOC, denied, routes=alloc.routes))
        await s.wait(jobid)
        await remote.call("broker.unregister", {"service": "sched"})
        await s.submit()
        assert (await s.status())["stop_reason"] == "Scheduler is offline"
        assert "sched.alloc: No service matching" in s.log()[-1]
