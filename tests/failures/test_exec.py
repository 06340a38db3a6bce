"""What happens when the execution service ends, hangs or answers wrongly (RFC 32)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.broker import Handle
from flux_trio.cores.exec.calls import PLACE_S
from flux_trio.messages import Flag, FluxError, Level, Request, Response, topics
from flux_trio.testing.fakes import FakeExec, FakeScheduler
from tests.support.breaking import named
from tests.support.failing import ENDS, HOUR, Scene, scene, settle
from tests.support.leaks import nothing_left

FREE = topics.SCHED_FREE
WITHOUT = ("sched", "job-exec")


async def both(s: Scene) -> tuple[FakeScheduler, FakeExec]:
    sched, execution = FakeScheduler(), FakeExec()
    await s.load("sched", sched)
    await s.load("job-exec", execution)
    return sched, execution


async def allocated(s: Scene, sched: FakeScheduler) -> int:
    jobid = await s.submit()
    await sched.grant(jobid)
    return jobid


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


# --- an override of the built-in service

OVERRIDE = "other-exec"


class Override:
    """An execution service beside job-exec, which is loaded."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    async def hello(self) -> None:
        """Take the place."""
        await self.handle.call(topics.BROKER_REGISTER, {"service": OVERRIDE})
        await self.handle.call(topics.EXEC_HELLO, {"service": OVERRIDE})

    async def starts(self) -> list[tuple[int, bool]]:
        """The starts that it has got since the last call, each with `reattach`."""
        messages: list[Any] = await self.handle.receive_for(0.0)
        asked = [m for m in messages if m.topic == f"{OVERRIDE}.{topics.START_METHOD}"]
        return [(m.payload["id"], m.payload["reattach"]) for m in asked]

    def tell(self, jobid: int, kind: str, **data: Any) -> None:
        """Answer a start."""
        payload = {"id": jobid, "type": kind, "data": data}
        topic = f"{OVERRIDE}.{topics.START_METHOD}"
        self.handle.send(Response(topic, payload, routes=(topics.JOB_MANAGER,)))

    async def end(self, jobid: int) -> None:
        """The job's end, whole."""
        self.tell(jobid, "finish", status=0)
        self.tell(jobid, "release", ranks="0", final=True)
        await settle()


@asynccontextmanager
async def overridden() -> AsyncIterator[tuple[Scene, FakeScheduler, Override, AsyncExitStack]]:
    """An instance with an override; the stack has its connection."""
    async with scene(("sched",)) as s, AsyncExitStack() as connection:
        sched = FakeScheduler()
        await s.load("sched", sched)
        override = Override(await connection.enter_async_context(s.instance.connect("other")))
        await override.hello()
        yield s, sched, override, connection


async def serving(s: Scene) -> str:
    return str((await s.stats())["exec"]["service"])


async def test_override_is_never_replaced_by_the_built_in_service(
    autojump_clock: MockClock,
) -> None:
    """readings: Exec override at start."""
    async with overridden() as (s, sched, override, _):
        await trio.sleep(HOUR)
        jobid = await allocated(s, sched)
        assert await override.starts() == [(jobid, False)]
        override.tell(jobid, "start")
        await override.end(jobid)
        assert (await s.events(jobid))[-1] == "clean"
        assert await serving(s) == OVERRIDE


async def test_built_in_service_takes_over_when_the_override_leaves(
    autojump_clock: MockClock,
) -> None:
    async with overridden() as (s, sched, override, connection):
        ended = await allocated(s, sched)
        assert await override.starts() == [(ended, False)]
        override.tell(ended, "start")
        await override.end(ended)
        waits = await allocated(s, sched)  # its start was sent, and is not answered
        await connection.aclose()
        await s.wait(waits)
        assert await serving(s) == topics.JOB_EXEC


