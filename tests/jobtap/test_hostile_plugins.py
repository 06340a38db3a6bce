"""Plugins that do what no plugin should: the instance goes on, and says who did what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio import jobtap
from flux_trio.jobtap import FluxError, NotAllowed, PluginError, Reject, ServiceRequest, State
from flux_trio.protocols import Annotate, JobState, PostEvent, UpdateApplied
from flux_trio.testing.pytest_plugin import StartHarness
from tests.support.plugin_host import JOB, PRIORITY, asked_to_set, handling, rig

FAILED = f"plugin a failed in {PRIORITY} for job ƒ8: "
SURROGATE = "a\ud800b"


class Untold(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")


class Own(BaseException):
    pass


class Nothing:
    """Lies about its class, and has no text."""

    @property
    def __class__(self) -> NoReturn:
        raise RuntimeError("no class")


# --- what it raises


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Own("mine"), "Own: mine"),
        (GeneratorExit("g"), "GeneratorExit: g"),
        (asyncio.CancelledError("elsewhere"), "CancelledError: elsewhere"),
        (
            BaseExceptionGroup("all", [SystemExit(3), Untold()]),
            "BaseExceptionGroup: all (2 sub-exceptions): SystemExit: 3;"
            " Untold: (its text cannot be told: RuntimeError)",
        ),
        (Untold(), "Untold: (its text cannot be told: RuntimeError)"),
        (ValueError(SURROGATE), "ValueError: a\\ud800b"),
    ],
)
async def test_whatever_a_handler_raises_is_its_failure(
    how: str, error: BaseException, said: str
) -> None:
    def raise_it(_job: jobtap.Job) -> None:
        raise error

    async def raise_later(_job: jobtap.Job) -> None:
        raise error

    async with rig(handling(PRIORITY, raise_it if how == "sync" else raise_later)) as r:
        answer = r.ask()
        await trio.testing.wait_all_tasks_blocked()
        answer = answer or r.answers[0].answer
        assert answer.error == FAILED + said
        assert r.logged[0].startswith(FAILED + said)


async def test_long_text_of_an_error_is_cut() -> None:
    def fail(_job: jobtap.Job) -> None:
        raise ValueError("x" * 10_000_000)

    async with rig(handling(PRIORITY, fail)) as r:
        assert len(r.answer().error or "") < 3000


async def test_cancelled_that_was_kept_and_raised_later_ends_nothing(
    autojump_clock: MockClock,
) -> None:
    kept: list[trio.Cancelled] = []
    with trio.move_on_after(1):
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            kept.append(cancelled)
            raise

    async def fail(_job: jobtap.Job) -> None:
        raise kept[0]

    async with rig(handling(PRIORITY, fail)) as r:
        r.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert (r.answers[0].answer.error or "").startswith(FAILED + "Cancelled")


class NoReason(Reject):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (NoReason(), "NoReason: expected a reason in words, got None"),
        (Reject(" "), "Reject: expected a reason in words, got ' '"),
        (Reject(5), "Reject: expected a reason in words, got 5"),  # type: ignore[arg-type]  # that is the point
    ],
)
async def test_reject_without_a_sentence_is_a_failure(error: Reject, says: str) -> None:
    def refuse(_job: jobtap.Job) -> None:
        raise error

    async with rig(handling("job.validate", refuse)) as r:
        answer = r.answer("job.validate")
        assert answer.reject is None
        assert answer.error == f"plugin a failed in job.validate for job ƒ8: {says}"


# --- what it returns


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_value_that_raises_when_it_is_looked_at_is_a_failure(how: str) -> None:
    async def later(_job: jobtap.Job) -> Nothing:
        return Nothing()

    handler = later if how == "async" else lambda _job: Nothing()
    async with rig(handling(PRIORITY, handler)) as r:
        answer = r.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert (answer or r.answers[0].answer).error == FAILED + "RuntimeError: no class"


@pytest.mark.parametrize("updates", [5, {"attributes.x": object()}, {1: 2}])
async def test_further_updates_have_to_be_json(updates: Any) -> None:
    def allow(_job: jobtap.Job, _update: jobtap.UpdateAsked) -> jobtap.UpdateAllowed:
        return jobtap.UpdateAllowed(updates=updates)

    async with rig(handling("job.update.x", allow)) as r:
        answer = r.answer("job.update.x", args=asked_to_set("x", 1))
        assert answer.error is not None
        assert not answer.handled


# --- what it hands over

ROUND: dict[str, Any] = {}
ROUND["again"] = ROUND

NO_JSON: list[dict[Any, Any]] = [
    {"a": object()},
    {"a": {1, 2}},
    {"a": float("nan")},
    {"a": SURROGATE},
    {"a": 2**70},
    {1: 2},
    ROUND,
    {"a": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]},
    {"a": "x" * 300_000},
]


@pytest.mark.parametrize("value", NO_JSON, ids=range(len(NO_JSON)))
@pytest.mark.parametrize("call", ["post", "annotate", "update", "allocate", "add_dependency"])
async def test_what_is_no_json_is_refused_at_the_call(call: str, value: dict[Any, Any]) -> None:
    given: Any = {"attributes.user.x": value} if call == "update" else value
    met: list[str] = []

    def do(job: jobtap.Job) -> None:
        with pytest.raises(NotAllowed) as refused:
            job.post("memo", given) if call == "post" else getattr(job, call)(given)
        met.append(str(refused.value))

    if call == "add_dependency" and value.get("a") == "x" * 300_000:
        given = value["a"]
    async with rig(handling(PRIORITY, do)) as r:
        assert r.answer().operations == ()
        assert len(met) == 1


@pytest.mark.parametrize("call", ["post", "annotate", "update", "allocate"])
@pytest.mark.parametrize("value", ["text", [1], 5], ids=repr)
async def test_what_is_no_object_is_told_as_what_it_is(call: str, value: Any) -> None:
    def do(job: jobtap.Job) -> None:
        job.post("memo", value) if call == "post" else getattr(job, call)(value)

    async with rig(handling(PRIORITY, do)) as r:
        error = r.answer().error or ""
        assert "NotAllowed" in error
        assert error.endswith(f": expected a JSON object, got {value!r}")


@pytest.mark.parametrize("name", [5, "", "a\nb", SURROGATE])
async def test_event_has_a_name_that_can_be_written(name: Any) -> None:
    def do(job: jobtap.Job) -> None:
        job.post(name)

    async with rig(handling(PRIORITY, do)) as r:
        assert "expected the name of an event, got " in (r.answer().error or "")


@pytest.mark.parametrize(
    "updates",
    [
        {"attributes.system.duration": "1h"},
        {"attributes.system": 3},
        {"attributes.system.queue": 5},
        {"attributes.nonsense": {}},
    ],
)
async def test_update_leaves_a_jobspec(updates: dict[str, Any]) -> None:
    async with rig(handling(PRIORITY, lambda job: job.update(updates))) as r:
        answer = r.answer()
        assert answer.operations == ()
        assert "NotAllowed: job ƒ8: jobspec." in (answer.error or "")


async def test_what_was_handed_over_does_not_change_later() -> None:
    kept: dict[str, Any] = {"a": {"b": 1}}

    def do(job: jobtap.Job) -> None:
        job.post("memo", kept)
        job.annotate(kept)

    async with rig(handling(PRIORITY, do)) as r:
        operations = r.answer().operations
        kept["a"]["b"] = 2
        assert operations == (
            PostEvent(7, "memo", {"a": {"b": 1}}, "a"),
            Annotate(7, {"a": {"b": 1}}, "a"),
        )


async def test_what_a_handler_is_given_cannot_be_changed_for_others() -> None:
    updates = {"attributes.system.bank": {"a": 1}}
    event = jobtap.Event(5.0, "memo", {"a": {"b": 1}})

    def spoil(job: jobtap.Job, given: Any) -> None:
        given.clear()
        job.annotations.clear()
        with pytest.raises(NotAllowed, match=r"changed with job\.update"):
            job.jobspec.system["bank"] = "theirs"
        assert dict(job.jobspec.system) | {"bank": "mine"}

    def spoil_event(job: jobtap.Job) -> None:
        assert job.event is not None
        assert job.event.context is not None
        job.event.context["a"].clear()

    async with rig(handling("job.update", spoil)) as r:
        assert r.answer("job.update", args=UpdateApplied(updates)).error is None
        assert updates == {"attributes.system.bank": {"a": 1}}
    async with rig(handling(PRIORITY, spoil_event)) as r:
        assert r.answer(args=event).error is None
        assert event.context == {"a": {"b": 1}}


# --- how it is made


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"deadline": "5"}, "plugin a: expected a deadline in seconds, got '5'"),
        ({"deadline": 0}, "plugin a: expected a deadline in seconds, got 0"),
        ({"deadline": float("nan")}, "plugin a: expected a deadline in seconds, got nan"),
        ({"name": 5}, "5 is not a plugin name"),
        ({"name": property(lambda _: "x")}, "AttributeError"),
        ({"conf": property(lambda _: {})}, "AttributeError"),
    ],
)
async def test_plugin_that_cannot_work_is_not_loaded(more: dict[str, Any], rule: str) -> None:
    made = type("Made", (jobtap.Plugin,), {"name": "a", **more})()
    async with rig() as r:
        with pytest.raises(PluginError) as refused:
            await r.host.load(made)
        assert rule in str(refused.value)
        assert r.host.names() == []


@pytest.mark.parametrize("decorator", [jobtap.on, jobtap.enter, jobtap.leave, jobtap.service])
def test_decorator_without_its_parentheses_is_an_error(decorator: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="expected a decorator such as @"):
        decorator(lambda job: None)


# --- counters


@pytest.mark.parametrize(
    ("key", "amount"),
    [
        (lambda job: [], None),
        (None, lambda job: "3"),
        (None, lambda job: None),
        (None, lambda job: float("nan")),
        (lambda job: 1 / 0, None),
    ],
)
async def test_counter_that_cannot_count_holds_the_job_and_nothing_else(
    key: Any, amount: Any
) -> None:
    class Counts(jobtap.Plugin):
        name = "counts"
        jobs = jobtap.counter(State.SCHED, key=key, amount=amount)

    async with rig(Counts()) as r:
        r.jobs(JOB)
        job = type(JOB)(state=JobState.SCHED)
        assert "plugin counts failed in job.state.sched" in (
            r.answer("job.state.sched", job).error or ""
        )
        r.host.notify("job.destroy", type(JOB)(state=JobState.INACTIVE))
        assert (await r.host.query("counts"))["counters"] == {"jobs": {}}
        await r.host.remove("counts")


# --- tasks


async def test_task_that_is_no_async_function_is_told(autojump_clock: MockClock) -> None:
    class Wrong(jobtap.Plugin):
        name = "a"

        def loaded(self) -> None:
            self.start_soon(lambda: 5)  # type: ignore[arg-type,return-value]  # that is the point
            with pytest.raises(TypeError, match="start_soon expected an async function"):
                self.start_soon(5)  # type: ignore[arg-type]  # and that

    async with rig(Wrong()) as r:
        await trio.testing.wait_all_tasks_blocked()
        assert "expected an async function, got one that returned 5" in r.logged[0]


# --- threads


@pytest.mark.parametrize(
    "call",
    [
        lambda job: job.post("memo"),
        lambda job: job.set_priority(5),
        lambda job: job.annotate({"a": 1}),
        lambda job: job.allocate({}),
        lambda job: job.subscribe(),
        lambda job: job.unsubscribe(),
        lambda job: job.plugin.reprioritize_all(),
        lambda job: job.plugin.log(6, "hello"),
        lambda job: job.plugin.start_soon(trio.sleep, 1),
        lambda job: job.plugin.call("own.topic"),
        lambda job: job.plugin.listen(PRIORITY),
        lambda job: trio.run(job.plugin.rpc, "nosuch.topic"),
    ],
)
async def test_call_in_another_thread_is_refused_before_it_does_anything(
    call: Callable[[jobtap.Job], object],
) -> None:
    jobs: list[jobtap.Job] = []
    met: list[str] = []

    def in_thread() -> None:
        with pytest.raises(NotAllowed) as refused:
            call(jobs[0])
        met.append(str(refused.value))

    async with rig(handling(PRIORITY, lambda job: jobs.append(job))) as r:
        assert r.answer().error is None
        await trio.to_thread.run_sync(in_thread)
        assert met[0].startswith(
            "plugin a: expected a call in the job manager's thread, got one in"
        )
        assert (r.posted, r.logged, r.called) == ([], [], [])


async def test_thread_reaches_the_job_manager_by_way_of_trio() -> None:
    ended = trio.Event()

    class Threads(jobtap.Plugin):
        name = "a"

        @jobtap.on(PRIORITY)
        async def priority(self, job: jobtap.Job) -> None:
            await trio.to_thread.run_sync(self.in_thread, job)
            ended.set()

        def in_thread(self, job: jobtap.Job) -> None:
            trio.from_thread.run_sync(job.annotate, {"a": 1})

    async with rig(Threads()) as r:
        assert r.ask() is None
        await ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert r.answers[0].answer.operations == (Annotate(JOB.id, {"a": 1}, "a"),)


# --- what it answers


@pytest.mark.parametrize("error", [FluxError(0, "no"), FluxError("x", 5)])  # type: ignore[arg-type]  # that is the point
async def test_error_of_a_method_is_a_number_and_a_text(error: FluxError) -> None:
    class Serves(jobtap.Plugin):
        name = "a"

        @jobtap.service("fails")
        def fails(self, _request: ServiceRequest) -> None:
            raise error

    async with rig(Serves()) as r:
        method = r.host.method("job-manager.a.fails")
        assert method is not None
        with pytest.raises(FluxError, match="plugin a failed in service fails"):
            await r.host.serve(method, ServiceRequest("fails", {}, 7, is_owner=False))


class Tells(jobtap.Plugin):
    name = "a"

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, Any]:
        return {"a": object()}

    @jobtap.service("tell")
    async def tell(self, _request: ServiceRequest) -> dict[str, Any]:
        return {"a": object()}


async def test_answer_that_is_no_json_is_refused_and_a_call_counts_once() -> None:
    async with rig(Tells()) as r:
        method = r.host.method("job-manager.a.tell")
        assert method is not None
        with pytest.raises(FluxError, match="answer: expected a JSON object"):
            await r.host.serve(method, ServiceRequest("tell", {}, 7, is_owner=False))
        with pytest.raises(PluginError, match="answer: expected a JSON object"):
            await r.host.query("a")
        assert r.host.find("a").statistics()["service tell"]["count"] == 1
        assert [note["hook"] for note in r.notes] == ["service tell", "plugin.query"]


# --- all of it on a job manager


@pytest.mark.flux_breaks("plugin")
def test_job_manager_goes_on_whatever_its_plugins_do(plugin_harness: StartHarness) -> None:
    class Worst(jobtap.Plugin):
        name = "worst"

        @jobtap.on("job.new")
        def new(self, _job: jobtap.Job) -> None:
            raise Own(SURROGATE)

        @jobtap.on("job.state.depend")
        def depend(self, job: jobtap.Job) -> None:
            job.annotate({"a": object()})

    harness = plugin_harness(Worst())
    job = harness.submit()
    assert job.state == State.DEPEND
    harness.remove("worst")
    assert job.state == State.SCHED
    job.run()
    assert job.state == State.INACTIVE
    with pytest.raises(AssertionError, match="it is not offered to the scheduler"):
        job.grant()
