"""Stories in which nobody, or only one who lies, breaks a clause: no other party is accused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio

from flux_trio.broker import Handle, ModuleSpec
from flux_trio.config import Config, ExecConfig, parse_config
from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import ResourceSet, job_key
from flux_trio.judge.engine.causes import Violation
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import FluxError, Response, topics
from flux_trio.testing import FakeScheduler
from tests.judge.scenarios.execution import executor
from tests.support.administration import machine
from tests.support.judged import Trace, edit_note, edit_payload, find, find_event, judge, move
from tests.support.scenarios import Stage, play_on, trace_of

PLAIN = Config(exec=ExecConfig(simulate=True))
TWO_QUEUES = """
[exec]
simulate = true
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
[queues.debug]
requires = { properties = ["fast"] }
"""


def accused(play: Callable[[Stage], Awaitable[None]], config: Config = PLAIN) -> list[Violation]:
    """Return the violations in the trace of a story, on four nodes of two cores."""
    return judge(play_on(play, config, 1, machine()), ALL_RULES).violations


PRODUCERS = ("idset-producer", "R-producer")
"""The parties whose texts are bad, wherever they come from."""


def told(violations: list[Violation], liars: tuple[str, ...] = ()) -> list[str]:
    found = [each for each in violations if not (liars and each.party.startswith(liars))]
    return [f"{each.clause} of {each.party}: {each.text}" for each in found]


# --- virtual queues, and queues that a restart stops


VIRTUAL = """
[exec]
simulate = true
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
policy.limits.job-size.max.nnodes = 3
[queues.small]
parent = "batch"
"""


async def wait_for_the_parent(stage: Stage) -> None:
    """A job of a virtual queue waits while its parent is stopped."""
    await stage.call(topics.JOB_QUEUE_START, start=False, name="batch")
    await stage.submit(1.0, queue="small")
    await stage.settle()
    await stage.call(topics.JOB_QUEUE_START, start=True, name="batch")
    await stage.settle()


def test_a_job_waits_for_the_parent_of_its_queue() -> None:
    """invariant.nobody-stuck, invariant.counters: nothing is owed to it while that is stopped."""
    assert told(accused(wait_for_the_parent, parse_config(VIRTUAL))) == []


def test_what_is_asked_for_a_virtual_queue_whose_parent_is_stopped_is_broken() -> None:
    """33.admin.7"""
    trace = play_on(wait_for_the_parent, parse_config(VIRTUAL), 1, machine())
    start = find(trace, topics.JOB_QUEUE_START, "request", start=True)
    alloc = find(trace, topics.SCHED_ALLOC, "request")
    moved = move(trace, alloc, before=start)[: start.n]
    (broken,) = judge(moved, ALL_RULES, cut=True).violations
    assert (broken.clause, broken.party) == ("33.admin.7", "job-manager")


def test_a_virtual_queue_has_the_limits_of_its_parent() -> None:
    """33.limits.2: a job is refused rightly, by what the parent sets."""

    async def play(stage: Stage) -> None:
        with pytest.raises(FluxError, match="exceeds policy limit of 3 for queue small"):
            await stage.submit(1.0, nnodes=4, queue="small")

    assert told(accused(play, parse_config(VIRTUAL))) == []


def test_a_restart_that_stops_the_queues_is_no_omission() -> None:
    """invariant.nobody-stuck: what waits for them is owed nothing."""

    async def play(stage: Stage) -> None:
        await stage.reload("job-manager")
        await stage.submit(1.0)
        await stage.settle()

    stops = "[job-manager]\nstop-queues-on-restart = true\n" + VIRTUAL
    assert told(accused(play, parse_config(stops))) == []


# --- queues that change


def test_a_job_may_be_denied_in_the_queue_that_it_was_moved_to() -> None:
    """27.cancel.8: the request that was canceled could be met, and this one cannot."""

    async def play(stage: Stage) -> None:
        await stage.submit(50.0, ntasks=8)
        moved = await stage.submit(nnodes=3, duration=10.0)
        await stage.settle()
        queue = {"attributes.system.queue": "debug"}
        await stage.call(topics.JOB_UPDATE, id=moved, updates=queue)
        await stage.settle(100.0)

    assert told(accused(play, parse_config(TWO_QUEUES))) == []


def test_a_job_whose_queue_was_removed_waits_for_the_queue() -> None:
    """The job manager asks for nothing until the queue comes back, and counts the job nowhere."""

    async def play(stage: Stage) -> None:
        for queue in ("batch", "debug"):
            await stage.submit(20.0, ntasks=8, attributes={"system.queue": "batch"})
            await stage.submit(20.0, attributes={"system.queue": queue})
        await stage.settle()
        settings = parse_config(TWO_QUEUES).to_json()
        for queues in ({"batch": {}}, {"debug": {}}, {}, settings["queues"]):
            policy = settings["policy"] if "batch" in queues else {}
            config = {**settings, "policy": policy, "queues": queues}
            await stage.call(topics.CONFIG_LOAD, config=config)
            await stage.settle(10.0)
        await stage.settle(100.0)

    assert told(accused(play, parse_config(TWO_QUEUES))) == []


# --- execution services that say what no RFC has


MALFORMED = {
    "no data": {"type": "start"},
    "no such type": {"type": "begun", "data": {}},
    "status": {"type": "finish", "data": {"status": "well"}},
    "ranks": {"type": "release", "data": {"ranks": "some", "final": True}},
    "foreign ranks": {"type": "release", "data": {"ranks": "3", "final": True}},
    "no ranks": {"type": "release", "data": {"final": True}},
    "severity": {"type": "exception", "data": {"type": "exec", "severity": "all"}},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_after_a_malformed_answer_another_service_takes_over(name: str) -> None:
    """32.hello.8, 32.impl.4: the outstanding starts have ended (readings: Exec override)."""

    async def play(stage: Stage) -> None:
        await stage.remove(topics.JOB_EXEC)
        jobs = [await stage.submit(5.0) for _ in range(2)]
        async with executor(stage, "bad-exec") as bad, executor(stage, "good-exec") as good:
            assert await bad.hello() == 0
            await bad.take()
            answer = {"id": jobs[0], **MALFORMED[name]}
            bad.handle.send(Response("bad-exec.start", answer, routes=(topics.JOB_MANAGER,)))
            await stage.settle()
            assert await good.hello() == 0
            await good.take()
            for job in good.starts:
                good.say(job, "start")
                good.end(job)
            await stage.settle()

    assert told(accused(play), liars=("bad-exec", *PRODUCERS)) == []


# --- who acquires what another one has


class Greedy(FakeScheduler):
    """Acquires what it has, again, and goes on when it is refused."""

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._acquire_again, handle)
            await super().run(handle, task_status=task_status)

    async def _acquire_again(self, handle: Handle) -> None:
        await trio.sleep(5.0)
        with pytest.raises(FluxError, match="already acquired"):
            async with handle.stream(topics.RESOURCE_ACQUIRE, {"group": "default"}) as told:
                await anext(told)


def test_a_scheduler_that_may_not_acquire_again_has_what_it_had() -> None:
    """The refusal is of the second request, and says nothing of the first."""

    async def play(stage: Stage) -> None:
        scheduler = Greedy()
        await _with_scheduler(stage, scheduler)
        for seconds in (0.0, 10.0):
            await stage.settle(seconds)
            await stage.call(topics.RESOURCE_DRAIN, targets="3")
            job = await stage.submit(5.0)
            await stage.settle()
            await scheduler.grant(job)
            await stage.call(topics.RESOURCE_UNDRAIN, targets="3")
            await stage.settle(10.0)

    assert told(accused(play)) == []


# --- schedulers that do what is allowed


async def _with_scheduler(stage: Stage, scheduler: FakeScheduler) -> None:
    await stage.remove("sched")
    stage.instance.supervisor.specs["sched"] = ModuleSpec("sched", scheduler.run)
    await stage.load("sched")


@pytest.mark.parametrize("starttime", [None, 0.0, 12.5, 1e9 + 0.25])
def test_r_may_have_any_starttime_and_be_stored_by_another_connection(
    starttime: float | None,
) -> None:
    """20.starttime.3, 14.attributes.2, 27.success.1; the job's limit is its `duration`."""

    async def play(stage: Stage) -> None:
        scheduler = FakeScheduler()
        await _with_scheduler(stage, scheduler)
        job = await stage.submit(5.0, duration=60.0)
        await stage.settle()
        r = ResourceSet.build([(0, 1, 0)], "node{}".format).to_json()
        if starttime is not None:
            end = (starttime or 1e9) + 60.0
            r["execution"] |= {"starttime": starttime, "expiration": end}
        ops = [["put", job_key(job, "R"), msgspec.json.encode(r).decode()]]
        await stage.call(topics.KVS_COMMIT, ops=ops)
        scheduler.answer(job, AllocType.SUCCESS)
        await stage.settle(10.0)

    assert told(accused(play)) == []


