"""Turns as data: what a core was given comes back, and what plugins said is said again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.config import SchedConfig
from flux_trio.cores.exec.calls import TimerKey, TimerKind
from flux_trio.cores.job_list.core import JobListCore
from flux_trio.cores.kvs.ops import Fetched, Put, Stored, StoreOps
from flux_trio.cores.plain import Reader, Writer
from flux_trio.cores.recorded_plugins import RecordedPlugins, RepeatedPlugins, Unanswered, checksum
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.state import StateError
from flux_trio.cores.turn_records import (
    BYTES_MAX,
    made_core,
    read_inputs,
    written_actions,
    written_inputs,
    written_making,
)
from flux_trio.cores.turns import ClockStepped, Log, Note, SetTimer, TimerFired
from flux_trio.editions import CLASSIC
from flux_trio.messages import Event, Request, Response
from flux_trio.protocols import (
    UNAVAILABLE,
    AskHook,
    AskJobs,
    HookAnswer,
    HookAnswered,
    JobsAnswered,
    PluginInterests,
    PostEvent,
    Reprioritize,
)


def through_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_inputs_come_back_and_messages_by_the_place_of_their_send() -> None:
    sent = {12: Request("a.b", {"x": 1}), 15: Event("c")}
    inputs = [
        ClockStepped(2.5),
        sent[12],
        TimerFired(("end", 7)),
        sent[15],
        Stored(28, "full"),
        Fetched(["a", None], [["k"]]),
        HookAnswered(3, HookAnswer(operations=(Reprioritize("p"),), updates={"a": [1]})),
    ]
    written = through_json(written_inputs(inputs, {id(each): n for n, each in sent.items()}))
    assert [each for each in written if isinstance(each, int)] == [12, 15]
    assert read_inputs(written, sent.__getitem__) == inputs


TIMERS = [
    (TimerKey(TimerKind.END, 7), ["flux_trio.cores.exec.calls:TimerKey", [TimerKind.END.value, 7]]),
    (("end", 7), [["tuple", ["end", 7]]]),
    ("annotate", ["annotate"]),
]


@pytest.mark.parametrize(("key", "written"), TIMERS)
def test_timer_is_written_with_its_key(key: Any, written: list[Any]) -> None:
    (timer,) = through_json(written_inputs([TimerFired(key)], {}))
    assert timer == ["timer", *written]
    (fired,) = read_inputs([timer], {}.__getitem__)
    assert (type(fired.key), fired) == (type(key), TimerFired(key))


def test_key_of_a_timer_in_an_older_trace_is_read() -> None:
    key = TimerKey(TimerKind.STUCK, 7)
    written = through_json(["timer", Writer().write(key, "key")])
    assert read_inputs([written], {}.__getitem__) == [TimerFired(key)]


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("flux_trio.cores.exec.calls:TimerKey", ["no kind", 7]),
        ("flux_trio.cores.exec.calls:TimerKey", 7),
        ("flux_trio.cores.kvs.ops:Put", ["put", "key", "text"]),
        ("flux_trio.trace.routed:Routed", [1.0, "", [], {}]),
        ("flux_trio.cli.instance.foreground:os.system", ["true"]),
    ],
)
def test_key_of_a_timer_is_a_tuple_of_a_class_of_keys(name: str, items: Any) -> None:
    with pytest.raises(StateError):
        read_inputs([["timer", name, items]], {}.__getitem__)


def test_message_that_was_not_received_is_written_itself() -> None:
    response = Response("a.b", {"x": 1}, 0, 7, routes=("sched",))
    written = through_json(written_inputs([response], {}))
    assert read_inputs(written, {}.__getitem__) == [response]


def test_only_actions_without_records_are_written_and_long_ones_as_checksums() -> None:
    one, other = (StoreOps([Put("key", text * BYTES_MAX)]) for text in "ab")
    actions = [SetTimer("t", 1.5), Request("a.b"), Note("state", {}), Log(3, "x"), one]
    lines = written_actions(actions)
    assert lines[:2] == ['SetTimer {"key":"t","at":1.5}', 'Log {"level":3,"text":"x"}']
    assert lines[2].startswith("StoreOps of ")
    assert len(lines) == 3
    assert written_actions([other]) != written_actions([one]) == lines[2:]


@pytest.mark.parametrize(
    ("cls", "args", "kwargs"),
    [
        (JobListCore, (), {}),
        (SchedCore, (SchedConfig(policy="easy"),), {"edition": CLASSIC, "queues": {"q": "fifo"}}),
    ],
)
def test_core_is_made_again(cls: Any, args: Any, kwargs: Any) -> None:
    made = made_core(*through_json(written_making(cls, args, kwargs)).values())
    original = cls(*args, **kwargs)
    assert type(made) is cls
    assert made.dump() == original.dump()
    assert made.start(5.0) == original.start(5.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "flux_trio.cli.instance.foreground:os.system",
        "flux_trio.cli.instance.foreground:run",
        "flux_trio.formats:FormatError",
        "flux_trio.nowhere:Core",
        "flux_trio.cores.outbox:Outbox",
    ],
)
def test_core_of_a_trace_is_a_core_of_this_version(name: str) -> None:
    with pytest.raises(StateError):
        made_core(name, ["tuple", [["tuple", []], ["dict", 0, []]]])


SCHED = "flux_trio.cores.sched.core:SchedCore"


def making(args: Any, kwargs: Any) -> Any:
    """The arguments as a trace has them."""
    return through_json(Writer().write((args, kwargs), "arguments"))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (making((), {}), f"arguments of {SCHED}: missing a required argument: 'config'"),
        (
            making((SchedConfig(),), {"old": 1}),
            f"arguments of {SCHED}: got an unexpected keyword argument 'old'",
        ),
        (making((SchedConfig(),), {1: 2}), f"expected arguments of {SCHED}, got "),
        (making([1], {}), f"expected arguments of {SCHED}, got "),
        (["tuple", ["x" * 1000]], f"expected arguments of {SCHED}, got "),
        (7, f"expected arguments of {SCHED}, got 7"),
        (
            making((SchedConfig(),), {"edition": "2099"}),
            "expected an edition of this version, got '2099'",
        ),
        (
            making((SchedConfig(),), {"edition": [1]}),
            "expected an edition of this version, got [1]",
        ),
    ],
)
def test_arguments_that_the_constructor_does_not_take_are_named(written: Any, text: str) -> None:
    with pytest.raises(StateError) as caught:
        made_core(SCHED, written)
    assert str(caught.value).startswith(text)
    assert len(str(caught.value)) < 200


def test_what_a_constructor_raises_is_raised_as_it_is() -> None:
    with pytest.raises(AttributeError, match="'int' object has no attribute 'policy'"):
        made_core(SCHED, making((7,), {}))


@pytest.mark.parametrize(
    "data",
    [
        ["enum", "flux_trio.cli.instance.foreground:os.system", "true"],
        ["enum", "flux_trio.cores.turns:TimerFired", "true"],
        ["object", 0, "flux_trio.instance.running:Path", "attributes", {}],
        ["object", 0, "flux_trio.cores.state:CorePart", "attributes", {}],
    ],
)
def test_data_of_a_trace_calls_nothing(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def called(_command: str) -> int:
        raise AssertionError("called")

    monkeypatch.setattr(os, "system", called)
    with pytest.raises(StateError):
        Reader().read(data)


# --- plugins

ANSWERS: st.SearchStrategy[HookAnswer | None] = st.one_of(
    st.none(),
    st.just(HookAnswer()),
    st.builds(HookAnswer, st.integers(0, 2**32 - 1)),
    st.builds(HookAnswer, reject=st.text(max_size=3), updates=st.just({"a": 1.5})),
    st.builds(HookAnswer, operations=st.just((PostEvent(7, "memo", {"a": [1]}, "p"),))),
)
NEWS = st.one_of(
    st.none(), st.just(PluginInterests(("job.new", "job.*"))), st.just(PluginInterests(None, (1,)))
)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("news"), NEWS),
        st.tuples(st.just("ask"), ANSWERS),
        st.tuples(st.just("ask_jobs"), st.lists(ANSWERS, max_size=3)),
    ),
    max_size=8,
)


class Script:
    """Plugins that say what a list has."""

    def __init__(self, said: list[Any]) -> None:
        self.said = said

    def news(self) -> PluginInterests | None:
        found: PluginInterests | None = self.said.pop(0)
        return found

    def ask(self, _question: AskHook) -> HookAnswer | None:
        found: HookAnswer | None = self.said.pop(0)
        return found

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        return JobsAnswered(question.ticket, tuple(self.said.pop(0)))

    def cancel(self, _ticket: int) -> None: ...

    def notify(self, _topic: str, _job: Any, _args: Any = None) -> None: ...


def asked(plugins: Any, calls: list[tuple[str, Any]]) -> list[Any]:
    ask: dict[str, Callable[[Any], Any]] = {
        "news": lambda _said: plugins.news(),
        "ask": lambda _said: plugins.ask(AskHook(1, "job.new", None)),
        "ask_jobs": lambda said: plugins.ask_jobs(AskJobs(1, "job.priority.get", tuple(said))),
    }
    return [ask[name](said) for name, said in calls]


@given(CALLS, CALLS)
def test_what_plugins_said_in_a_turn_is_said_again(
    first: list[tuple[str, Any]], second: list[tuple[str, Any]]
) -> None:
    recorded = RecordedPlugins(Script([said for _, said in (*first, *second)]))
    repeated = RepeatedPlugins()
    for calls in (first, second):
        answers = asked(recorded, calls)
        turn = through_json(recorded.pop_answers())
        repeated.begin(turn.get("said", []))
        assert asked(repeated, calls) == answers
        assert checksum(repeated.asked) == turn.get("asked", checksum(()))


def test_priority_that_is_unavailable_is_said_again() -> None:
    recorded = RecordedPlugins(Script([HookAnswer(UNAVAILABLE)]))
    recorded.ask(AskHook(1, "job.priority.get", None))
    repeated = RepeatedPlugins()
    repeated.begin(through_json(recorded.pop_answers())["said"])
    answer = repeated.ask(AskHook(1, "job.priority.get", None))
    assert answer is not None
    assert type(answer.priority) is type(UNAVAILABLE)


def test_more_questions_than_were_asked_are_an_error() -> None:
    repeated = RepeatedPlugins()
    repeated.begin([1])
    assert repeated.ask(AskHook(1, "job.new", None)) == HookAnswer()
    with pytest.raises(Unanswered, match=r"no answer of plugins to job\.new is recorded"):
        repeated.ask(AskHook(2, "job.new", None))


@pytest.mark.parametrize("said", ["no", {"unknown": 1}, ["object", 0, "flux_trio.nowhere:Answer"]])
def test_answer_that_is_none_of_this_version_is_refused(said: Any) -> None:
    repeated = RepeatedPlugins()
    repeated.begin([said])
    with pytest.raises(StateError):
        repeated.ask(AskHook(1, "job.new", None))
