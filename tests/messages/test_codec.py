import math
import random
from enum import IntEnum
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.messages import (
    Control,
    Event,
    LocalProtocolError,
    Message,
    RemoteProtocolError,
    Request,
    Response,
    codec,
)
from flux_trio.messages.codec import decode, decode_frame, encode
from flux_trio.messages.values import DEPTH_MAX

u32 = st.integers(0, 2**32 - 1)
flags = st.sampled_from([0, 0x04, 0x10, 0x20, 0x40, 0x80, 0xF4])
texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
hops = st.lists(names, max_size=3).map(tuple)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.none() | st.dictionaries(texts, values, max_size=3)
errors = st.tuples(st.none() | texts, st.integers(1, 2**32 - 1))
answers = st.tuples(objects, st.just(0))
messages = st.one_of(
    st.builds(Request, names, objects, u32, flags, u32, u32, u32, hops),
    st.builds(
        lambda answer, *rest: Response(rest[0], *answer, *rest[1:]),
        answers | errors, names, u32, flags, u32, u32, hops,
    ),
    st.builds(Event, names, objects, u32, flags, u32, u32),
    st.builds(Control, u32, u32, flags, u32, u32),
)  # fmt: skip

REQUEST = [1, 0x0B, 1, 2, 3, 4, "a.b", ["x"], {"k": 1}]


def frame(*fields: Any) -> bytes:
    return cbor2.dumps(list(fields))


@settings(max_examples=100)
@given(messages)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@settings(max_examples=30)
@given(st.lists(messages, min_size=1, max_size=4))
def test_messages_put_together_are_a_frame_of_them_in_order(several: list[Message]) -> None:
    """3.routing.5"""
    assert decode_frame(b"".join(map(encode, several))) == several


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (
            Request("a.b", {"k": 1}, 4, 0x44, 3, 1, 2, ("x",)),
            [1, 0x4F, 1, 2, 3, 4, "a.b", ["x"], {"k": 1}],
        ),
        (Request("a.b"), [1, 0x09, 2**32 - 1, 0, 2**32 - 1, 0, "a.b", [], None]),
        (Request("a", {}), [1, 0x0B, 2**32 - 1, 0, 2**32 - 1, 0, "a", [], {}]),
        (Response("a", "no", 38, 4, 0, 1, 2), [2, 0x0B, 1, 2, 38, 4, "a", [], "no"]),
        (Event("e", None, 7, 0x20, 1, 2), [4, 0x21, 1, 2, 7, 0, "e", None, None]),
        (Control(5, 6, 0x80, 1, 2), [8, 0x80, 1, 2, 5, 6, None, None, None]),
    ],
)
def test_fields_are_those_of_the_header_and_flags_say_which_parts_there_are(
    message: Message, fields: list[Any]
) -> None:
    """3.format.5: what stands for any node, no matchtag and an unknown user."""
    assert cbor2.loads(encode(message)) == fields


def test_a_job_id_of_64_bits_survives_exactly() -> None:
    ids = [2**53 + 1, 2**63 + 1, 2**64 - 1]
    message = decode(encode(Request("job-manager.raise", {"ids": ids})))
    assert message == Request("job-manager.raise", {"ids": ids})


