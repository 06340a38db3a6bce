"""Reading traces in each of their forms, and writing one."""

from __future__ import annotations

import errno
import io
import json
from typing import Any

import pytest

from flux_trio.formats import FormatError
from flux_trio.messages import Event, Request
from flux_trio.trace import (
    JsonLines,
    Notes,
    Receipts,
    Record,
    Shown,
    Trace,
    read_trace,
    reading,
    record_from_json,
    record_to_json,
    text_lines,
)
from flux_trio.trace.reading import HEAD_BYTES
from flux_trio.trace.record import NEAR
from flux_trio.trace.writing import BATCH

ROUTER = Shown(crossings=False, headers=False)


def read(text: str) -> list[Record]:
    return list(read_trace(text.splitlines(keepends=True)).records)


def failure(text: str) -> str:
    with pytest.raises(FormatError) as caught:
        read(text)
    return str(caught.value)


def some_lines() -> str:
    trace = Trace(lambda: 7.0)
    lines: list[bytes] = []
    trace.add_sink(lambda record: lines.append(record_to_json(record)))
    ref = trace.sent("client", "kvs", Request("kvs.lookup", {"key": "a"}, 3))
    trace.received("kvs", "client", Request("kvs.lookup", {"key": "a"}, 3), ref)
    trace.note("state", "kvs", {"keys": 3})
    return b"\n".join(lines).decode() + "\n"


# --- our own lines


def test_lines_of_json_give_the_records_that_were_written() -> None:
    source = read_trace(some_lines().splitlines(keepends=True))
    assert (source.form, source.shown) == ("JSON lines", Shown())
    records = list(source.records)
    assert [record.kind for record in records] == ["send", "recv", "state"]
    assert records[0].message == Request("kvs.lookup", {"key": "a"}, 3)


def test_line_that_is_no_record_is_named() -> None:
    text = some_lines() + '{"n": 4, "t": 1.0, "kind": "send"}\n' + some_lines()
    assert failure(text) == "line 4: expected the key party, got nothing"


def test_records_must_be_in_order() -> None:
    text = some_lines() * 2
    assert failure(text) == "line 4: n: expected a place in the order after 3, got 1"


