"""What happens when the execution service answers wrongly (RFC 32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from trio.testing import MockClock

from flux_trio.messages import FluxError, Response, topics
from flux_trio.testing.fakes import FakeExec
from tests.support.breaking import named
from tests.support.failing import WITHOUT, allocated, both, scene, settle

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
    "second start": ("32.start.17", lambda e, j: e.tell(j, "start"), "start in state RUNNING"),
    "second finish": (
        "32.start.36 32.start.37",
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
        assert sched.asked(topics.SCHED_FREE) == [jobid]


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
        assert sched.asked(topics.SCHED_FREE) == [jobid]
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