def with_field(index: int, value: Any) -> list[Any]:
    return [*REQUEST[:index], value, *REQUEST[index + 1 :]]


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"a": 1}, "message: expected an array of 9, got a map"),
        (REQUEST[:8], "message: expected an array of 9, got an array of 8"),
        (with_field(0, 3), "type: expected 1, 2, 4 or 8, got the integer 3"),
        (with_field(0, "1"), "type: expected 1, 2, 4 or 8, got text"),
        (with_field(0, True), "type: expected 1, 2, 4 or 8, got a boolean"),
        (with_field(1, 0x10B), "flags: expected an integer from 0 to 255, got the integer 267"),
        (with_field(1, True), "flags: expected an integer from 0 to 255, got a boolean"),
        (
            with_field(1, 0x09),
            "flags: expected topic, payload and route bits 0x0b for the parts that came, got 0x09",
        ),
        (with_field(2, -1), "userid: expected an integer from 0 to 4294967295, got"),
        (with_field(3, 1.0), "rolemask: expected an integer"),
        (with_field(4, 2**32), "field 5: expected an integer"),
        (with_field(5, None), "field 6: expected an integer from 0 to 4294967295, got null"),
        (with_field(6, None), "expected a topic and routes in a message of type 1"),
        (with_field(6, ""), "topic: expected text of 1 to 255 characters without NUL, got text"),
        (with_field(6, "a" * 256), "topic: expected text of 1 to 255"),
        (with_field(6, "a\0"), "topic: expected text of 1 to 255 characters without NUL"),
        (with_field(6, b"a"), "topic: expected text of 1 to 255 characters without NUL, got a b"),
        (with_field(7, None), "expected a topic and routes in a message of type 1"),
        (with_field(7, "x"), "routes: expected an array of 0 to 64, got text"),
        (with_field(7, ["x"] * 65), "routes: expected an array of 0 to 64, got an array of 65"),
        (with_field(7, [1]), "routes: expected text of 1 to 255"),
        (with_field(8, [1]), "payload: expected a map, got an array of 1"),
        (with_field(8, "x"), "payload: expected a map or null (errnum is 0), got text"),
        (with_field(8, {1: 1}), "map key must be a text string"),
        (with_field(8, {b"a": 1}), "payload: expected a map's keys to be text, got a byte string"),
        (with_field(8, {"a": [0, b"x"]}), "payload.a[1]: expected a map, array, text, number"),
        (with_field(8, {"a": cbor2.undefined}), "payload.a: expected a map, array, text"),
        (with_field(8, {"a": cbor2.CBORSimpleValue(9)}), "payload.a: expected a map, array"),
        (with_field(8, {"a": math.nan}), "payload.a: expected a finite number, got nan"),
        (with_field(8, {"a": -math.inf}), "payload.a: expected a finite number, got -inf"),
        (with_field(8, {"a": -(2**63) - 1}), "payload.a: expected an integer of 64 bits"),
        (with_field(8, {"a": 2**64}), "tag"),
        (with_field(8, nested(DEPTH_MAX + 1)), "expected at most 64 levels of maps and arrays"),
        ([2, 0x0B, 0, 0, 0, 0, "a", [], "x"], "expected a map or null (errnum is 0), got text"),
        ([2, 0x0B, 0, 0, 5, 0, "a", [], {}], "expected text or null (errnum is set), got a map"),
        ([4, 0x01, 0, 0, 0, 1, "a", None, None], "field 6: expected an integer from 0 to 0"),
        ([4, 0x09, 0, 0, 0, 0, "a", [], None], "expected a topic and no routes in a message of"),
        ([8, 0, 0, 0, 0, 0, "a", None, None], "expected no topic, routes or payload in a message"),
        ([8, 2, 0, 0, 0, 0, None, None, {}], "expected no topic, routes or payload in a message"),
    ],
)  # fmt: skip
def test_a_bad_frame_is_refused_with_what_was_expected_and_what_came(
    fields: Any, text: str
) -> None:
    """3.format.3 3.payload.1 6.request.2"""
    with pytest.raises(RemoteProtocolError) as caught:
        decode(cbor2.dumps(fields))
    assert text in str(caught.value)


@pytest.mark.parametrize("tag", [0, 1, 2, 4, 25, 28, 29, 30, 35, 37, 55799, 99999])
def test_every_tag_is_refused(tag: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"expected no tags, got tag {tag}"):
        decode(cbor2.dumps(with_field(8, {"a": cbor2.CBORTag(tag, [1, 2])})))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "frame: expected 1 to 16777216 bytes, got 0"),
        (bytes(16 * 2**20 + 1), "frame: expected 1 to 16777216 bytes, got 16777217"),
        (b"\x80" * (2**20 + 1), "frame: expected at most 1048576 CBOR items, got more"),
        (frame(*REQUEST)[:-1], "frame: in the item at byte 0: "),
        (frame(*REQUEST) + b"\x00", "message: expected an array of 9, got the integer 0"),
        (frame(*REQUEST) + b"\x18", f"in the item at byte {len(frame(*REQUEST))}: "),
        (cbor2.dumps(REQUEST, indefinite_containers=True), "indefinite"),
        (frame(*REQUEST)[:-4] + b"\xa2\x61k\x01\x61k\x02", "Duplicate map key: 'k'"),
        (b"\x9b" + b"\xff" * 8, "premature end"),
        (b"\x7b" + b"\xff" * 8, "premature end"),
        (b"\x81" * 100_000, "depth"),
        (frame(*REQUEST)[:-4] + b"\xa1\x62\xff\xff\x01", "utf"),
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(data)
    assert text in str(caught.value)