def test_last_line_that_a_crash_cut_short_is_passed_over() -> None:
    text = some_lines()
    assert read(text + text[: len(text) // 5]) == read(text)
    cut: list[int] = []
    assert [*read_trace(text.splitlines(keepends=True), cut=cut.append).records]
    assert cut == []
    torn = [*text.splitlines(keepends=True), text[: len(text) // 5]]
    assert [*read_trace(torn, cut=cut.append).records]
    assert cut == [len(torn)]


def read_bytes(data: bytes, cut: list[int]) -> list[Record]:
    return list(read_trace(text_lines(io.BytesIO(data).readline), cut=cut.append).records)


def test_last_line_of_a_file_that_a_crash_cut_in_a_character_is_passed_over() -> None:
    text = some_lines()
    last = '{"n":4,"t":1.0,"kind":"state","party":"kvs","data":{"a":"\u00e9'.encode()
    for end in range(1, len(last)):
        cut: list[int] = []
        assert read_bytes(text.encode() + last[:-end], cut) == read(text)
        assert cut == [4]


def test_line_of_a_file_that_is_no_text_is_named() -> None:
    first, *others = some_lines().encode().splitlines(keepends=True)
    said = "expected UTF-8 text, got the byte 0xff after 2 others"
    with pytest.raises(FormatError, match=rf"^line 2: {said}$"):
        read_bytes(b"".join([first, b'{"\xff"}\n', *others]), [])
    with pytest.raises(FormatError, match=rf"^line 1: {said}$"):
        read_bytes(b'{"\xff"}', [])
    with pytest.raises(FormatError, match=r"^line 1: expected a trace: .*no UTF-8 text$"):
        read_bytes(b"\x1f\x8b\xff", [])


class Zeros(io.RawIOBase):
    """A device without an end of a line; `nread` bytes of it were read."""

    def __init__(self, head: bytes = b"") -> None:
        self.nread = 0
        self._head = head

    def readline(self, most: int | None = -1, /) -> bytes:
        assert most is not None
        assert most >= 0
        self.nread += most
        head, self._head = self._head, b""
        return head + bytes(most - len(head))


@pytest.mark.parametrize(("head", "nread"), [(b"", HEAD_BYTES), (b"{", 3 * HEAD_BYTES)])
def test_file_without_an_end_of_a_line_is_no_trace(
    monkeypatch: pytest.MonkeyPatch, head: bytes, nread: int
) -> None:
    monkeypatch.setattr(reading, "LINE_BYTES_MAX", 3 * HEAD_BYTES)
    zeros = Zeros(head)
    with pytest.raises(FormatError, match=r"^line 1: expected a "):
        list(read_trace(text_lines(zeros.readline)).records)
    assert zeros.nread == nread


def test_first_line_may_be_longer_than_a_head() -> None:
    trace = Trace(lambda: 7.0)
    records: list[Record] = []
    trace.add_sink(records.append)
    trace.note("state", "kvs", {"keys": "\u00e9" * HEAD_BYTES})
    trace.note("state", "kvs", {"keys": 3})
    data = b"".join(record_to_json(each) + b"\n" for each in records)
    assert read_bytes(data, []) == records


def test_line_that_is_nested_too_deeply_is_named() -> None:
    for depth in (1_600, 100_000):
        deep = '{"n":4,"t":1.0,"kind":"state","party":"a","data":{"a":%s%s}}\n'
        line = deep % ("[" * depth, "]" * depth)
        for text, number in ((line, 1), (some_lines() + line, 4)):
            assert failure(text).startswith(f"line {number}: expected less deeply nested JSON, ")
        head = "2026-01-01T00:00:00.000 sched rx < sched.alloc [10] success\n"
        payload = '{"a":%s%s}\n' % ("[" * depth, "]" * depth)  # noqa: UP031 - it has braces
        assert failure(head + payload).startswith("line 2: expected less deeply nested JSON, ")


def test_whatever_else_is_no_trace() -> None:
    assert failure("").startswith("expected a trace: JSON lines, ")
    assert failure("hello\n").startswith("line 1: expected a trace: JSON lines, ")
    assert failure("{\n").startswith("expected well-formed data, got ")


def test_sink_writes_whole_lines_in_few_pieces_and_the_rest_when_closed() -> None:
    pieces: list[bytes] = []
    sink = JsonLines(pieces.append, buffer_bytes=200)
    records = [Record(n, 1.0, "state", "kvs", data={"keys": n}) for n in range(1, 4 * BATCH)]
    for record in records:
        sink.append(record)
    assert 1 < len(pieces) < len(records)
    assert all(piece.endswith(b"\n") for piece in pieces)
    sink.close()
    sink.append(records[0])
    assert read(b"".join(pieces).decode()) == records


def test_receipts_leave_out_the_message_of_a_near_send_and_get_it_back() -> None:
    pieces: list[bytes] = []
    sink, kept = JsonLines(pieces.append), list[Record]()
    trace = Trace(lambda: 1.0)
    early = trace.sent("a", "b", Event("early"))
    trace.add_sink(sink.append)
    trace.add_sink(kept.append)
    trace.received("b", "", Event("early"), early)  # its send is not in the trace
    sent = {early: Event("early")}
    for number in range(3 * NEAR):
        event = Event(f"e{number}", {"b": number, "a": 0})
        n = trace.sent("a", "b", event)
        sent[n] = event
        if number < NEAR:
            trace.note("state", "a", {})
        else:
            ref = n + 1 - NEAR + number % 3
            while ref not in sent:
                ref -= 1
            trace.received("b", "", sent[ref], ref)
    sink.close()
    text = b"".join(pieces).decode()
    assert read(text) == kept
    for line in text.splitlines():
        record = json.loads(line)
        if record["kind"] == "recv":
            is_near = record["ref"] > early and record["n"] - record["ref"] <= NEAR
            assert ("message" in record) is not is_near
    distances = {record.n - record.ref for record in kept if record.kind == "recv"}
    assert {NEAR - 1, NEAR + 1} <= distances


def test_what_is_received_at_once_is_one_line_without_messages() -> None:
    pieces: list[bytes] = []
    sink, kept = JsonLines(pieces.append), list[Record]()
    trace, watched = Trace(lambda: 2.0), Trace(lambda: 2.0)
    early = trace.sent("a", "b", Event("early"))
    assert watched.sent("a", "b", Event("early")) == early
    trace.add_turn_sink(sink.append)
    watched.add_sink(kept.append)
    for each in (trace, watched):
        sent = [(each.sent("a", "b", event), event) for event in map(Event, "xyz")]
        each.received_all("b", [sent[2], (-1, "posted"), sent[0]])
        each.received_all("b", [(-1, "posted")])
        each.received_all("b", [sent[1]])
        each.received_all("c", [(early, Event("early")), sent[1]])  # its send is not in the trace
        for _ in range(NEAR):
            each.note("state", "a", {})
        each.received_all("d", sent)  # too far
    sink.close()
    text = b"".join(pieces).decode()
    assert [record.n for record in kept] == list(range(early + 1, kept[-1].n + 1))
    assert read(text) == kept
    lines = [record for line in text.splitlines() if (record := json.loads(line))["kind"] == "recv"]
    assert lines[:2] == [
        {"n": 5, "t": 2.0, "kind": "recv", "party": "b", "refs": [4, 2]},
        {"n": 7, "t": 2.0, "kind": "recv", "party": "b", "ref": 3},
    ]
    assert [("refs" in line, "message" in line) for line in lines[2:]] == [
        (False, True),
        (False, False),
        *[(False, True)] * 3,
    ]


def test_sink_may_add_a_record_between_two_that_are_received_at_once() -> None:
    kept: list[Record] = []
    trace = Trace(lambda: 2.0)
    trace.add_turn_sink(lambda _: None)

    def strike(record: Record) -> None:
        kept.append(record)
        if record.kind == "recv" and record.message == Event("x"):
            trace.note("fault", "x", {})

    trace.add_sink(strike)
    sent = [(trace.sent("a", "b", event), event) for event in map(Event, "xy")]
    trace.received_all("b", sent)
    assert [(each.n, each.kind) for each in kept] == [
        (1, "send"),
        (2, "send"),
        (3, "recv"),
        (4, "fault"),
        (5, "recv"),
    ]


def test_what_is_noted_at_once_is_written_as_one_record_each() -> None:
    pieces: list[bytes] = []
    sink, kept = JsonLines(pieces.append), list[Record]()
    trace, watched = Trace(lambda: 2.0), Trace(lambda: 2.0)
    trace.add_turn_sink(sink.append)
    watched.add_sink(kept.append)
    several = [("event", {"id": 7}), ("state", {"to": "RUN"}), ("event", {"id": 8})]
    for each in (trace, watched):
        each.note("state", "a", {})
        each.note_all("b", several)
        each.note_all("b", [])
        each.note_all("c", several[:1])
        each.sent("a", "b", Event("last"))
    sink.close()
    assert [record.n for record in kept] == [1, 2, 3, 4, 5, 6]
    assert read(b"".join(pieces).decode()) == kept


@pytest.mark.parametrize(
    ("kind", "taken"),
    [(Notes, [("event", {})] * BATCH), (Receipts, [(n, Event("x")) for n in range(BATCH)])],
)
def test_what_is_noted_or_received_at_once_is_not_kept_until_there_are_enough_records(
    kind: Any, taken: list[Any]
) -> None:
    pieces: list[bytes] = []
    sink = JsonLines(pieces.append, buffer_bytes=1)
    sink.append(kind(100, 1.0, "a", taken[1:]))
    assert pieces == []
    sink.append(kind(200, 1.0, "a", taken))
    assert b"".join(pieces).count(b'"party":"a"') == 2 * BATCH - 1  # no sends of them are there


def test_last_of_the_receipts_in_a_line_is_near_the_first_send() -> None:
    """So a reader keeps the messages of 4096 records."""
    for notes, is_one_line in ((NEAR - 3, True), (NEAR - 2, False)):
        pieces: list[bytes] = []
        sink = JsonLines(pieces.append)
        trace = Trace(lambda: 2.0)
        trace.add_turn_sink(sink.append)
        sent = [(trace.sent("a", "b", event), event) for event in map(Event, "xy")]
        for _ in range(notes):
            trace.note("state", "a", {})
        trace.received_all("b", sent)
        sink.close()
        text = b"".join(pieces).decode()
        assert ('"refs"' in text) is is_one_line
        assert [record.message for record in read(text)[-2:]] == [Event("x"), Event("y")]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"n":5,"t":1.0,"kind":"send","party":"a","refs":[3]}', "got [3]"),
        ('{"n":5,"t":1.0,"kind":"recv","party":"a","refs":[]}', "got []"),
        ('{"n":5,"t":1.0,"kind":"recv","party":"a","ref":3,"refs":[3]}', "got [3]"),
    ],
)
def test_places_of_several_receipts_are_those_of_a_recv(line: str, text: str) -> None:
    expected = "line 1: refs: expected the places of sends, of a recv without message and ref, "
    assert failure(line + "\n") == expected + text


def test_line_of_several_receipts_is_not_one_record() -> None:
    line = '{"n":5,"t":1.0,"kind":"recv","party":"a","refs":[3,4]}'
    with pytest.raises(FormatError, match=r"refs: expected one record, got \[3, 4\]"):
        record_from_json(line)


def test_trace_that_is_handed_over_goes_on_with_its_sinks() -> None:
    first, records, turns = Trace(lambda: 1.0), list[Any](), list[Any]()
    first.add_sink(records.append)
    first.add_turn_sink(turns.append)
    first.note("state", "a", {})
    second = first.hand_over()
    assert (first.has_sinks, first.has_turn_sinks) == (False, False)
    first.note("state", "lost", {})
    assert (second.has_sinks, second.has_turn_sinks) == (True, True)
    second.note("state", "b", {})
    second.remove_sink(records.append)
    second.note("state", "c", {})
    assert [each.party for each in records] == ["a", "b"]
    assert [(each.n, each.party) for each in turns] == [(1, "a"), (2, "b"), (3, "c")]


def test_receipt_after_a_turn_keeps_a_message_that_was_sent_before_the_turn() -> None:
    pieces: list[bytes] = []
    sink = JsonLines(pieces.append)
    trace = Trace(lambda: 1.0)
    sent = trace.sent("a", "b", Event("early"))
    trace.add_turn_sink(sink.append)
    trace.turn("a", {"now": 1.0})  # it has the place of the send, which the sink was not given
    trace.received("b", "", Event("early"), sent)
    sink.close()
    (received,) = read(b"".join(pieces).decode())
    assert received.message == Event("early")


def test_sink_that_is_removed_gets_no_turns_either() -> None:
    records: list[Record] = []
    trace = Trace(lambda: 1.0)
    trace.add_turn_sink(records.append)
    trace.turn("a", {"now": 1.0})
    trace.remove_sink(records.append)
    trace.turn("a", {"now": 2.0})
    trace.note("state", "a", {})
    assert [record.data for record in records] == [{"now": 1.0}]


def test_receipt_without_message_and_send_is_an_error() -> None:
    line = '{"n":5,"t":1.0,"kind":"recv","party":"a","ref":3}\n'
    assert failure(line) == (
        "line 1: ref: expected a message, or the place of a send at most 4096 before, "
        "got 3: records may be missing"
    )


def test_a_trace_that_cannot_be_written_ends_there_and_harms_nobody() -> None:
    def full(_data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sink = JsonLines(full, buffer_bytes=1)
    trace = Trace(lambda: 1.0)
    trace.add_sink(sink.append)
    trace.note("state", "sched", {})
    trace.note("state", "sched", {})
    sink.close()
    assert sink.error is not None
    assert sink.error.errno == errno.ENOSPC
