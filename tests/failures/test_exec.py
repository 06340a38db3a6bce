"""What happens when the execution service ends, hangs or is replaced (RFC 32)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.messages import Flag, FluxError, Level, Request, topics
from flux_trio.testing.fakes import FakeExec, FakeScheduler
from tests.support.failing import ENDS, HOUR, WITHOUT, allocated, both, scene, settle
from tests.support.leaks import nothing_left

FREE = topics.SCHED_FREE


# --- the end of a service


@pytest.mark.parametrize("end", ENDS)
async def test_start_requests_stop_and_jobs_keep_their_resources(
    autojump_clock: MockClock, end: str
) -> None:
    "readings: Exec override. Outstanding starts end with the service."
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        running = await allocated(s, sched)
        execution.tell(running, "start")
        await settle()
        before = await s.events(running)
        await s.end("job-exec", end, execution)
        later = await allocated(s, sched)
        await trio.sleep(HOUR)
        assert await s.events(running) == before
        assert (await s.events(later))[-1] == "alloc"
        assert sched.asked(FREE) == []
        status = await s.status()
        assert (status["enable"], status["start"]) == (True, True)
        assert (await s.stats())["exec"] == {"service": ""}
        assert [line for line in s.log() if "job-exec" not in line] == []


# what was told of the job when the service ends; starts of the next; whether it is freed by then
STATES: list[tuple[str, tuple[str, ...], list[bool], bool]] = [
    ("start sent", (), [False], False),
    ("started", ("start",), [True], False),
    ("finished", ("start", "finish"), [], True),
    ("released", ("start", "finish", "release"), [], True),
    ("failed, not released", ("exception",), [False], False),
    ("failed while it ran", ("start", "exception"), [True], False),
]


@pytest.mark.parametrize("end", ["raises", "removed"])
@pytest.mark.parametrize(
    ("told", "reattach", "freed"), [each[1:] for each in STATES], ids=[each[0] for each in STATES]
)
async def test_next_service_is_asked_for_what_may_still_run(
    autojump_clock: MockClock, told: tuple[str, ...], reattach: list[bool], freed: bool, end: str
) -> None:
    """32.start.4-7: reattach exactly if there is start and no finish; nobody waits for ever."""
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        jobid = await allocated(s, sched)
        execution.tell(jobid, *told)
        await settle()
        await s.end("job-exec", end, execution)
        assert sched.asked(FREE) == [jobid] * freed
        after = FakeExec()
        await s.load("job-exec", after)
        assert after.starts() == [(jobid, again) for again in reattach]
        if not freed:
            rest = [kind for kind in ("start", "finish") if kind not in told]
            after.tell(jobid, *([] if "exception" in told else rest), "release")
            await settle()
        events = await s.events(jobid)
        assert events[-1] == "clean"
        assert sched.asked(FREE) == [jobid]
        once = {"start", "finish", "release", "free"} & {*events}
        assert [events.count(name) for name in once] == [1] * len(once)


def released(jobid: int, ranks: str, final: bool) -> dict[str, Any]:
    return {"id": jobid, "type": "release", "data": {"ranks": ranks, "final": final}}


@pytest.mark.parametrize("reloaded", [False, True])
async def test_each_partial_release_is_logged_and_resources_are_freed_once_at_the_final_one(
    autojump_clock: MockClock, reloaded: bool
) -> None:
    "readings: Partial release. Also when the job manager is another by then."
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        jobid = await s.submit(ncores=4)
        await sched.grant(jobid, {0: 2, 1: 2})
        execution.tell(jobid, "start", "exception")
        execution.say(released(jobid, "0", final=False))
        await settle()
        assert (await s.events(jobid))[-1] == "release"
        assert sched.asked(FREE) == []
        if reloaded:
            await s.supervisor.remove("job-exec")
            await s.supervisor.reload("job-manager")
            await s.load("job-exec", execution := FakeExec())
            assert execution.starts() == [(jobid, True)]
            assert sched.asked(FREE) == []
            execution.say(released(jobid, "0", final=False))
        execution.say(released(jobid, "1", final=True))
        await settle()
        logged = [each.context for each in await s.eventlog(jobid) if each.name == "release"]
        assert logged[-1] == {"ranks": "1", "final": True}
        assert logged[:-1] == [{"ranks": "0", "final": False}] * (len(logged) - 1)
        assert (await s.events(jobid)).count("free") == (not reloaded)


async def test_reload_of_the_service_takes_jobs_up_again_and_logs_no_error(
    autojump_clock: MockClock,
) -> None:
    "32.criteria.6: with our own service, whose simulated jobs go on where they were."
    async with scene() as s:
        running = await s.submit(run_s=HOUR)
        await trio.sleep(60)
        began = s.instance.now()
        await s.supervisor.reload("job-exec")
        later = await s.submit(run_s=10)
        await s.wait(later)
        await s.wait(running)
        assert s.instance.now() - began < HOUR
        events = await s.events(running)
        assert [events.count(name) for name in ("start", "finish", "release")] == [1, 1, 1]
        assert s.log(Level.WARNING) == []


async def test_job_canceled_while_no_service_is_there_is_asked_about(
    autojump_clock: MockClock,
) -> None:
    "readings: Final release without finish. No resource is freed under live processes."
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        jobid = await allocated(s, sched)
        execution.tell(jobid, "start")
        await settle()
        await s.end("job-exec", "raises", execution)
        await s.cancel(jobid)
        assert sched.asked(FREE) == []
        after = FakeExec()
        await s.load("job-exec", after)
        assert after.starts() == [(jobid, True)]
        after.tell(jobid, "finish", "release")
        await settle()
        assert sched.asked(FREE) == [jobid]


async def test_service_that_ends_again_and_again_leaves_nothing(autojump_clock: MockClock) -> None:
    async with scene(WITHOUT) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        jobid = await allocated(s, sched)
        async with nothing_left(s.instance):
            for _ in range(10):
                for end in ENDS:
                    execution = FakeExec()
                    await s.load("job-exec", execution)
                    assert execution.starts() == [(jobid, False)]
                    await s.end("job-exec", end, execution)


# --- hangs, and replaced


async def test_silence_of_the_service_is_counted_and_nothing_times_out(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        jobid = await allocated(s, sched)
        await trio.sleep(HOUR)
        assert await s.status() == {
            "enable": True,
            "start": True,
            "silent": ["execution service has not answered for 3600 s"],
        }
        execution.tell(jobid, "start")
        await trio.sleep(HOUR)
        assert "silent" not in await s.status()
        assert (await s.events(jobid))[-1] == "start"


@pytest.mark.parametrize("who", ["job-exec", "kvs"])
async def test_silence_that_a_service_has_given_a_reason_for_is_none(
    autojump_clock: MockClock, who: str
) -> None:
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        await allocated(s, sched)

        async def tell(reason: str) -> None:
            if who == "job-exec":
                await execution.handle.call(topics.JOB_HINDRANCE, {"reason": reason})
            else:
                hinder = Request(topics.JOB_HINDRANCE, {"reason": reason}, flags=Flag.NORESPONSE)
                s.router.route(s.router.peers["kvs"], hinder)
            await settle()

        await trio.sleep(10)
        await tell("no room")
        await trio.sleep(HOUR)
        assert (await s.status())["silent"] == [f"{who}: no room"]
        await tell("")
        assert "silent" not in await s.status()
        await trio.sleep(30)
        assert (await s.status())["silent"] == ["execution service has not answered for 30 s"]


async def test_answer_of_a_replaced_service_is_dropped_and_traced(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        sched, old = await both(s)
        jobid = await allocated(s, sched)
        await s.end("job-exec", "removed", old)
        new = FakeExec()
        await s.load("job-exec", new)
        old.tell(jobid, "start")
        await settle()
        assert s.drops("job-exec.start") == ["job-exec does not hold that service"]
        assert (await s.events(jobid))[-1] == "alloc"
        assert (await s.stats())["exec"] == {"service": "job-exec"}


@pytest.mark.breaks("32.hello.9")
async def test_second_service_is_refused_while_the_first_has_starts(
    autojump_clock: MockClock,
) -> None:
    "32.hello.8: with text, and the first goes on."
    async with scene(WITHOUT) as s, s.instance.connect("other") as other:
        sched, first = await both(s)
        jobid = await allocated(s, sched)
        await other.call("broker.register", {"service": "other-exec"})
        with pytest.raises(FluxError, match="job-exec has 1 start requests outstanding"):
            await other.call(topics.EXEC_HELLO, {"service": "other-exec"})
        first.tell(jobid, "start", "finish", "release")
        await settle()
        await other.call(topics.EXEC_HELLO, {"service": "other-exec"})
        later = await allocated(s, sched)
        (start,) = await other.receive()
        assert (start.topic, start.payload["id"]) == ("other-exec.start", later)