def test_one_message_is_expected_where_one_is_asked_for() -> None:
    with pytest.raises(RemoteProtocolError, match="expected one message, got 2"):
        decode(encode(Request("a")) * 2)


def test_a_long_text_is_not_many_items() -> None:
    message = Request("kvs.commit", {"text": "\x80" * 2**20, "more": ["x" * 300, "y" * 70_000]})
    assert decode(encode(message)) == message


def test_the_deepest_payload_that_may_be_sent_can_be_read() -> None:
    message = Request("a", nested(DEPTH_MAX))
    assert decode(encode(message)) == message


class Number(IntEnum):
    ONE = 1


def test_plain_values_in_other_clothes_arrive_plain() -> None:
    sent = Request("a", {"n": Number.ONE, "t": (1, 2)})
    assert decode(encode(sent)) == Request("a", {"n": 1, "t": [1, 2]})


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Request(""), "cannot send '': topic: expected text of 1 to 255"),
        (Request("a", {"x": {1}}), "cannot send 'a': payload.x: expected a map"),
        (Request("a", {"x": math.nan}), "payload.x: expected a finite number, got nan"),
        (Request("a", {"x": 2**64}), "payload.x: expected an integer of 64 bits"),
        (
            Request("a", {"x": ["y", {"z": "\ud800"}]}),
            r"cannot send 'a': payload.x[1].z: expected text in UTF-8, got '\ud800'",
        ),
        (Request("a", {"\udcff": 1}), r"payload: key: expected text in UTF-8, got '\xff'"),
        (Request("\udcff"), r"topic: expected text in UTF-8, got '\xff'"),
        (Request("a", nested(DEPTH_MAX + 1)), "expected at most 64 levels of maps and arrays"),
        (Request("a", "text"), "payload: expected a map or null (errnum is 0), got text"),
        (Response("a", {}, 5), "payload: expected text or null (errnum is set), got a map"),
        (Request("a", {"x": "x" * 2**24}), "frame: expected 1 to 16777216 bytes, got"),
        (Request("a", {"x": [0] * 2**20}), "frame: expected at most 1048576 CBOR items"),
        (Control(-1, 0), "cannot send 'control': field 5: expected an integer"),
    ],
)
def test_what_the_peer_would_refuse_is_not_sent(message: Message, text: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encode(message)
    assert text in str(caught.value)


def test_a_payload_that_holds_itself_is_not_sent() -> None:
    payload: dict[str, Any] = {}
    payload["me"] = payload
    with pytest.raises(LocalProtocolError, match="levels"):
        encode(Request("a", payload))


def mutated(source: random.Random, seeds: list[bytes]) -> bytes:
    """A good frame with some bytes changed, cut out or doubled; or noise."""
    data = bytearray(source.choice(seeds))
    if source.random() < 0.1:
        return source.randbytes(source.randrange(1, 40))
    for _ in range(source.randrange(1, 5)):
        at = source.randrange(len(data) + 1)
        change = source.randrange(4)
        if change == 0 and at < len(data):
            data[at] = source.randrange(256)
        elif change == 1:
            data[at:at] = source.randbytes(source.randrange(1, 9))
        elif change == 2:
            del data[at : at + source.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + source.randrange(1, 30)]
    return bytes(data)


def test_no_bytes_do_anything_but_decode_or_raise_remote_protocol_error() -> None:
    assert codec.FRAME_BYTES_MAX == 16 * 2**20
    source = random.Random(20_000)
    seeds = [
        encode(Request("job-ingest.submit", {"jobspec": {"a": [1, {"b": None}]}, "urgency": 16})),
        encode(Response("sched.alloc", {"id": 2**63, "type": 0, "t": 1.5}, routes=("x", "y"))),
        encode(Response("kvs.lookup", "No such key", 2)),
        encode(Event("job-exception", {"id": 1})),
        encode(Control(1, 2)),
        cbor2.dumps([1, 11, 0, 0, 0, 0, "a", [], {"t": cbor2.CBORTag(35, "("), "b": b"x"}]),
    ]
    refused = 0
    for _ in range(20_000):
        try:
            decode_frame(mutated(source, seeds))
        except RemoteProtocolError:
            refused += 1
    assert 10_000 < refused < 20_000
