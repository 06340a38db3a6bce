"""Codecs of both editions: what is written is read again, and has the keys of the RFC's text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.editions import CLASSIC, CURRENT, EDITIONS, Codec, Edition, rfc27, rfc28, rfc32
from flux_trio.editions.rfc28 import Change, Expires, Grown, Offline, Online, Shrunk
from flux_trio.formats import FormatError, Idset, ResourceSet
from flux_trio.messages import FluxError, Request

R = ResourceSet.build([(rank, 1, 0) for rank in range(3)], lambda rank: f"n{rank}")
PLAIN: dict[str, Any] = R.to_json()
UP, DOWN = Idset.parse("0-1"), Idset.parse("2")


def both(payload: Any) -> tuple[Any, Any]:
    """The payload is the same in both editions."""
    return payload, payload


# By field of Edition: a value, its payload in the classic and in the current edition.
WRITTEN: list[tuple[str, Any, Any, Any]] = [
    ("sched_hello", rfc27.Hello(), None, {"partial-ok": False}),
    (
        "held_job",
        rfc27.HeldJob(1, 16, 1000, 5.0),
        *both({"id": 1, "priority": 16, "userid": 1000, "t_submit": 5.0}),
    ),
    ("sched_ready", rfc27.Ready("unlimited"), *both({"mode": "unlimited"})),
    ("sched_ready", rfc27.Ready("limited", 8), *both({"mode": "limited", "limit": 8})),
    ("waiting", rfc27.Waiting(4), *both({"count": 4})),
    (
        "alloc",
        rfc27.Alloc(1, 16, 1000, {"version": 1}, 5.0),
        *both(
            {"id": 1, "priority": 16, "userid": 1000, "jobspec": {"version": 1}, "t_submit": 5.0}
        ),
    ),
    (
        "alloc_answer",
        rfc27.AllocAnswer(1, rfc27.AllocType.ANNOTATE, annotations={"user": {"x": 1}}),
        *both({"id": 1, "type": 1, "annotations": {"user": {"x": 1}}}),
    ),
    (
        "alloc_answer",
        rfc27.AllocAnswer(1, rfc27.AllocType.DENY, note="no"),
        *both({"id": 1, "type": 2, "note": "no"}),
    ),
    ("cancel", rfc27.Cancel(1), *both({"id": 1})),
    ("prioritize", rfc27.Prioritize([(1, 31)]), *both({"jobs": [[1, 31]]})),
    ("expiration", rfc27.Expiration(1, 99), *both({"id": 1, "expiration": 99})),
    ("free", rfc27.Free(1, R), {"id": 1}, {"id": 1, "R": PLAIN, "final": True}),
    ("acquire", rfc28.Acquire("default"), {"group": "default"}, None),
    (
        "changes",
        [Grown(R, UP, DOWN)],
        {"type": "grow", "resources": PLAIN, "online": "0-1", "offline": "2"},
        {"resources": PLAIN, "up": "0-1"},
    ),
    ("changes", [Online(UP)], {"type": "online", "targets": "0-1"}, {"up": "0-1"}),
    ("changes", [Offline(UP)], {"type": "offline", "targets": "0-1"}, {"down": "0-1"}),
    (
        "changes",
        [Shrunk(UP)],
        {"type": "shrink", "targets": "0-1"},
        {"shrink": "0-1", "down": "0-1"},
    ),
    ("exec_hello", rfc32.Hello("job-exec"), *both({"service": "job-exec"})),
    (
        "start",
        rfc32.Start(1, 1000, {"version": 1}, reattach=False, R=R),
        {"id": 1, "userid": 1000, "jobspec": {"version": 1}, "reattach": False},
        {"id": 1, "userid": 1000, "jobspec": {"version": 1}, "reattach": False, "R": PLAIN},
    ),
    (
        "start_answer",
        rfc32.StartAnswer(1, rfc32.Started()),
        *both({"id": 1, "type": "start", "data": {}}),
    ),
    (
        "start_answer",
        rfc32.StartAnswer(1, rfc32.Released("0-2", final=True)),
        *both({"id": 1, "type": "release", "data": {"ranks": "0-2", "final": True}}),
    ),
    (
        "start_answer",
        rfc32.StartAnswer(1, rfc32.RaisedException(0, "exec", "lost")),
        *both(
            {"id": 1, "type": "exception", "data": {"severity": 0, "type": "exec", "note": "lost"}}
        ),
    ),
    (
        "start_answer",
        rfc32.StartAnswer(1, rfc32.Finished(256)),
        *both({"id": 1, "type": "finish", "data": {"status": 256}}),
    ),
]
EACH = pytest.mark.parametrize("edition", [CLASSIC, CURRENT], ids=lambda each: each.name)


@pytest.mark.parametrize(("field", "value", "classic", "current"), WRITTEN)
def test_payload_has_the_keys_of_each_edition(
    field: str, value: Any, classic: Any, current: Any
) -> None:
    assert getattr(CLASSIC, field).write(value) == classic
    assert getattr(CURRENT, field).write(value) == current


@EACH
@pytest.mark.parametrize(("field", "value"), [each[:2] for each in WRITTEN])
def test_what_is_written_is_read_again(edition: Edition, field: str, value: Any) -> None:
    """A key that the edition does not have is not read again, as R in the classic one."""
    codec: Codec[Any] = getattr(edition, field)
    payload = codec.write(value)
    read = codec.read(Request("x.y", payload))
    assert codec.write(read) == payload
    assert read == value or edition is CLASSIC


def test_editions_are_found_by_their_own_name_and_are_values_that_nobody_changes() -> None:
    assert {name: edition.name for name, edition in EDITIONS.items()} == {
        "classic": "classic",
        "current": "current",
    }
    with pytest.raises(AttributeError, match="immutable"):
        CLASSIC.hello_needs_no_start_outstanding = False  # type: ignore[misc]  # that is the point


def test_every_codec_of_an_edition_is_tested_here() -> None:
    codecs = {
        field.name
        for field in msgspec.structs.fields(Edition)
        if isinstance(getattr(CLASSIC, field.name), Codec)
    }
    assert codecs == {each[0] for each in WRITTEN} | {"release", "free_answer"}


def test_what_the_classic_edition_alone_acknowledges() -> None:
    """RFC 27, Free; RFC 28, Release Request."""
    assert CLASSIC.free_answer is not None
    assert CLASSIC.free_answer.write(rfc27.FreeAnswer(1)) == {"id": 1}
    assert CLASSIC.release is not None
    release = rfc28.Release("default", UP)
    payload = {"group": "default", "targets": "0-1"}
    assert CLASSIC.release.write(release) == payload
    assert CLASSIC.release.read(Request("x.y", payload)) == release
    assert CURRENT.free_answer is None
    assert CURRENT.release is None


def test_annotations_of_each_edition() -> None:
    """RFC 27, Alloc Annotate: null removes, and what is not mentioned stays."""
    sched = rfc27.SchedAnnotations(
        reason_pending=None, t_estimate=5.0, queue="batch", selection_type="reserved"
    )
    told = {"reason_pending": None, "t_estimate": 5.0}
    assert CLASSIC.annotations(sched) == {"sched": {**told, "queue": "batch"}}
    assert CURRENT.annotations(sched) == {"sched": {**told, "selection_type": "reserved"}}
    assert CLASSIC.annotations(rfc27.SchedAnnotations()) == {"sched": {}}


def test_the_end_of_the_instance_is_a_grow_or_a_key() -> None:
    ends = Expires(99.0, Grown(R, UP, DOWN))
    assert CLASSIC.changes.write([ends]) == CLASSIC.changes.write([Grown(R, UP, DOWN)])
    assert CURRENT.changes.write([ends]) == {"expiration": 99.0}
    assert read(CURRENT, {"expiration": 99.0}) == [Expires(99.0)]


def test_current_response_tells_of_several_changes() -> None:
    """RFC 28: shrink wins over down."""
    assert read(CURRENT, {"up": "5", "down": "0-3", "shrink": "0-1"}) == [
        Online(Idset.parse("5")),
        Shrunk(Idset.parse("0-1")),
        Offline(Idset.parse("2-3")),
    ]
    changes: list[Change] = [Online(UP), Offline(DOWN)]
    assert CURRENT.changes.write(changes) == {"up": "0-1", "down": "2"}
    assert read(CURRENT, {}) == []


def read(edition: Edition, payload: dict[str, Any]) -> list[Change]:
    return list(edition.changes.read(Request("resource.acquire", payload)))


def test_reattached_is_an_answer_of_the_current_edition() -> None:
    payload = {"id": 1, "type": "reattached", "data": {}}
    answer = rfc32.StartAnswer(1, rfc32.Reattached())
    assert CURRENT.start_answer.write(answer) == payload
    assert CURRENT.start_answer.read(Request("exec.start", payload)) == answer
    with pytest.raises(FluxError, match="got one of edition current"):
        CLASSIC.start_answer.read(Request("exec.start", payload))


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"type": "grow", "resources": PLAIN, "online": "0"}, "missing required field `offline`"),
        ({"type": "shrink", "targets": "x"}, "targets: "),
        ({"type": "online", "targets": 1}, r"Expected `str`, got `int` - at `\$.targets`"),
        ({"type": "gone", "targets": "1"}, r"Invalid value 'gone' - at `\$.type`"),
        ({}, "missing required field `type`"),
    ],
)
def test_classic_change_that_cannot_be_read(payload: dict[str, Any], error: str) -> None:
    with pytest.raises((FluxError, FormatError), match=error):
        read(CLASSIC, payload)


def test_error_names_the_part_of_a_start_response() -> None:
    payload = {"id": 1, "type": "finish", "data": {"status": "x"}}
    text = r"exec.start: finish: data: Expected `int`, got `str` - at `\$.status`"
    with pytest.raises(FluxError, match=text):
        CLASSIC.start_answer.read(Request("exec.start", payload))
