"""Questions: chains of handlers, what they say together, and handlers that fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio import jobtap
from flux_trio.jobtap import Plugin, Reject, UpdateAllowed
from flux_trio.protocols import DependencyAsked, HookAnswer, HookAnswered, JobState, PostEvent
from tests.support.job_view import SeenJob
from tests.support.plugin_host import JOB, PRIORITY, Rig, asked_to_set, chain, handling, rig

FAILED = "plugin b failed in job.state.priority for job ƒ8: "
Handler = Callable[..., Any]


def says(value: Any) -> Handler:
    return lambda job: value


def after(seconds: float, value: Any) -> Handler:
    async def handler(job: Any) -> Any:
        await trio.sleep(seconds)
        return value

    return handler


def asks(asked: list[str], name: str) -> Handler:
    return lambda job: asked.append(name)


def posts(*names: str) -> Handler:
    def handler(job: jobtap.Job) -> None:
        for name in names:
            job.post(name, {})

    return handler


def raises(error: BaseException) -> Handler:
    def handler(job: Any) -> None:
        raise error

    return handler


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


# --- chains


async def test_plugins_are_asked_in_the_order_they_were_loaded() -> None:
    asked: list[str] = []
    async with rig(*chain(PRIORITY, asks(asked, "first"), asks(asked, "second"))) as r:
        await r.host.load(handling(PRIORITY, asks(asked, "third"), "late"))
        assert r.answer() == HookAnswer()
        assert asked == ["first", "second", "third"]


async def test_only_those_that_handle_the_topic_are_asked() -> None:
    asked: list[str] = []
    other = handling("job.validate", asks(asked, "other"), "other")
    async with rig(*chain(PRIORITY, asks(asked, "a")), other) as r:
        r.ask("job.validate")
        assert asked == ["other"]
        assert r.interests.handled(PRIORITY)
        assert not r.interests.handled("job.state.run")


async def test_question_may_be_put_to_one_plugin_only() -> None:
    asked: list[str] = []
    async with rig(*chain(PRIORITY, asks(asked, "a"), asks(asked, "b"))) as r:
        r.ask(only="b")
        assert asked == ["b"]


async def test_glob_handles_what_it_matches_and_the_first_match_of_a_plugin_is_the_one() -> None:
    asked: list[str] = []

    class Several(Plugin):
        name = "several"

        @jobtap.on("job.state.run")
        def run(self, job: jobtap.Job) -> None:
            asked.append("run")

        @jobtap.on("job.state.*")
        def state(self, job: jobtap.Job) -> None:
            asked.append(job.topic)

        @jobtap.on("job.*")
        def others(self, job: jobtap.Job) -> None:
            asked.append("other")

    async with rig(Several()) as r:
        for topic in ("job.state.run", "job.state.sched", "job.validate", "job.new"):
            r.ask(topic)
    assert asked == ["run", "job.state.sched", "other", "other"]


async def test_glob_of_all_hooks_knows_no_scheme_of_dependencies() -> None:
    async with rig(
        handling("job.*", lambda job: None, "all"),
        handling("job.dependency.*", lambda job, dependency: None, "schemes"),
    ) as r:
        assert r.interests.handled("job.dependency.x")
        await r.host.remove("schemes")
        assert not r.interests.handled("job.dependency.x")


async def test_later_value_overwrites_an_earlier_one_and_none_does_not() -> None:
    async with rig(*chain(PRIORITY, says(1), says(2), says(None))) as r:
        assert r.answer() == HookAnswer(priority=2)


async def test_priority_may_be_unavailable() -> None:
    async with rig(*chain(PRIORITY, says(1), says(jobtap.UNAVAILABLE))) as r:
        assert r.answer().priority is jobtap.UNAVAILABLE


async def test_operations_of_all_are_kept_in_order() -> None:
    async with rig(*chain(PRIORITY, posts("x", "y"), posts("z"))) as r:
        assert r.answer().operations == (
            PostEvent(7, "x", {}, "a"),
            PostEvent(7, "y", {}, "a"),
            PostEvent(7, "z", {}, "b"),
        )


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_rejection_stops_the_chain(kind: str) -> None:
    asked: list[str] = []

    async def refuse(job: jobtap.Job) -> None:
        raise Reject("too big")

    handler = refuse if kind == "async" else raises(Reject("too big"))
    async with rig(*chain("job.validate", handler, asks(asked, "b"))) as r:
        answer = r.ask("job.validate")
        await settle()
        assert (answer or r.answers[0].answer).reject == "too big"
        assert (asked, r.logged) == ([], [])


async def test_update_that_is_allowed_says_with_what() -> None:
    def update(job: jobtap.Job, update: jobtap.UpdateAsked) -> UpdateAllowed:
        return UpdateAllowed(validated=True, updates={"attributes.x": update.value})

    topic = "job.update.attributes.system.duration"
    async with rig(handling("job.update.*", update)) as r:
        answer = r.answer(topic, args=asked_to_set("attributes.system.duration", 5))
    assert (answer.handled, answer.validated, answer.feasible) == (True, True, False)
    assert answer.updates == {"attributes.x": 5}


async def test_update_that_nobody_speaks_for_is_not_handled() -> None:
    async with rig(handling("job.*", lambda job: None)) as r:
        assert not r.answer("job.update.x", args=asked_to_set("x", 5)).handled


async def test_dependency_comes_parsed() -> None:
    seen: list[jobtap.Dependency] = []
    async with rig(
        handling("job.dependency.hold", lambda job, dependency: seen.append(dependency))
    ) as r:
        r.ask(
            "job.dependency.hold", args=DependencyAsked({"scheme": "hold", "value": "x", "for": 3})
        )
    assert seen == [jobtap.Dependency("hold", "x", {"for": 3})]


# --- plugins that fail


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "expected a priority from 0 to 4294967295 or UNAVAILABLE, got -1"),
        (1 << 32, "expected a priority from 0 to 4294967295 or UNAVAILABLE, got 4294967296"),
        (True, "expected a priority from 0 to 4294967295 or UNAVAILABLE, got True"),
        (1.5, "expected a priority from 0 to 4294967295 or UNAVAILABLE, got 1.5"),
        ("high", "expected a priority from 0 to 4294967295 or UNAVAILABLE, got 'high'"),
    ],
)
async def test_wrong_answer_stops_the_chain_and_names_plugin_hook_job_and_value(
    kind: str, value: Any, text: str
) -> None:
    asked: list[str] = []
    handler = says(value) if kind == "sync" else after(0, value)
    async with rig(*chain(PRIORITY, says(5), handler, asks(asked, "c"))) as r:
        answer = r.ask()
        await settle()
        answer = answer or r.answers[0].answer
        assert answer.error == FAILED + text
        assert asked == []
        assert [note["error"] for note in r.notes] == [None, text]


@pytest.mark.parametrize(
    ("topic", "args", "value", "expected"),
    [
        ("job.validate", None, 3, "expected None, got 3"),
        ("job.state.run", None, {}, "expected a priority from 0 to 4294967295 or UNAVAILABLE"),
        ("job.update.x", asked_to_set("x", 1), True, "expected UpdateAllowed, got True"),
    ],
)
async def test_each_hook_has_its_own_type_of_answer(
    topic: str, args: Any, value: Any, expected: str
) -> None:
    async with rig(handling(topic, lambda *_: value)) as r:
        assert expected in str(r.answer(topic, args=args).error)


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), SystemExit("now")])
async def test_handler_that_raises_is_named_and_asked_again_next_time(error: BaseException) -> None:
    errors = [error]

    def once(job: jobtap.Job) -> int:
        if errors:
            raise errors.pop()
        return 3

    async with rig(*chain(PRIORITY, says(None), once)) as r:
        text = FAILED + f"{type(error).__name__}: {error}"
        assert r.answer().error == text
        assert r.answer() == HookAnswer(priority=3)
        assert len(r.logged) == 1
        assert r.logged[0].startswith(text)
        assert "test_asking.py:" in r.logged[0]


async def test_rejection_where_nothing_can_be_rejected_is_a_failure() -> None:
    async with rig(*chain(PRIORITY, says(1), raises(Reject("no")))) as r:
        assert r.answer().error == FAILED + "Reject: no"


async def test_operations_of_a_handler_that_failed_are_not_done() -> None:
    def fails(job: jobtap.Job) -> None:
        job.post("lost", {})
        raise KeyError("bank")

    async with rig(*chain(PRIORITY, posts("kept"), fails)) as r:
        answer = r.answer()
        assert [each.name for each in answer.operations if isinstance(each, PostEvent)] == ["kept"]
        assert answer.error == FAILED + "KeyError: 'bank'"


# --- async handlers


async def test_async_handler_holds_its_own_question_and_no_other(autojump_clock: MockClock) -> None:
    async def handler(job: jobtap.Job) -> int:
        await trio.sleep(job.id)
        return job.id

    async with rig(handling(PRIORITY, handler)) as r:
        assert r.ask(job=replace(JOB, id=5), ticket=1) is None
        assert r.ask(job=replace(JOB, id=1), ticket=2) is None
        await trio.sleep(10)
        assert r.answers == [
            HookAnswered(2, HookAnswer(priority=1)),
            HookAnswered(1, HookAnswer(priority=5)),
        ]


async def test_rest_of_the_chain_goes_on_after_an_async_handler(autojump_clock: MockClock) -> None:
    asked: list[str] = []
    plugins = chain(PRIORITY, posts("x"), after(2, 2), asks(asked, "c"), after(3, None), posts("y"))
    async with rig(*plugins) as r:
        r.ask()
        assert (asked, r.answers) == ([], [])
        await trio.sleep(2.5)
        assert asked == ["c"]
        await trio.sleep(3)
        answer = r.answers[0].answer
        assert answer.priority == 2
        assert [each.plugin for each in answer.operations] == ["a", "e"]
        assert [note["duration"] for note in r.notes] == [0, 2, 0, 3, 0]


async def test_operations_of_an_async_handler_go_into_its_answer_also_on_other_jobs(
    autojump_clock: MockClock,
) -> None:
    other = SeenJob(id=9, state=JobState.DEPEND)

    class Both(Plugin):
        name = "both"

        @jobtap.on(PRIORITY)
        async def handle(self, job: jobtap.Job) -> None:
            await trio.sleep(1)
            found = self.jobs.get(9)
            assert found is not None
            found.post("other", {})
            job.post("own", {})

    async with rig(Both()) as r:
        r.jobs(JOB, other)
        r.ask()
        await trio.sleep(2)
        (answered,) = r.posted
        assert answered.answer.operations == (
            PostEvent(9, "other", {}, "both"),
            PostEvent(7, "own", {}, "both"),
        )


async def test_handler_that_takes_too_long_is_ended_and_named(autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def handler(job: jobtap.Job) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    slow = handling(PRIORITY, handler, "b", deadline=7.0)
    async with rig(slow) as r:
        began = trio.current_time()
        r.ask()
        await trio.sleep(100)
        assert ended == [began + 7]
        assert r.answers[0].answer.error == FAILED + "no answer in 7 s"


@pytest.mark.parametrize("begun", [True, False])
async def test_abandoned_question_ends_its_handler_and_is_not_answered(
    autojump_clock: MockClock, begun: bool
) -> None:
    asked: list[str] = []
    async with rig(*chain(PRIORITY, after(5, 1), asks(asked, "b"))) as r:
        r.ask(ticket=1)
        r.ask(ticket=2)
        if begun:
            await trio.sleep(1)
        r.host.cancel(1)
        r.host.cancel(1)
        r.host.cancel(77)
        await trio.sleep(10)
        assert [each.ticket for each in r.answers] == [2]
        assert asked == ["b"]
        assert [note["error"] for note in r.notes] == ["canceled", None, None]


async def test_question_goes_on_without_a_plugin_that_is_removed_while_it_thinks(
    autojump_clock: MockClock,
) -> None:
    plugins = chain(PRIORITY, says(1), after(50, 2), posts("x"))
    async with rig(*plugins) as r:
        r.ask()
        await trio.sleep(1)
        await r.host.remove("b")
        (answered,) = r.answers
        assert answered.answer == HookAnswer(priority=1, operations=(PostEvent(7, "x", {}, "c"),))


async def test_plugin_that_is_removed_while_another_thinks_is_not_asked_any_more(
    autojump_clock: MockClock,
) -> None:
    asked: list[str] = []
    async with rig(*chain(PRIORITY, after(5, 1), asks(asked, "b"), asks(asked, "c"))) as r:
        r.ask()
        await r.host.remove("b")
        await trio.sleep(6)
        assert asked == ["c"]
        assert r.answers[0].answer.priority == 1


# --- the trace


async def test_every_call_is_traced_with_what_came_of_it() -> None:
    async with rig(
        *chain("job.validate", says(None), raises(Reject("no")), says(None)),
        handling(PRIORITY, says(3), "p"),
    ) as r:
        r.ask("job.validate")
        r.ask()
        keys = ("plugin", "hook", "id", "result", "error")
        assert [tuple(note[key] for key in keys) for note in r.notes] == [
            ("a", "job.validate", 7, None, None),
            ("b", "job.validate", 7, {"reject": "no"}, None),
            ("p", "job.state.priority", 7, 3, None),
        ]


# --- what is told


def events_of(r: Rig, plugin: str) -> list[str]:
    return [note["hook"] for note in r.notes if note["plugin"] == plugin]


async def test_events_go_to_those_who_subscribed_to_the_job() -> None:
    class Follows(Plugin):
        @jobtap.on(PRIORITY)
        def follow(self, job: jobtap.Job) -> None:
            job.subscribe() if job.urgency else job.unsubscribe()

        @jobtap.on("job.event.*")
        def event(self, job: jobtap.Job, event: jobtap.Event) -> None:
            assert job.event == event
            job.post("seen", {"name": event.name})

    follows, other = Follows(), Follows()
    follows.name, other.name = "follows", "other"
    event = jobtap.Event(5.0, "memo", {})
    async with rig(follows, other) as r:
        assert 7 not in r.interests.subscribed
        r.ask(only="follows")
        assert 7 in r.interests.subscribed
        assert 8 not in r.interests.subscribed
        r.host.notify("job.event.memo", JOB, event)
        assert r.posted == [PostEvent(7, "seen", {"name": "memo"}, "follows")]
        assert events_of(r, "other") == []
        r.ask(job=replace(JOB, urgency=0), only="follows")
        assert 7 not in r.interests.subscribed


async def test_who_fails_at_an_event_does_not_keep_it_from_others() -> None:
    asked: list[str] = []
    async with rig(*chain("job.inactive-add", raises(KeyError("x")), asks(asked, "b"))) as r:
        r.host.notify("job.inactive-add", replace(JOB, state=JobState.INACTIVE))
        assert asked == ["b"]
        assert r.logged[0].startswith("plugin a failed in job.inactive-add for job ƒ8: KeyError")


async def test_subscription_and_data_end_with_the_job() -> None:
    class Keeps(Plugin):
        @jobtap.on(PRIORITY)
        def keep(self, job: jobtap.Job) -> None:
            job.subscribe()
            job.data["n"] = job.data.get("n", 0) + 1

        @jobtap.on("job.destroy")
        def last(self, job: jobtap.Job) -> None:
            assert job.data["n"] == 2

    async with rig(Keeps()) as r:
        r.ask()
        r.ask()
        r.jobs(over := replace(JOB, state=JobState.INACTIVE))
        r.host.notify("job.destroy", over)
        assert r.logged == []
        assert 7 not in r.interests.subscribed
        handle = jobtap.Job(over, None, r.host.find("keeps").job_host)
        assert handle.data == {}
        with pytest.raises(jobtap.NotAllowed, match="no more events"):
            handle.subscribe()


async def test_async_handler_of_an_event_is_waited_for_by_nobody(autojump_clock: MockClock) -> None:
    async def late(job: jobtap.Job) -> None:
        await trio.sleep(1)
        job.post("late", {})

    async with rig(handling("job.inactive-add", late)) as r:
        r.host.notify("job.inactive-add", JOB)
        assert r.posted == []
        await trio.sleep(2)
        assert r.posted == [PostEvent(7, "late", {}, "a")]
