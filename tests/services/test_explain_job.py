"""job-manager.explain: each reason for which a job waits, asked of the parties when it is asked."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from flux_trio import jobtap
from flux_trio.broker import ModuleSpec
from flux_trio.formats import Jobspec, format_fluid
from flux_trio.messages import Errno, FluxError, Request, Response, topics
from flux_trio.services.explain_job import AT_ONCE_OF_USER_MAX, SCHEDULER_S
from flux_trio.testing import FakeScheduler, InstanceHarness, InstanceJob, simulated_instance
from flux_trio.testing.pytest_plugin import StartHarness

GUEST = 1001
NODES = 4  # of the instance, with 4 cores each


def whole(nnodes: int) -> dict[str, Any]:
    """The shape of a job that has whole nodes."""
    return {"nnodes": nnodes, "ntasks": 4 * nnodes}


def explained(instance: Any, job: InstanceJob, userid: int | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = instance.request(topics.JOB_EXPLAIN, {"id": job.id}, userid=userid)
    return answer


def instance_with(policy: str, **options: Any) -> InstanceHarness:
    return InstanceHarness(config=f"[sched]\npolicy = '{policy}'\n", **options)


# --- what the job manager knows


def test_job_with_urgency_0_is_held(plugin_harness: StartHarness) -> None:
    harness = plugin_harness()
    found = explained(harness, harness.submit(urgency=0))
    assert (found["state"], found["urgency"], found["priority"]) == ("SCHED", 0, 0)
    assert found["waits"] == ["it is held: its urgency is 0"]
    assert found["sched"] is None


def test_job_that_a_plugin_gives_priority_0_is_held(plugin_harness: StartHarness) -> None:
    class Zero(jobtap.Plugin):
        @jobtap.on("job.state.priority", "job.priority.get")
        def priority(self, _job: jobtap.Job) -> int:
            return 0

    harness = plugin_harness(Zero())
    found = explained(harness, harness.submit())
    assert found["waits"] == ["it is held: plugins gave it priority 0"]
    assert found["said"][-1] == {"plugin": "zero", "priority": 0}


def test_each_dependency_is_named(plugin_harness: StartHarness) -> None:
    harness = plugin_harness()
    first = harness.submit(urgency=0)
    name = format_fluid(first.id, "f58")
    entries = [
        {"scheme": "afterok", "value": name},
        {"scheme": "begin-time", "value": str(harness.now + 60)},
    ]
    job = harness.submit(attributes={"system.dependencies": entries})
    assert explained(harness, job)["waits"] == [
        f"dependency {text}" for text in sorted(job.dependencies)
    ]
    assert len(job.dependencies) == 2


def test_failure_that_holds_a_job_and_a_plugin_that_thinks_are_told(
    plugin_harness: StartHarness,
) -> None:
    class Fails(jobtap.Plugin):
        @jobtap.on("job.state.depend")
        def depend(self, _job: jobtap.Job) -> None:
            raise ValueError("odd")

    harness = plugin_harness(Fails(), may_fail=True)
    (reason,) = explained(harness, harness.submit())["waits"]
    assert reason.startswith("plugin fails failed in job.state.depend for job ")
    assert reason.endswith("ValueError: odd")


def test_unavailable_priority_is_told_with_the_plugin_that_says_so(
    plugin_harness: StartHarness,
) -> None:
    class Waits(jobtap.Plugin):
        @jobtap.on("job.state.priority", "job.priority.get")
        def priority(self, _job: jobtap.Job) -> jobtap.Unavailable:
            return jobtap.UNAVAILABLE

        @jobtap.on("job.explain")
        def explain(self, _job: jobtap.Job) -> str:
            return "the database is read once a day"

    harness = plugin_harness(Waits())
    found = explained(harness, harness.submit())
    assert found["waits"] == ["priority unavailable"]
    assert found["said"] == [
        {"plugin": ".priority-default", "priority": 16, "text": "the urgency"},
        {"plugin": "waits", "unavailable": True, "text": "the database is read once a day"},
    ]


def test_stopped_queue_is_named_with_its_reason(instance: InstanceHarness) -> None:
    instance.request(topics.JOB_QUEUE_START, {"start": False, "reason": "until noon"})
    job = instance.submit()
    assert explained(instance, job)["waits"] == ["the queue is stopped: until noon"]


def test_prolog_and_missing_execution_service_are_told(plugin_harness: StartHarness) -> None:
    class Prolog(jobtap.Plugin):
        @jobtap.on("job.state.run")
        def run(self, job: jobtap.Job) -> None:
            job.prolog_start("mount")

    harness = plugin_harness(Prolog())
    job = harness.submit()
    job.grant()
    assert explained(harness, job)["waits"] == ["prolog mount runs"]


def test_job_that_is_not_active_is_unknown(instance: InstanceHarness) -> None:
    job = instance.submit()
    instance.wait(job)
    with pytest.raises(FluxError, match="unknown or inactive job") as caught:
        explained(instance, job)
    assert caught.value.errnum == Errno.ENOENT


# --- plugins


def test_plugin_that_fails_says_so_and_others_are_heard(plugin_harness: StartHarness) -> None:
    class Fails(jobtap.Plugin):
        @jobtap.on("job.explain")
        def explain(self, job: jobtap.Job) -> str:
            job.raise_exception("policy")  # not performed
            raise KeyError("bank")

    class Wrong(jobtap.Plugin):
        @jobtap.on("job.explain")
        def explain(self, _job: jobtap.Job) -> int:
            return 7

    harness = plugin_harness(Fails(), Wrong(), may_fail=True)
    job = harness.submit()
    _, fails, wrong = explained(harness, job)["said"]
    assert fails["error"].startswith("plugin fails failed in job.explain for job ")
    assert wrong["error"].endswith("expected a str, got 7")
    assert job.state.name == "SCHED"


def test_nothing_that_a_plugin_calls_while_it_explains_is_done(
    plugin_harness: StartHarness,
) -> None:
    class Acts(jobtap.Plugin):
        @jobtap.on("job.explain")
        def explain(self, job: jobtap.Job) -> str:
            job.raise_exception("policy")
            return "because"

    harness = plugin_harness(Acts())
    job = harness.submit()
    assert explained(harness, job)["said"][-1] == {"plugin": "acts", "text": "because"}
    assert "exception" not in job.names


# --- what the scheduler knows


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative"])
def test_first_job_of_the_queue_waits_for_those_that_hold_resources(policy: str) -> None:
    with instance_with(policy) as instance:
        long = instance.submit(**whole(1), duration=100.0, run_s=100.0)
        short = instance.submit(**whole(1), duration=50.0, run_s=50.0)
        head = instance.submit(**whole(NODES), duration=10.0)
        found = explained(instance, head)
        assert found["waits"] == []
        assert found["sched"] == {
            "id": head.id,
            "policy": policy,
            "place": 1,
            "pending": 1,
            "reason": "insufficient resources",
            "ahead": [],
            "holders": [
                {"id": short.id, "end": instance.now + 50},
                {"id": long.id, "end": instance.now + 100},
            ],
            "start": instance.now + 100,
        }
        for job in (long, short, head):
            job.cancel()


@pytest.mark.parametrize(
    ("policy", "start"), [("fifo", None), ("easy", None), ("conservative", 110.0)]
)
def test_job_behind_others_is_told_its_place(policy: str, start: float | None) -> None:
    with instance_with(policy) as instance:
        instance.submit(**whole(1), duration=100.0, run_s=100.0)
        head = instance.submit(**whole(NODES), duration=10.0)
        behind = instance.submit(**whole(NODES), duration=10.0)
        small = instance.submit(**whole(1), duration=1000.0)
        place = explained(instance, behind)["sched"]
        assert (place["place"], place["pending"], place["ahead"]) == (2, 3, [head.id])
        assert place["start"] == (None if start is None else instance.now + start)
        place = explained(instance, small)["sched"]
        assert (place["place"], place["ahead"]) == (3, [head.id, behind.id])
        assert place["reason"] == "jobs ahead of it come first"
        assert place["holders"] == []


def test_jobs_without_a_limit_have_no_end_and_allow_no_estimate() -> None:
    with instance_with("easy") as instance:
        holder = instance.submit(**whole(NODES), run_s=1000.0)
        place = explained(instance, instance.submit())["sched"]
        assert place["holders"] == [{"id": holder.id, "end": None}]
        assert place["start"] is None


def test_at_most_8_jobs_are_named() -> None:
    with instance_with("fifo") as instance:
        holders = [instance.submit(duration=100.0 + n, run_s=100.0) for n in range(16)]
        waiting = [instance.submit() for _ in range(12)]
        place = explained(instance, waiting[-1])["sched"]
        assert place["place"] == 12
        assert place["ahead"] == [job.id for job in waiting[3:11]]
        assert [each["id"] for each in place["holders"]] == [job.id for job in holders[:8]]


def test_nodes_that_are_offline_are_told_apart() -> None:
    with instance_with("easy") as instance:
        instance.request(topics.RESOURCE_DRAIN, {"targets": "0", "reason": "fan"})
        place = explained(instance, instance.submit(**whole(NODES), duration=10.0))["sched"]
        assert place["reason"] == "insufficient resources: nodes that would do are offline"
        assert (place["holders"], place["start"]) == ([], None)


def test_each_queue_has_its_own_places_and_policy() -> None:
    config = """
    [policy.jobspec.defaults.system]
    queue = "a"
    [queues.a.policy.scheduler]
    policy = "easy"
    [queues.b]
    """
    with InstanceHarness(config=config) as instance:
        queue = [{"system.queue": "a"}, {"system.queue": "b"}]
        instance.submit(**whole(NODES), run_s=100.0, attributes=queue[0])
        instance.submit(**whole(NODES), attributes=queue[0])
        job = instance.submit(**whole(NODES), attributes=queue[1])
        place = explained(instance, job)["sched"]
        assert (place["place"], place["pending"], place["policy"]) == (1, 1, "fifo")
        job = instance.submit(**whole(NODES), attributes=queue[0])
        place = explained(instance, job)["sched"]
        assert (place["place"], place["pending"], place["policy"]) == (2, 2, "easy")


# --- schedulers that are not ours


def test_no_scheduler_is_told(instance: InstanceHarness) -> None:
    instance.unload("sched")
    found = explained(instance, instance.submit())
    assert (found["waits"], found["sched"]) == (["no scheduler is there"], None)


def test_scheduler_without_the_method_is_named(
    instance: InstanceHarness, fake_scheduler: Any
) -> None:
    found = explained(instance, instance.submit())
    assert found["sched"] is None
    assert found["waits"] == [
        "the scheduler has its request, and cannot say why it waits: it has no method explain"
    ]


class Deaf(FakeScheduler):
    """Ignores what it does not know."""

    def take(self, message: Any) -> None:
        if not (isinstance(message, Request) and message.topic == topics.SCHED_EXPLAIN):
            super().take(message)


def _babble(request: Request) -> Response:
    return Response(request.topic, {"id": "x"}, matchtag=request.matchtag, routes=request.routes)


class Babbles(FakeScheduler):
    """Answers what is no answer."""

    def take(self, message: Any) -> None:
        if isinstance(message, Request) and message.topic == topics.SCHED_EXPLAIN:
            self.handle.send(_babble(message))
        else:
            super().take(message)


@pytest.mark.parametrize(
    ("fake", "why"),
    [(Deaf, "no answer in 2 s"), (Babbles, "sched.explain: payload: Expected `int`")],
)
async def test_scheduler_that_does_not_answer_or_not_so_is_named(
    autojump_clock: MockClock, fake: type[FakeScheduler], why: str
) -> None:
    async with simulated_instance() as instance, instance.connect() as user:
        supervisor = instance.supervisor
        await supervisor.remove("sched")
        supervisor.specs["sched"] = ModuleSpec("sched", fake().run)
        await supervisor.load("sched")
        jobspec = Jobspec.from_command(["true"], cwd="/").to_json()
        job = await user.call(topics.INGEST_SUBMIT, {"jobspec": jobspec})
        found = await user.call(topics.JOB_EXPLAIN, {"id": job["id"]})
        start = "the scheduler has its request, and cannot say why it waits: "
        assert found["waits"][0].startswith(start + why)


async def test_requests_of_one_user_take_at_most_half_of_the_turns(
    autojump_clock: MockClock,
) -> None:
    """Each takes 2 s here, since the scheduler does not answer."""
    async with (
        simulated_instance() as instance,
        instance.connect() as user,
        instance.connect(userid=GUEST) as guest,
    ):
        supervisor = instance.supervisor
        await supervisor.remove("sched")
        supervisor.specs["sched"] = ModuleSpec("sched", Deaf().run)
        await supervisor.load("sched")
        jobspec = Jobspec.from_command(["true"], cwd="/").to_json()
        job = await guest.call(topics.INGEST_SUBMIT, {"jobspec": jobspec})
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(guest.call, topics.JOB_EXPLAIN, {"id": job["id"]})
            await wait_all_tasks_blocked()
            begin = trio.current_time()
            await user.call(topics.JOB_EXPLAIN, {"id": job["id"]})
            assert trio.current_time() - begin == pytest.approx(SCHEDULER_S)
        assert trio.current_time() - begin == pytest.approx(40 / AT_ONCE_OF_USER_MAX * SCHEDULER_S)


def test_limited_scheduler_has_not_been_asked_yet(instance: InstanceHarness) -> None:
    instance.play("sched", FakeScheduler(limit=1))
    instance.submit()
    instance.submit(urgency=20)  # takes the place of the first
    job = instance.submit()
    (reason,) = explained(instance, job)["waits"]
    assert reason == "the scheduler takes 1 requests at a time: 2 of 2 that wait to be sent"


# --- who may ask


def test_guest_asks_about_jobs_of_its_own_and_sees_no_ids_of_others() -> None:
    with instance_with("fifo") as instance:
        holder = instance.submit(**whole(NODES), run_s=100.0, duration=100.0)
        ahead = instance.submit(userid=GUEST)
        instance.submit()
        job = instance.submit(userid=GUEST)
        for each in (holder, job):
            with pytest.raises(FluxError, match="access is restricted") as caught:
                explained(instance, each, userid=1002)
            assert caught.value.errnum == Errno.EPERM
        place = explained(instance, job, userid=GUEST)["sched"]
        assert (place["place"], place["ahead"], place["holders"]) == (3, [ahead.id], [])
        assert len(explained(instance, job)["sched"]["ahead"]) == 2
        with pytest.raises(FluxError, match="requires owner"):
            instance.request(topics.SCHED_EXPLAIN, {"id": job.id}, userid=GUEST)


@pytest.mark.parametrize("payload", [{}, {"id": "x"}, {"id": -1}])
def test_malformed_request_is_refused(instance: InstanceHarness, payload: dict[str, Any]) -> None:
    for topic in (topics.JOB_EXPLAIN, topics.SCHED_EXPLAIN):
        with pytest.raises(FluxError) as caught:
            instance.request(topic, payload)
        assert caught.value.errnum in (Errno.EPROTO, Errno.ENOENT)
