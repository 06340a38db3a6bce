"""The plugin host: chains of handlers, and plugins that fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio.formats import FormatError
from flux_trio.jobtap import Handler, HookAnswer, JobView, Plugin, PluginContext, PluginHost
from flux_trio.jobtap.host import HOOK_DEADLINE_S
from flux_trio.protocols import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    AskHook,
    CancelHook,
    HookAnswered,
    JobState,
    PostEvent,
    TopicsChanged,
)
from tests.support.job_view import SeenJob

TOPIC = "job.state.priority"
JOB = SeenJob(state=JobState.PRIORITY)


class Told(Plugin):
    """Handles TOPIC with a function, and keeps its context."""

    def __init__(self, name: str, handler: Handler, topic: str = TOPIC) -> None:
        self.name = name
        self.context: PluginContext | None = None
        self._handlers = {topic: handler}

    def handlers(self) -> Mapping[str, Handler]:
        return self._handlers

    def loaded(self, context: PluginContext) -> None:
        self.context = context


def says(value: Any) -> Handler:
    """A handler that always gives the same answer."""
    return lambda _job: value


def after(seconds: float, value: Any) -> Handler:
    """An async one that takes its time."""

    async def handler(_job: JobView) -> Any:
        await trio.sleep(seconds)
        return value

    return handler


def asks(asked: list[str], name: str) -> Handler:
    """One that has nothing to say, and remembers that it was asked."""

    def handler(_job: JobView) -> None:
        asked.append(name)

    return handler


def fails(error: Exception) -> Handler:
    def handler(_job: JobView) -> HookAnswer:
        raise error

    return handler


class Host:
    """A host with the plugins `a`, `b`, … of these handlers, and what it told."""

    def __init__(self, nursery: trio.Nursery, *handlers: Handler) -> None:
        self.told: list[Any] = []
        self.notes: list[dict[str, Any]] = []
        self.host = PluginHost(nursery, self.told.append, self._note, trio.current_time)
        self.plugins = [
            Told(name, handler) for name, handler in zip("abcd", handlers, strict=False)
        ]
        self.host.load(self.plugins)

    def _note(self, kind: str, data: dict[str, Any]) -> None:
        assert kind == "hook"
        self.notes.append(data)

    def ask(self, ticket: int = 1) -> None:
        self.host.ask(AskHook(ticket, TOPIC, JOB))

    @property
    def answers(self) -> list[HookAnswered]:
        return [each for each in self.told if isinstance(each, HookAnswered)]

    def answer(self) -> HookAnswer:
        """The one answer there is."""
        (answered,) = self.answers
        return answered.answer


MakeHost = Callable[..., Host]


@pytest.fixture
def host(nursery: trio.Nursery) -> MakeHost:
    return lambda *handlers: Host(nursery, *handlers)


# --- loading


async def test_load_tells_the_topics_that_are_handled(host: MakeHost) -> None:
    made = host(says(None))
    made.host.load([Told("other", says(None), "job.validate")])
    assert made.told == [
        TopicsChanged(frozenset({TOPIC})),
        TopicsChanged(frozenset({TOPIC, "job.validate"})),
    ]


async def test_plugins_are_asked_in_the_order_they_were_loaded(host: MakeHost) -> None:
    asked: list[str] = []
    made = host(asks(asked, "first"), asks(asked, "second"))
    made.host.load([Told("late", asks(asked, "third"))])
    made.ask()
    assert asked == ["first", "second", "third"]
    assert made.answer() == HookAnswer()


async def test_only_those_that_handle_the_topic_are_asked(host: MakeHost) -> None:
    asked: list[str] = []
    made = host(asks(asked, "a"))
    made.host.load([Told("other", asks(asked, "other"), "job.validate")])
    made.host.ask(AskHook(1, "job.validate", JOB))
    assert asked == ["other"]


async def test_topic_that_nobody_handles_is_answered_empty(host: MakeHost) -> None:
    made = host()
    made.ask(ticket=5)
    assert made.answers == [HookAnswered(5, HookAnswer())]


async def test_handler_gets_the_job(host: MakeHost) -> None:
    seen: list[JobView] = []
    made = host(lambda job: seen.append(job))
    made.ask()
    assert seen == [JOB]


# --- what a chain says together


async def test_later_value_overwrites_an_earlier_one(host: MakeHost) -> None:
    made = host(says(HookAnswer(priority=1)), says(HookAnswer(priority=2)))
    made.ask()
    assert made.answer().priority == 2


async def test_one_that_has_nothing_to_say_leaves_the_earlier_value(host: MakeHost) -> None:
    made = host(says(HookAnswer(priority=1)), says(None), says(HookAnswer()))
    made.ask()
    assert made.answer() == HookAnswer(priority=1)


async def test_posts_of_all_are_kept_in_order(host: MakeHost) -> None:
    first, second, third = (("memo", {"n": n}) for n in range(3))
    made = host(says(HookAnswer(posts=(first, second))), says(HookAnswer(posts=(third,))))
    made.ask()
    assert made.answer().posts == (first, second, third)


async def test_rejection_stops_the_chain(host: MakeHost) -> None:
    asked: list[str] = []
    made = host(says(HookAnswer(reject="too big")), asks(asked, "b"))
    made.ask()
    assert (made.answer().reject, asked) == ("too big", [])


@pytest.mark.parametrize("priority", [PRIORITY_MIN, PRIORITY_MAX])
async def test_priority_may_be_the_least_and_the_greatest(host: MakeHost, priority: int) -> None:
    made = host(says(HookAnswer(priority=priority)))
    made.ask()
    assert made.answer().priority == priority


# --- plugins that fail

RANGE = "expected a priority from 0 to 4294967295, got "


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "expected a HookAnswer or None, got 42"),
        ("x" * 1000, "expected a HookAnswer or None, got 'xxxxxxxxxxxx...xxxxxxxxxxxxx'"),
        (HookAnswer(priority=-1), RANGE + "-1"),
        (HookAnswer(priority=PRIORITY_MAX + 1), RANGE + "4294967296"),
        (HookAnswer(priority="high"), RANGE + "'high'"),  # type: ignore[arg-type]  # wrong on purpose
        (HookAnswer(priority=True), RANGE + "True"),
        (HookAnswer(priority=1.5), RANGE + "1.5"),  # type: ignore[arg-type]  # wrong on purpose
        (HookAnswer(reject=3), "expected the reason of a rejection, got 3"),  # type: ignore[arg-type]  # wrong on purpose
        (HookAnswer(error="no data yet"), "no data yet"),
        (
            HookAnswer(posts=("memo",)),  # type: ignore[arg-type]  # wrong on purpose
            "posts[0]: expected array, got str",
        ),
        (
            HookAnswer(posts=(("memo", None),)),  # type: ignore[arg-type]  # wrong on purpose
            "posts[0][1]: expected object, got null",
        ),
        (
            HookAnswer(posts=(("memo", {}), ("urgency", {"urgency": 32, "userid": 1}))),
            "urgency.urgency: expected int <= 31, got a value out of range",
        ),
        (
            HookAnswer(posts=(("free", {"x": 1}),)),
            "free: expected only the keys of the format, got the key x",
        ),
        (
            HookAnswer(posts=(("memo", {"x": object()}),)),
            "memo: expected values that JSON has, "
            "got Encoding objects of type object is unsupported",
        ),
    ],
)
async def test_wrong_answer_stops_the_chain_and_names_plugin_hook_and_value(
    host: MakeHost, kind: str, value: Any, text: str
) -> None:
    asked: list[str] = []
    handler = says(value) if kind == "sync" else after(0, value)
    made = host(says(HookAnswer(priority=5)), handler, asks(asked, "c"))
    made.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert made.answer() == HookAnswer(error=f"plugin b failed in job.state.priority: {text}")
    assert asked == []


async def test_handler_that_raises_is_named_and_others_are_asked_next_time(
    host: MakeHost,
) -> None:
    errors = [ZeroDivisionError("division by zero")]

    def once(_job: JobView) -> HookAnswer:
        if errors:
            raise errors.pop()
        return HookAnswer(priority=3)

    made = host(once)
    made.ask(1)
    made.ask(2)
    blame = "plugin a failed in job.state.priority: ZeroDivisionError: division by zero"
    assert made.answers == [
        HookAnswered(1, HookAnswer(error=blame)),
        HookAnswered(2, HookAnswer(priority=3)),
    ]


async def test_async_handler_that_raises_is_named(host: MakeHost) -> None:
    async def handler(_job: JobView) -> HookAnswer:
        await trio.lowlevel.checkpoint()
        raise KeyError("bank")

    asked: list[str] = []
    made = host(handler, asks(asked, "b"))
    made.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert made.answer().error == "plugin a failed in job.state.priority: KeyError: 'bank'"
    assert asked == []


# --- async handlers


async def test_async_handler_holds_its_own_question_and_no_other(
    host: MakeHost, autojump_clock: MockClock
) -> None:
    async def handler(job: JobView) -> HookAnswer:
        await trio.sleep(job.id)
        return HookAnswer(priority=job.id)

    made = host(handler)
    made.host.ask(AskHook(1, TOPIC, replace(JOB, id=5)))
    made.host.ask(AskHook(2, TOPIC, replace(JOB, id=1)))
    assert made.answers == []
    await trio.sleep(10)
    assert [(each.ticket, each.answer.priority) for each in made.answers] == [(2, 1), (1, 5)]


async def test_rest_of_the_chain_goes_on_after_an_async_handler(
    host: MakeHost, autojump_clock: MockClock
) -> None:
    asked: list[str] = []
    made = host(
        says(HookAnswer(priority=1, posts=(("memo", {"n": 0}),))),
        after(2, HookAnswer(priority=2)),
        asks(asked, "c"),
        after(3, HookAnswer(posts=(("memo", {"n": 1}),))),
    )
    made.ask()
    assert (asked, made.answers) == ([], [])
    await trio.sleep(2.5)
    assert asked == ["c"]
    await trio.sleep(3)
    assert made.answer() == HookAnswer(priority=2, posts=(("memo", {"n": 0}), ("memo", {"n": 1})))
    assert [note["duration"] for note in made.notes] == [0, 2, 0, 3]


async def test_async_rejection_stops_the_chain(host: MakeHost) -> None:
    asked: list[str] = []
    made = host(after(0, HookAnswer(reject="no")), asks(asked, "b"))
    made.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert (made.answer().reject, asked) == ("no", [])


async def test_handler_that_takes_too_long_is_ended_and_named(
    host: MakeHost, autojump_clock: MockClock
) -> None:
    ended: list[float] = []

    async def handler(_job: JobView) -> HookAnswer:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())
        return HookAnswer()

    made = host(handler)
    began = trio.current_time()
    made.ask()
    await trio.sleep(HOOK_DEADLINE_S + 1)
    assert ended == [began + HOOK_DEADLINE_S]
    assert made.answer().error == "plugin a failed in job.state.priority: no answer in 60 s"


async def test_deadline_of_the_handlers_own_is_its_own_error(
    host: MakeHost, autojump_clock: MockClock
) -> None:
    async def handler(_job: JobView) -> HookAnswer:
        with trio.fail_after(1):
            await trio.sleep_forever()
        return HookAnswer()

    made = host(handler)
    made.ask()
    await trio.sleep(2)
    assert made.answer().error == "plugin a failed in job.state.priority: TooSlowError: "


async def test_abandoned_question_ends_its_handler_and_is_not_answered(
    host: MakeHost, autojump_clock: MockClock
) -> None:
    ended: list[str] = []
    asked: list[str] = []

    async def handler(_job: JobView) -> HookAnswer:
        try:
            await trio.sleep(5)
        finally:
            ended.append("ended")
        return HookAnswer()

    made = host(handler, asks(asked, "b"))
    made.ask(1)
    made.ask(2)
    await trio.sleep(1)
    made.host.cancel(CancelHook(1))
    await trio.sleep(10)
    assert [each.ticket for each in made.answers] == [2]
    assert (ended, asked) == (["ended", "ended"], ["b"])
    assert [note["error"] for note in made.notes] == ["canceled", None, None]


async def test_question_may_be_abandoned_before_its_task_has_begun(
    host: MakeHost, autojump_clock: MockClock
) -> None:
    made = host(after(5, HookAnswer(priority=1)))
    began = trio.current_time()
    made.ask()
    made.host.cancel(CancelHook(1))
    await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == began
    await trio.sleep(10)
    assert made.answers == []


async def test_handler_that_will_not_be_abandoned_is_not_heard(
    host: MakeHost, autojump_clock: MockClock
) -> None:
    asked: list[str] = []

    async def stubborn(_job: JobView) -> HookAnswer:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return HookAnswer(priority=1)

    made = host(stubborn, asks(asked, "b"))
    made.ask()
    await trio.sleep(1)
    made.host.cancel(CancelHook(1))
    await trio.sleep(10)
    assert (made.answers, asked) == ([], [])


async def test_abandoning_what_has_been_answered_does_nothing(host: MakeHost) -> None:
    made = host(after(0, HookAnswer(priority=1)))
    made.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert made.host._thinking == {}, "nothing is kept of it"
    made.host.cancel(CancelHook(1))
    assert made.answer().priority == 1


async def test_end_of_the_nursery_cancels_handlers(autojump_clock: MockClock) -> None:
    with trio.move_on_after(5) as scope:
        async with trio.open_nursery() as nursery:
            made = Host(nursery, after(1000, HookAnswer()))
            made.ask()
    assert scope.cancelled_caught
    assert made.answers == []


async def test_any_awaitable_is_waited_for(host: MakeHost) -> None:
    class Later:
        def __await__(self) -> Any:
            return after(0, HookAnswer(priority=9))(JOB).__await__()

    later: Awaitable[HookAnswer] = Later()
    made = host(says(later))
    made.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert made.answer().priority == 9


# --- the trace, and posts outside a hook


async def test_each_call_is_a_record_of_the_trace(host: MakeHost) -> None:
    made = host(
        says(HookAnswer(priority=3, posts=(("memo", {}),))),
        says(None),
        says(HookAnswer(priority=-3)),
    )
    made.ask()
    blank = {"hook": TOPIC, "id": 7, "error": None, "duration": pytest.approx(0, abs=0.1)}
    assert made.notes == [
        blank | {"plugin": "a", "result": {"priority": 3, "posts": ["memo"]}},
        blank | {"plugin": "b", "result": None},
        blank | {"plugin": "c", "result": None, "error": RANGE + "-3"},
    ]


async def test_plugin_posts_events_outside_a_hook(host: MakeHost) -> None:
    made = host(says(None))
    context = made.plugins[0].context
    assert context is not None
    context.post(7, "prolog-finish", {"description": "mount", "status": 0})
    assert made.told[-1] == PostEvent(
        7, "prolog-finish", {"description": "mount", "status": 0}, "a"
    )
    with pytest.raises(FormatError, match="prolog-finish: expected the key status, got nothing"):
        context.post(7, "prolog-finish", {"description": "mount"})
    assert len(made.told) == 2