async def test_jobs_that_an_override_has_started_wait_for_a_service_of_their_own(
    autojump_clock: MockClock,
) -> None:
    async with overridden() as (s, sched, override, connection):
        runs, ended = await allocated(s, sched), await allocated(s, sched)
        assert await override.starts() == [(runs, False), (ended, False)]
        for jobid in (runs, ended):
            override.tell(jobid, "start")
        override.tell(ended, "finish", status=0)
        await settle()
        await connection.aclose()
        later = await allocated(s, sched)
        await trio.sleep(HOUR)
        assert await serving(s) == ""
        assert (await s.events(runs))[-1] == "start"
        assert (await s.events(ended))[-1] == "clean", "no process of it is left"
        assert (await s.events(later))[-1] == "alloc"
        async with s.instance.connect("again") as handle:
            again = Override(handle)
            await again.hello()
            assert await again.starts() == [(runs, True), (later, False)]
            await again.end(runs)
            again.tell(later, "start")
            await again.end(later)
        await trio.sleep(PLACE_S)
        await settle()
        assert await serving(s) == topics.JOB_EXEC


async def test_reload_of_the_built_in_service_is_asked_for(autojump_clock: MockClock) -> None:
    async with overridden() as (s, sched, _, connection):
        await s.supervisor.reload("job-exec")
        await settle()
        assert await serving(s) == topics.JOB_EXEC
        await s.wait(await allocated(s, sched))
        await connection.aclose()
        assert await serving(s) == topics.JOB_EXEC


@pytest.mark.parametrize("stays", [True, False])
async def test_built_in_service_leaves_the_next_job_manager_to_the_override(
    autojump_clock: MockClock, stays: bool
) -> None:
    async with overridden() as (s, _sched, override, connection):
        await s.supervisor.remove("job-manager")
        if not stays:
            await connection.aclose()
        await s.supervisor.load("job-manager")
        await settle()
        assert await serving(s) == ""
        if stays:
            await trio.sleep(1)
            await override.handle.call(topics.EXEC_HELLO, {"service": OVERRIDE})
        await trio.sleep(10)
        assert await serving(s) == (OVERRIDE if stays else topics.JOB_EXEC)


async def test_who_runs_jobs_may_be_asked(autojump_clock: MockClock) -> None:
    async with overridden() as (s, _sched, _override, connection):
        asked = await s.call(topics.EXEC_SERVICE)
        assert asked == {"service": OVERRIDE, "vacant": False}
        await connection.aclose()
        await settle()
        assert await s.call(topics.EXEC_SERVICE) == {"service": "", "vacant": True}
        await trio.sleep(PLACE_S)
        await settle()
        asked = await s.call(topics.EXEC_SERVICE)
        assert asked == {"service": topics.JOB_EXEC, "vacant": False}


async def test_another_override_goes_first_when_one_has_left(autojump_clock: MockClock) -> None:
    async with overridden() as (s, sched, _override, connection):
        await connection.aclose()
        await settle()
        async with s.instance.connect("second") as handle:
            second = Override(handle)
            await second.hello()
            await trio.sleep(2 * PLACE_S)
            jobid = await allocated(s, sched)
            assert await second.starts() == [(jobid, False)]
            second.tell(jobid, "start")
            await second.end(jobid)
            assert await serving(s) == OVERRIDE


# --- answers wrongly

Say = Callable[[FakeExec, int], None]


def data(kind: str, what: Any) -> Say:
    return lambda e, jobid: e.say({"id": jobid, "type": kind, "data": what})


# the clauses broken; what it says of a job that runs; what the log says of it
WRONG: dict[str, tuple[str, Say, str]] = {
    "id that nobody knows": (
        "32.start.3",
        lambda e, _: e.tell(99, "finish"),
        "no active job has id 99",
    ),
    "second start": ("32.start.3", lambda e, j: e.tell(j, "start"), "start in state RUNNING"),
    "second finish": (
        "32.start.3",
        lambda e, j: e.tell(j, "finish", "finish"),
        "finish in state FINISHED",
    ),
    "type that there is not": (
        "32.start.16",
        data("fly", {}),
        "expected a type of start, release, exception, finish, got 'fly'",
    ),
    "no data": (
        "32.start.15",
        lambda e, j: e.say({"id": j, "type": "finish"}),
        "missing required field `data`",
    ),
    "no payload": ("32.start.12 32.start.3", lambda e, _: e.say(None), "payload"),
    "no id": (
        "32.impl.3 32.start.13 32.start.3",
        lambda e, _: e.say({"type": "finish", "data": {"status": 0}}),
        "missing required field `id`",
    ),
    "id of another type": (
        "32.background.1 32.start.13 32.start.3",
        lambda e, _: e.say({"id": "x", "type": "start", "data": {}}),
        "Expected `int`, got `str` - at `$.id`",
    ),
    "finish without a status": (
        "32.start.31",
        data("finish", {}),
        "missing required field `status`",
    ),
    "status of another type": (
        "32.start.31",
        data("finish", {"status": "0"}),
        "Expected `int`, got `str`",
    ),
    "release without ranks": (
        "32.criteria.5 32.start.20 32.start.21 32.start.35",
        data("release", {"final": True}),
        "missing required field `ranks`",
    ),
    "severity that there is not": (
        "32.start.25",
        data("exception", {"severity": 8, "type": "x"}),
        "Expected `int` <= 7",
    ),
    "errnum": ("32.impl.5", lambda e, _: e.say("out of order", 5), "job-exec.start: out of order"),
}


