"""The trace: order, sinks, and records as lines of JSON."""

from __future__ import annotations

import string
import weakref
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.formats import FormatError
from flux_trio.messages import Control, Event, Message, Request, Response
from flux_trio.messages.values import INT_MAX, INT_MIN
from flux_trio.trace import Kind, Record, Trace, record_from_json, record_to_json


def trace_at(t: float = 7.0) -> tuple[Trace, list[Record]]:
    trace, records = Trace(lambda: t), list[Record]()
    trace.add_sink(records.append)
    return trace, records


def test_each_record_has_the_next_place_in_the_order() -> None:
    trace, records = trace_at()
    request = Request("kvs.lookup", {"key": "a"}, 3)
    ref = trace.sent("client", "kvs", request)
    trace.received("kvs", "client", request, ref)
    trace.dropped("kvs", request, ref, "gone")
    trace.note(Kind.STATE, "kvs", {"keys": 3})
    assert records == [
        Record(1, 7.0, "send", "client", "kvs", 0, request),
        Record(2, 7.0, "recv", "kvs", "client", 1, request),
        Record(3, 7.0, "drop", "kvs", "", 1, request, {"reason": "gone"}),
        Record(4, 7.0, "state", "kvs", data={"keys": 3}),
    ]


def test_places_are_counted_whether_anybody_looks_or_not() -> None:
    trace = Trace(lambda: 1.0)
    assert trace.sent("a", "b", Event("e")) == 1
    trace.note("state", "a", {})
    records: list[Record] = []
    trace.add_sink(records.append)
    assert trace.sent("a", "b", Event("e")) == 3
    assert [record.n for record in records] == [3]


def test_every_sink_gets_every_record_until_it_is_removed() -> None:
    trace, first = trace_at()
    second: list[Record] = []
    sink = second.append
    trace.add_sink(sink)
    trace.note("state", "a", {})
    trace.remove_sink(sink)
    trace.note("state", "b", {})
    assert [record.party for record in first] == ["a", "b"]
    assert [record.party for record in second] == ["a"]


def test_sink_that_leaves_in_a_record_keeps_it_from_nobody() -> None:
    trace, last = Trace(lambda: 1.0), list[Record]()

    def leave(_: Record) -> None:
        trace.remove_sink(leave)

    trace.add_sink(leave)
    trace.add_sink(last.append)
    trace.note(Kind.STATE, "somebody", {})
    trace.note(Kind.STATE, "somebody", {})
    assert [record.n for record in last] == [1, 2]


def test_message_is_kept_by_nobody_without_a_sink() -> None:
    class Mark: ...

    trace, mark = Trace(lambda: 1.0), Mark()
    alive = weakref.ref(mark)
    request = Request("a.b", {"mark": mark})
    trace.received("b", "a", request, trace.sent("a", "b", request))
    del request, mark
    assert alive() is None


# --- JSON lines

TEXT = st.text(max_size=8)
NAMES = st.text(string.ascii_lowercase + ".-", min_size=1, max_size=12)
NUMBERS = st.one_of(st.integers(INT_MIN, INT_MAX), st.floats(allow_nan=False, allow_infinity=False))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=3)
UINTS = st.integers(0, 2**32 - 1)
ROUTES = st.lists(NAMES, max_size=3).map(tuple)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        Request, NAMES, st.none() | OBJECTS, UINTS, st.integers(0, 255), UINTS, UINTS, UINTS, ROUTES
    ),
    st.builds(
        Response,
        NAMES,
        st.none() | OBJECTS | TEXT,
        UINTS,
        UINTS,
        st.integers(0, 255),
        UINTS,
        UINTS,
        ROUTES,
    ),
    st.builds(Event, NAMES, st.none() | OBJECTS, UINTS, st.integers(0, 255), UINTS, UINTS),
    st.builds(Control, UINTS, UINTS, st.integers(0, 255), UINTS, UINTS),
)
RECORDS = st.builds(
    Record,
    st.integers(1, 2**53),
    st.floats(0, 4e9),
    st.sampled_from([kind.value for kind in Kind]),
    NAMES,
    st.just("") | NAMES,
    st.integers(0, 2**53),
    st.none() | MESSAGES,
    st.none() | OBJECTS,
)


@settings(max_examples=60)
@given(RECORDS)
def test_record_comes_back_from_its_line(record: Record) -> None:
    line = record_to_json(record)
    assert b"\n" not in line
    assert record_from_json(line) == record
    assert record_from_json(line.decode()) == record


def test_line_says_what_a_reader_needs_and_no_defaults() -> None:
    record = Record(4, 1.5, Kind.STATE.value, "kvs", data={"b": 1, "a": 2})
    assert record_to_json(record) == (
        b'{"data":{"a":2,"b":1},"kind":"state","n":4,"party":"kvs","t":1.5}'
    )


def test_records_of_equal_runs_are_equal_bytes_whatever_the_order_of_their_keys() -> None:
    one = Record(1, 1.0, "send", "a", "b", 0, Event("e", {"x": 1, "y": 2}))
    other = Record(1, 1.0, "send", "a", "b", 0, Event("e", {"y": 2, "x": 1}))
    assert record_to_json(one) == record_to_json(other)


GOOD: dict[str, Any] = {"n": 1, "t": 1.0, "kind": "send", "party": "a"}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"", "expected well-formed data, got Input data was truncated"),
        (b"[1, 2]", "expected object, got array"),
        (
            b'{"n": one}',
            "expected well-formed data, got JSON is malformed: invalid character (byte 6)",
        ),
        (GOOD | {"n": "one"}, "n: expected int, got str"),
        ({"t": 1.0, "kind": "send", "party": "a"}, "expected the key n, got nothing"),
        (GOOD | {"colour": "red"}, "expected only the keys of the format, got the key colour"),
        (GOOD | {"data": 1}, "data: expected object | null, got int"),
        (GOOD | {"message": "hello"}, "message: expected object | null, got str"),
        (
            GOOD | {"message": {}, "type": "letter"},
            'type: expected one of request, response, event, control, got "letter"',
        ),
        (
            GOOD | {"message": {"topic": "x"}},
            "type: expected one of request, response, event, control, got nothing",
        ),
        (
            GOOD | {"message": {"topic": 7}, "type": "request"},
            "message.topic: expected str, got int",
        ),
        (GOOD | {"message": {}, "type": "event"}, "message: expected the key topic, got nothing"),
        (GOOD | {"message": {}, "type": ["event"]}, "type: expected str | null, got array"),
        (b"[" * 100_000, "expected object, got array"),
    ],
)
def test_bad_line_is_an_error_that_says_what_is_wrong_with_it(
    line: bytes | dict[str, Any], text: str
) -> None:
    data = line if isinstance(line, bytes) else msgspec.json.encode(line)
    with pytest.raises(FormatError) as error:
        record_from_json(data)
    assert str(error.value) == text
