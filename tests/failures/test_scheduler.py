"""What happens when the scheduler ends, hangs, or is replaced (RFC 27; design, failure table)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from flux_trio.editions.rfc27 import AllocType
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
from flux_trio.testing.fakes import FakeScheduler
from flux_trio.trace import Kind
from tests.support.failing import ENDS, EPOCH, HOUR, WITHOUT, scene, settle
from tests.support.leaks import nothing_left

ALLOC = topics.SCHED_ALLOC
STATS = topics.stats_of(topics.SCHED)
RUN = ["submit", "validate", "depend", "priority", "alloc", "start"]


# --- the end of a scheduler


@pytest.mark.parametrize(
    ("end", "said"),
    [("raises", "ZeroDivisionError: as asked"), ("returns", "returned without being asked to")],
)
async def test_scheduler_that_ends_is_told_by_its_name_and_its_error(
    autojump_clock: MockClock, end: str, said: str
) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        await s.end("sched", end, sched)
        assert s.log() == [f"sched.crit: module sched: {said}"]


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
