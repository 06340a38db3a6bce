"""A recorded instance is replayed: its cores do the same again, or the difference is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec
import pytest

from flux_trio._version import __version__
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import StoreOps
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.turns import Exit, Note, NoteAll, SetTimer
from flux_trio.lab.world.recorded import Unreplayable, _traced
from flux_trio.messages import USERID_UNKNOWN, Event, Response
from flux_trio.testing import InstanceHarness
from flux_trio.trace import read_trace
from flux_trio.trace.secrets import lines_without_secrets
from tests.support.recording_much import edited, everything
from tests.support.replayed import Kept, recording, replayed


@pytest.fixture(autouse=True, scope="module")
def _is_recorded() -> None:
    """Before a test changes a core: whichever comes first in this process has it recorded."""
    everything()


def test_cores_do_the_same_again_after_crash_reload_and_late_answers() -> None:
    difference, instance = replayed(everything())
    assert difference is None, str(difference)
    assert instance.nturns == sum('"kind":"turn"' in line for line in everything())
    assert instance.nturns > 100
    assert instance.unrecorded == []
    assert instance.cores == {}  # every module was removed


def test_replay_needs_no_environment_of_a_guests_job() -> None:
    kept: list[Kept] = []
    environment = {"system.environment": {"HOME": "/home/guest", "SECRET": "x" * 1000}}
    with recording(kept), InstanceHarness(breaking=None) as instance:
        instance.wait(instance.submit(userid=2000, attributes=environment), "clean")
    whole = "".join(kept[0].lines()).encode()
    lines = lines_without_secrets(whole, environments=False).decode().splitlines(keepends=True)
    assert len("".join(lines)) < len(whole) - 2000
    difference, _ = replayed(lines)
    assert difference is None, str(difference)


def test_turns_are_left_out_for_other_readers() -> None:
    records = list(read_trace(everything()).records)
    assert "turn" not in {record.kind for record in records}
    first = records[0].n
    assert [record.n for record in records] == list(range(first, first + len(records)))


# --- a core that does something else


def altered(cls: Any, method: str, change: Callable[[list[Any]], list[Any]]) -> Any:
    """`method` of a core, which changes its actions."""
    original = getattr(cls, method)

    def act(self: Any, *args: Any) -> list[Any]:
        return change(original(self, *args))

    return act


def without_free(actions: list[Any]) -> list[Any]:
    return [each for each in actions if getattr(each, "topic", "") != "sched.free"]


def changing(type_: type, change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda actions: [change(each) if isinstance(each, type_) else each for each in actions]


def granting(change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """Other answers to sched.alloc."""
    return changing(Response, lambda each: change(each) if each.topic == "sched.alloc" else each)


def saying(remove: str | None, add: dict[str, Any]) -> Callable[[list[Any]], list[Any]]:
    """Other keys in the answers to sched.alloc."""
    return granting(
        lambda each: msgspec.structs.replace(
            each, payload={key: each.payload[key] for key in each.payload if key != remove} | add
        )
    )


later = changing(SetTimer, lambda each: msgspec.structs.replace(each, at=each.at + 1))
fewer_ops = changing(StoreOps, lambda each: StoreOps(each.ops[:-1]))
other_receiver = granting(lambda each: msgspec.structs.replace(each, routes=("nobody",)))
other_type = saying(None, {"type": 9})


def without_notes(actions: list[Any]) -> list[Any]:
    return [each for each in actions if not isinstance(each, NoteAll)]


def find(where: Callable[[dict[str, Any]], bool]) -> int:
    """The place of the first record of the trace."""
    records = map(msgspec.json.decode, everything())
    return next(record["n"] for record in records if where(record))


def sends(party: str, topic: str, type_: str) -> int:
    return find(
        lambda r: (
            (r["kind"], r["party"], r.get("type")) == ("send", party, type_)
            and r["message"]["topic"] == topic
        )
    )


CHANGES: dict[str, tuple[Any, Any, str, Callable[[], int], str]] = {
    "message that is not sent": (
        SchedCore,
        without_free,
        "sched",
        lambda: sends("sched", "sched.free", "response"),
        "expected response sched.free ",
    ),
    "field of a message": (
        SchedCore,
        other_type,
        "sched",
        lambda: sends("sched", "sched.alloc", "response"),
        "sched differs at response sched.alloc.payload.type, record ",
    ),
    "receiver of a message": (
        SchedCore,
        other_receiver,
        "sched",
        lambda: sends("sched", "sched.alloc", "response"),
        "sched differs at response sched.alloc.routes[0], record ",
    ),
    "event": (
        JobManagerCore,
        without_notes,
        "job-manager",
        lambda: find(lambda r: r["kind"] == "event"),
        "got request kvs.commit ",
    ),
    "timer": (
        ExecCore,
        later,
        "job-exec",
        lambda: find(
            lambda r: (
                (r["kind"], r["party"]) == ("turn", "job-exec")
                and any(each.startswith("SetTimer") for each in r["data"].get("actions", ()))
            )
        ),
        "job-exec differs at an action, record ",
    ),
    "what is stored": (
        KvsCore,
        fewer_ops,
        "kvs",
        lambda: find(
            lambda r: (
                r["kind"] == "turn"
                and any(each.startswith("StoreOps") for each in r["data"].get("actions", ()))
            )
        ),
        "kvs differs at an action, record ",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_a_core_is_found_where_it_shows_first(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls, change, party, place, text = CHANGES[name]
    expected = place()
    for method in ("turn", "go_on"):
        if hasattr(cls, method):
            monkeypatch.setattr(cls, method, altered(cls, method, change))
    difference, _ = replayed(everything())
    assert difference is not None
    assert (difference.party, difference.n) == (party, expected)
    assert text in str(difference)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (saying("type", {}), r"alloc\.payload\.type, record \d+: expected 0, got nothing"),
        (saying(None, {"more": 1}), r"payload\.more, record \d+: expected nothing, got 1"),
        (
            saying(None, {"type": "nothing"}),
            r"payload\.type, record \d+: expected 0, got \"nothing\"",
        ),
    ],
)
def test_key_that_is_absent_is_told_from_the_string_nothing(
    change: Callable[[list[Any]], list[Any]], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SchedCore, "turn", altered(SchedCore, "turn", change))
    difference, _ = replayed(everything())
    assert re.search(f"{text}$", str(difference))


def test_private_event_for_another_user_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    other_user = changing(
        Event,
        lambda each: (
            each
            if each.userid == USERID_UNKNOWN
            else msgspec.structs.replace(each, userid=each.userid + 1)
        ),
    )
    expected = sends("job-manager", "job-exception", "event")
    monkeypatch.setattr(JobManagerCore, "turn", altered(JobManagerCore, "turn", other_user))
    difference, _ = replayed(everything())
    assert difference is not None
    assert (difference.n, difference.place) == (expected, "event job-exception.userid")
    assert int(difference.got) == int(difference.expected) + 1


def test_message_that_was_not_sent_then_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(actions: list[Any]) -> list[Any]:
        frees = [each for each in actions if getattr(each, "topic", "") == "sched.free"]
        return [*actions, *frees]

    expected = sends("sched", "sched.free", "response")
    monkeypatch.setattr(SchedCore, "turn", altered(SchedCore, "turn", twice))
    difference, _ = replayed(everything())
    assert difference is not None
    assert difference.n >= expected
    assert difference.expected == "nothing"
    assert difference.got.startswith("response sched.free ")


def test_other_questions_to_plugins_are_found() -> None:
    def other(record: dict[str, Any]) -> bool:
        said = record.get("data", {}).get("said", ())
        if not any(isinstance(each, dict) and "priority" in each for each in said):
            return False
        record["data"]["asked"] += 1
        return True

    difference, _ = replayed(edited(everything(), other))
    assert difference is not None
    assert (difference.party, difference.place) == ("job-manager", "what it asks plugins")
    assert "job." in difference.got


def has_answers(record: dict[str, Any]) -> bool:
    """Whether plugins have answered in a turn, and said more than what they are interested in."""
    said = record.get("data", {}).get("said", ())
    return any(not (isinstance(each, dict) and "look" in each) for each in said)


def test_question_without_an_answer_is_a_difference_of_questions() -> None:
    def without_answers(record: dict[str, Any]) -> bool:
        if not has_answers(record):
            return False
        del record["data"]["said"]
        return True

    difference, _ = replayed(edited(everything(), without_answers))
    assert difference is not None
    assert (difference.party, difference.place) == ("job-manager", "what it asks plugins")
    assert difference.expected == "other questions"
    assert re.fullmatch(
        r"a question job\.[a-z.]+, to which the trace has no answer", difference.got
    )


def test_core_that_gets_past_its_error_to_a_question_differs_at_what_it_asks() -> None:
    expected = find(has_answers)

    def raised(record: dict[str, Any]) -> bool:
        if not has_answers(record):
            return False
        del record["data"]["said"], record["data"]["asked"]
        record["data"].pop("actions", None)
        record["data"]["raised"] = "ZeroDivisionError: a bug"
        return True

    difference, _ = replayed(edited(everything(), raised))
    assert difference is not None
    assert re.fullmatch(
        rf"job-manager differs at what it asks plugins, record {expected}: expected "
        r"ZeroDivisionError: a bug, got a question job\.[a-z.]+, to which the trace has no answer",
        str(difference),
    )


def test_answer_of_another_version_is_refused_with_the_version() -> None:
    def other(record: dict[str, Any]) -> bool:
        if not has_answers(record):
            return False
        record["data"]["said"] = [["object", 0, "flux_trio.protocols:Old", "attributes", {}]]
        return True

    by = re.escape(f"written by flux-trio {__version__} (this is {__version__})")
    match = rf"turn of job-manager after record \d+, {by}: .*flux_trio\.protocols:Old"
    with pytest.raises(Unreplayable, match=match):
        replayed(edited(everything(), other))


def test_core_that_raised_raises_again_and_mended_it_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(actions: list[Any]) -> list[Any]:
        if any(getattr(each, "topic", "") == "sched.alloc" for each in actions):
            raise ZeroDivisionError("a bug")
        return actions

    kept: list[Kept] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SchedCore, "turn", altered(SchedCore, "turn", fail))
        with recording(kept), InstanceHarness(breaking=None) as instance:
            instance.submit(run_s=5.0)
            instance.advance(1.0)
        lines = kept[0].lines()
        difference, replay = replayed(lines)
        assert difference is None, str(difference)
    (raised,) = replay.raised
    line = fail.__code__.co_firstlineno + 2
    assert str(raised) == (
        f"sched raised as recorded, record {raised.n}: ZeroDivisionError: a bug ({__file__}:{line})"
    )
    difference, replay = replayed(lines)
    assert difference is not None
    assert (difference.party, difference.place) == ("sched", "what it raises")
    assert (difference.expected, difference.got) == ("ZeroDivisionError: a bug", "nothing")
    assert difference.n == raised.n
    assert replay.raised == []


def test_core_that_raises_something_else_differs_with_the_place_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flux_trio.cores.sched.core.AllocAnswer", None)
    difference, replay = replayed(everything())
    assert difference is not None
    assert (difference.place, difference.expected) == ("what it raises", "nothing")
    text = r"TypeError: 'NoneType' object is not callable \(flux_trio/cores/[\w/]+\.py:\d+\)"
    assert re.fullmatch(text, difference.got)
    assert replay.raised == []


def test_action_that_is_missing_at_the_end_of_a_module_is_found() -> None:
    records = [msgspec.json.decode(line) for line in everything()]
    ends = {
        record["data"]["module"]: at
        for at, record in enumerate(records)
        if record["kind"] == "module" and record["data"]["what"] == "removed"
    }
    for party, end in ends.items():
        own = [at for at in range(end) if records[at]["party"] == party]
        last = [at for at in own if records[at]["kind"] in ("send", "turn")]
        acts = [at for at in last if not is_farewell(records[at])]
        if acts and records[acts[-1]]["kind"] == "send":
            lines = list(everything())
            lines[acts[-1]] = ""
            difference, _ = replayed(with_messages(lines, records[acts[-1]]))
            assert difference is not None
            assert (difference.party, difference.expected) == (party, "nothing")
            return
    raise AssertionError("no module sends anything in its last turn")


def is_farewell(record: dict[str, Any]) -> bool:
    return record["kind"] == "send" and record["message"]["topic"].endswith(".disconnect")


def with_messages(lines: list[str], sent: dict[str, Any]) -> Iterator[str]:
    """The lines; receipts of the record that is left out have its message."""
    for line in lines:
        record = msgspec.json.decode(line) if line else {}
        if record.get("kind") == "recv" and record["ref"] == sent["n"]:
            record |= {"message": sent["message"], "type": sent["type"]}
            line = msgspec.json.encode(record).decode() + "\n"
        yield line


def with_shared_lines(lines: Iterable[str]) -> Iterator[str]:
    """The lines as an instance writes them that has no other sink: receipts share a line."""
    records = map(msgspec.json.decode, lines)
    for shared, some in groupby(records, lambda each: (each["party"], each["t"], is_receipt(each))):
        these = list(some)
        if shared[-1] and len(these) > 1:
            these = [these[0] | {"ref": 0, "refs": [each["ref"] for each in these]}]
        yield from (msgspec.json.encode(each).decode() + "\n" for each in these)


def is_receipt(record: dict[str, Any]) -> bool:
    return record["kind"] == "recv" and "message" not in record and "peer" not in record


def test_trace_in_which_receipts_share_lines_is_replayed_as_without() -> None:
    shared = list(with_shared_lines(everything()))
    assert any('"refs"' in line for line in shared)
    assert len(shared) < len(everything())
    assert list(read_trace(shared).records) == list(read_trace(everything()).records)
    difference, instance = replayed(shared)
    assert difference is None, str(difference)
    assert instance.nturns > 100


def test_nothing_follows_the_exit_of_a_core() -> None:
    actions = [Note("state", {"a": (1,)}), Exit("no more"), Note("state", {})]
    assert list(_traced(actions)) == [("state", {"a": [1]})]


def test_messages_are_not_written_a_third_time() -> None:
    inputs = [
        each
        for line in everything()
        if '"kind":"turn"' in line
        for each in msgspec.json.decode(line)["data"].get("inputs", ())
    ]
    assert sum(isinstance(each, int) for each in inputs) > 50
    assert not [each for each in inputs if isinstance(each, list) and each[0] == "message"]