@pytest.mark.parametrize("what", named(WRONG))
async def test_wrong_answer_ends_the_conversation_and_no_job(
    autojump_clock: MockClock, what: str
) -> None:
    """32.impl.6, 32.impl.7: logged, nothing more is sent; the next service takes the job up."""
    _, say, text = WRONG[what]
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        jobid = await allocated(s, sched)
        execution.tell(jobid, "start")
        await settle()
        say(execution, jobid)
        await settle()
        (logged,) = s.log()
        assert logged.startswith("job-manager.err: execution service job-exec lost: "), logged
        assert text in logged
        later = await allocated(s, sched)
        assert execution.starts() == [(jobid, False)]
        finished = "finish" in await s.events(jobid)
        assert "exception" not in await s.events(jobid)

        await s.end("job-exec", "removed", execution)
        after = FakeExec()
        await s.load("job-exec", after)
        if not finished:
            assert after.starts() == [(jobid, True), (later, False)]
            after.tell(jobid, "finish", "release")
        await settle()
        assert (await s.events(jobid))[-1] == "clean"
        assert sched.asked(FREE) == [jobid]


@pytest.mark.breaks("32.start.37")
async def test_answer_after_the_final_release_ends_the_conversation(
    autojump_clock: MockClock,
) -> None:
    "A second terminal answer."
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        jobid = await allocated(s, sched)
        execution.tell(jobid, "start", "finish", "release")
        execution.tell(jobid, "release")
        await settle()
        (logged,) = s.log()
        assert "execution service job-exec lost" in logged
        assert sched.asked(FREE) == [jobid]
        events = await s.events(jobid)
        assert (events.count("release"), events[-1]) == (1, "clean")


@pytest.mark.breaks("32.criteria.5", "32.start.35")
async def test_final_release_before_finish_is_the_jobs_exception(autojump_clock: MockClock) -> None:
    """readings: Final release without finish.

    A severity 0 exec exception, and the resources are freed.
    """
    async with scene(WITHOUT) as s:
        sched, execution = await both(s)
        jobid = await allocated(s, sched)
        execution.tell(jobid, "start", "release")
        await settle()
        events = await s.eventlog(jobid)
        names = [event.name for event in events]
        assert names[-5:] == ["start", "exception", "release", "free", "clean"]
        raised = next(event.context for event in events if event.name == "exception")
        assert raised is not None
        assert (raised["type"], raised["severity"]) == ("exec", 0)
        assert (await s.stats())["exec"] == {"service": "job-exec"}


@pytest.mark.breaks("32.hello.3", "32.hello.4", "32.hello.9")
async def test_service_that_cannot_say_who_it_is_is_refused_with_text(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        for payload in (None, {"service": ""}, {"service": 1}, {"name": "x"}):
            with pytest.raises(FluxError, match=r"service|payload"):
                await s.call(topics.EXEC_HELLO, payload)
        assert (await s.stats())["exec"] == {"service": ""}


async def test_answer_of_somebody_else_in_the_services_name_is_dropped(
    autojump_clock: MockClock,
) -> None:
    async with scene(WITHOUT) as s:
        sched, _ = await both(s)
        jobid = await allocated(s, sched)
        finish = {"id": jobid, "type": "start", "data": {}}
        s.handle.send(Response("job-exec.start", finish, routes=("job-manager",)))
        await settle()
        assert len(s.drops("job-exec.start")) == 1
        assert (await s.events(jobid))[-1] == "alloc"


# --- R that overlaps another job's: found out where it would do harm