def test_answers_may_have_keys_that_no_text_names() -> None:
    """27.alloc.11: only CANCEL has nothing else (readings: Keys that no text names)."""

    async def play(stage: Stage) -> None:
        scheduler = FakeScheduler()
        await _with_scheduler(stage, scheduler)
        granted, denied = await stage.submit(5.0), await stage.submit(5.0, ntasks=1000)
        await stage.settle()
        empty: dict[str, Any] = {"annotations": {"sched": {}}}
        scheduler.answer(granted, AllocType.ANNOTATE, note="soon", **empty)
        await scheduler.write(granted)
        scheduler.answer(granted, AllocType.SUCCESS, note="as you wish", color="green")
        scheduler.answer(denied, AllocType.DENY, note="no", **empty)
        await stage.settle(10.0)

    assert told(accused(play)) == []


# --- a job manager that logs what it was told


SAID: dict[str, tuple[str, str, Any]] = {
    "21.events.29": ("release", "ranks", "some"),
    "21.events.30": ("finish", "status", "well"),
}


@pytest.mark.parametrize("clause", SAID)
def test_what_the_execution_service_said_is_its_own_word(clause: str) -> None:
    kind, key, value = SAID[clause]
    trace = trace_of("everyday")
    answer = find(trace, "job-exec.start", "response", type=kind)
    data = {**answer.message.payload["data"], key: value}
    event = find_event(trace, kind, answer.message.payload["id"])
    logged = edit_note(trace, event, context={**event.data["context"], key: value})
    assert _parties(logged[: event.n], clause) == {"job-manager"}
    trace = edit_payload(logged, answer, data=data)
    assert _parties(trace[: event.n], clause) == {"job-exec"}


def _parties(trace: Trace, clause: str) -> set[str]:
    found = judge(trace, ALL_RULES, cut=True).violations
    return {each.party for each in found if each.clause == clause}
