"""Frames of RFC 3, as flux-core sends them: vectors, captured records, and what is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flux_trio.messages import (
    Control,
    Event,
    Flag,
    LocalProtocolError,
    Message,
    RemoteProtocolError,
    Request,
    Response,
    native,
)
from flux_trio.messages.codec import (
    FRAME_BYTES_MAX,
    FRAME_ITEMS_MAX,
    ROUTE_CHARS_MAX,
    ROUTES_MAX,
    TOPIC_CHARS_MAX,
)
from flux_trio.messages.native import Frame, FrameReader
from flux_trio.messages.values import DEPTH_MAX

CAPTURES = Path(__file__).parents[1] / "data" / "wire-captures"
TYPES = {"req": 1, "rsp": 2, "evt": 4, "ctl": 8}
PRESENT = int(Flag.TOPIC | Flag.PAYLOAD | Flag.ROUTE)
UUID = "12345678-1234-1234-1234-123456789abc"
HOP = "24" + UUID.encode().hex()

# From the socket of a live flux-core on a little-endian host.
VECTORS = {
    "attr.get": (
        "1200eeff 00000030 00 08 617474722e676574 10 7b226e616d65223a2272616e6b227d00"
        "14 8e01010b ffffffff 00000000 ffffffff 00000001",
        Request("attr.get", {"name": "rank"}, 1),
    ),
    "its answer": (
        "1200eeff 00000038 00 08 617474722e676574"
        "18 7b2276616c7565223a2230222c22666c616773223a317d00"
        "14 8e01020b 00000000 00000005 00000000 00000001",
        Response("attr.get", {"value": "0", "flags": 1}, 0, 1, userid=0, rolemask=5),
    ),
    "ENOENT without text": (
        "1200eeff 0000001f 00 08 617474722e676574 14 8e010209 00000000 00000005 00000002 00000002",
        Response("attr.get", None, 2, 2, userid=0, rolemask=5),
    ),
    "no payload": (
        "1200eeff 00000023 00 0c 6e6f737563682e7468696e67"
        "14 8e010109 ffffffff 00000000 ffffffff 00000003",
        Request("nosuch.thing", None, 3),
    ),
    "ENOSYS with text": (
        "1200eeff 00000053 00 0c 6e6f737563682e7468696e67"
        "2f" + b"No service matching nosuch.thing is registered\0".hex() +
        "14 8e01020b 00000000 00000005 00000026 00000003",
        Response(
            "nosuch.thing", "No service matching nosuch.thing is registered", 38, 3, userid=0,
            rolemask=5,
        ),
    ),
    "an event of a client": (
        "1200eeff 00000027 00 07 666f6f2e626172 08 7b2261223a317d00"
        "14 8e01040b ffffffff 00000000 00000000 00000000",
        Event("foo.bar", {"a": 1}),
    ),
}  # fmt: skip
PUBLISHED = (
    f"1200eeff 00000071 {HOP} {HOP} 00 07 666f6f2e626172 08 7b2261223a317d00"
    "14 8e01040b 00000000 00000005 000003fe 00000000"
)


@pytest.fixture(autouse=True)
def _little_endian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MAGIC", bytes.fromhex("1200eeff"))


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_its_message_and_the_message_the_vector(name: str) -> None:
    text, message = VECTORS[name]
    data = bytes.fromhex(text)
    frame = native.decode(data)
    assert native.to_message(frame) == message
    assert native.encode(frame) == data
    assert native.encode(native.to_frame(message)) == data


def test_an_event_that_comes_back_has_its_sender_and_its_hops() -> None:
    data = bytes.fromhex(PUBLISHED)
    frame = native.decode(data)
    assert frame.routes == (UUID, UUID)
    assert native.to_message(frame) == Event("foo.bar", {"a": 1}, 0x3FE, userid=0, rolemask=5)
    assert native.encode(frame) == data


def test_routes_travel_with_the_newest_hop_first() -> None:
    data = native.encode(Frame(1, 0, 0, "a.b", None, ("client", "connector", "broker")))
    assert data.index(b"broker") < data.index(b"connector") < data.index(b"client")
    assert native.decode(data).routes == ("client", "connector", "broker")


def test_no_route_stack_and_an_empty_one_are_two_things() -> None:
    for routes in (None, ()):
        assert native.decode(native.encode(Frame(1, 0, 0, "a.b", None, routes))).routes == routes


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 70_000])
def test_a_part_of_any_length_arrives(size: int) -> None:
    frame = Frame(1, 0, 0, "a.b", b"x" * size, ())
    assert native.decode(native.encode(frame)) == frame


# What flux-core's programs said


def captured() -> Iterator[dict[str, Any]]:
    for path in sorted(CAPTURES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def frame_of(record: dict[str, Any], compact: bool) -> Frame:
    """The frame of a record, with the payload in the spacing of C or of Python."""
    payload = record["p"]
    if isinstance(payload, dict) and "<raw>" in payload:
        payload = bytes.fromhex(payload["<raw>"])
    elif payload is not None:
        text = payload
        if not isinstance(payload, str):
            separators = (",", ":") if compact else (", ", ": ")
            text = json.dumps(payload, separators=separators, ensure_ascii=False)
        payload = text.encode() + b"\0" * record["nul"]
    routes = None if record["routes"] is None else tuple(record["routes"])
    return Frame(
        TYPES[record["type"]],
        record["a1"],
        record["a2"],
        record["topic"],
        payload,
        routes,
        record["flags"] & ~PRESENT,
        record["uid"],
        record["role"],
    )


def test_every_record_of_flux_cores_programs_has_its_bytes_back() -> None:
    of_that_length: Counter[bool] = Counter()
    for record in captured():
        lengths = set()
        for compact in (True, False):
            frame = frame_of(record, compact)
            data = native.encode(frame)
            assert native.decode(data) == frame
            assert native.encode(native.decode(data)) == data
            lengths.add(len(data) - native.HEAD_BYTES)
        of_that_length[record["n"] in lengths] += 1
    # Paths and environments in the others were replaced when they were published.
    assert of_that_length[True] > 1700
    assert of_that_length.total() == 2073


def test_every_record_is_a_message_that_can_be_sent_on() -> None:
    for record in captured():
        message = native.to_message(frame_of(record, compact=True))
        assert native.to_message(native.to_frame(message)) == message
        if isinstance(record["p"], dict) and record["nul"]:
            assert getattr(message, "payload", None) == record["p"]


# Payloads that are no objects


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"<13>1 - 0 logger - - - hello", "<13>1 - 0 logger - - - hello"),
        (b"<topology/>\0", "<topology/>"),
        (b'{"a":1}', '{"a":1}'),  # without NUL flux-core does not take it as JSON either
        (b'{"a":\0', '{"a":'),
        (b"[1]\0", "[1]"),
        (b'{"a":1e999}\0', '{"a":1e999}'),
        (b"{" * 100_000 + b"\0", "{" * 100_000),
        (b'{"a":' * 70 + b"1" + b"}" * 70 + b"\0", '{"a":' * 70 + "1" + "}" * 70),
        (b"\xff\0\xfe", "\udcff\0\udcfe"),
        (b"", ""),
    ],
)
def test_a_payload_that_is_no_object_is_text(payload: bytes, text: str) -> None:
    message = native.to_message(Frame(2, 0, 1, "log.dmesg", payload, ()))
    assert message == Response("log.dmesg", text, 0, 1)


def test_the_text_of_an_error_is_text_even_if_it_could_be_an_object() -> None:
    message = native.to_message(Frame(2, 22, 1, "a.b", b'{"a":1}\0', ()))
    assert message == Response("a.b", '{"a":1}', 22, 1)


def test_more_values_than_the_bound_are_no_object_and_text_is_no_value() -> None:
    many = b'{"a":[' + b"0," * 2**20 + b"0]}\0"
    text = b'{"a":"' + rb"\"," * 2**20 + b'"}\0'
    assert isinstance(native.to_message(Frame(1, 0, 1, "a.b", many)).payload, str)  # type: ignore[union-attr]
    assert isinstance(native.to_message(Frame(1, 0, 1, "a.b", text)).payload, dict)  # type: ignore[union-attr]


# A stream


def test_frames_come_out_however_the_bytes_come_in() -> None:
    messages: list[Message] = [message for _, message in VECTORS.values()]
    data = b"".join(bytes.fromhex(text) for text, _ in VECTORS.values())
    for step in (1, 7, len(data)):
        reader = FrameReader()
        got = []
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
            got += map(native.to_message, reader.frames())
        assert got == messages
        assert not reader.has_part


def test_a_frame_that_has_begun_is_a_part() -> None:
    reader = FrameReader()
    reader.feed(native.MAGIC)
    assert list(reader.frames()) == []
    assert reader.has_part


def changed(at: int, byte: str, vector: str = "attr.get") -> bytes:
    data = bytearray.fromhex(VECTORS[vector][0])
    data[at] = int(byte, 16)
    return bytes(data)


def body(*parts: bytes) -> bytes:
    inner = b"".join(bytes([len(part)]) + part for part in parts)
    return native.MAGIC + len(inner).to_bytes(4, "big") + inner


PROTO = bytes.fromhex("8e010109 ffffffff 00000000 ffffffff 00000001")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\r\n", "frame: expected the magic number 1200eeff, got 47455420"),
        (native.MAGIC + b"\0\0\0\x14", "frame: expected a length of 21 to 16777216, got 20"),
        (native.MAGIC + b"\xff" * 4, "frame: expected a length of 21 to 16777216, got 4294967295"),
        (changed(9, "30"), "frame: expected a part of at most 46 bytes, got 48"),
        (body(b"", b"a.b", b"x" * 19), "header: expected 20 bytes, got 19"),
        (changed(-20, "8f"), "header: expected it to begin with 8e01, got 8f01"),
        (changed(-19, "02"), "header: expected it to begin with 8e01, got 8e02"),
        (changed(-18, "03"), "type: expected 1, 2, 4 or 8, got 3"),
        (changed(-18, "08"), "topic: expected one in all messages but control, type 8"),
        (changed(-17, "09"), "frame: expected the parts that the flags 0x09 name, got 2"),
        (changed(-17, "03"), "frame: expected the parts that the flags 0x03 name, got 3"),
        (changed(-17, "0a"), "frame: expected the parts that the flags 0x0a name, got 2"),
        (changed(10, "ff"), "topic: expected text in UTF-8, got ff7474722e676574"),
        (changed(10, "00"), "topic: expected text of 1 to 255 characters without NUL"),
        (body(b"a.b", PROTO), "routes: expected an empty part after them, got none"),
        (body(*[b"x"] * 65, b"", b"a.b", PROTO), "routes: expected at most 64, got 65"),
        (body(*[b"x"] * 100, b"", b"a.b", PROTO), "frame: expected at most 68 parts, got more"),
        (body(b"", b"\xff\0"), "frame: expected a length of 21"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_frame_is_refused_with_what_was_expected(data: bytes, text: str) -> None:
    reader = FrameReader()
    reader.feed(data)
    with pytest.raises(RemoteProtocolError) as refused:
        list(reader.frames())
    assert str(refused.value).startswith(text)


def test_what_is_not_one_frame_is_refused() -> None:
    data = bytes.fromhex(VECTORS["attr.get"][0])
    for other in (b"", data[:-1], data + data):
        with pytest.raises(RemoteProtocolError, match=f"expected one frame, got {len(other)}"):
            native.decode(other)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (Frame(3, 0, 0, "a"), "type: expected 1, 2, 4 or 8, got 3"),
        (Frame(8, 0, 0, None, b""), "payload: expected none in a control message"),
        (Frame(1, 0, 0, "a", None, None, 2), "flags: expected none for the parts, got 0x02"),
        (Frame(1, 0, 0, "a" * (TOPIC_CHARS_MAX + 1)), "topic: expected text of 1 to 255"),
        (Frame(1, 0, 0, "a", None, ("",)), "routes: expected text of 1 to 255"),
        (Frame(1, 0, 0, "a", None, ("x",) * (ROUTES_MAX + 1)), "routes: expected at most 64"),
        (Frame(1, 2**32, 0, "a"), "'I' format requires"),
        (Frame(1, 0, 0, "\udc00"), "'utf-8' codec can't encode"),
        (Frame(1, 0, 0, "a", b"x" * FRAME_BYTES_MAX), "frame: expected a length of 21 to 16777216"),
    ],
)
def test_what_would_be_refused_is_not_sent(frame: Frame, text: str) -> None:
    with pytest.raises(LocalProtocolError, match=text):
        native.encode(frame)


@pytest.mark.parametrize("payload", [{"a": float("nan")}, {"a": "\ud800"}, "\ud800"])
def test_a_payload_that_cannot_travel_is_not_sent(payload: Any) -> None:
    with pytest.raises(LocalProtocolError, match="cannot send 'a': payload"):
        native.to_frame(Request("a", payload))


def test_control_messages_have_no_parts() -> None:
    data = native.encode(native.to_frame(Control(1, 2, userid=0)))
    assert data[8:].hex() == "148e01080000000000000000000000000100000002"
    assert native.to_message(native.decode(data)) == Control(1, 2, userid=0)


def test_the_page_has_a_vector_and_the_bounds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "flux-wire.md").read_text()
    shown = "".join(re.findall(r"^    ((?:[0-9a-f]{2} ?)+)$", page, re.MULTILINE))
    assert bytes.fromhex(shown) == bytes.fromhex(VECTORS["attr.get"][0])
    for row in (
        f"| bytes in a frame | {FRAME_BYTES_MAX} |",
        f"| characters in a topic | 1 to {TOPIC_CHARS_MAX} |",
        f"| routes, and characters in each | {ROUTES_MAX}, 1 to {ROUTE_CHARS_MAX} |",
    ):
        assert row in page
    assert f"more than {FRAME_ITEMS_MAX} values, or nested more than {DEPTH_MAX} deep" in page
