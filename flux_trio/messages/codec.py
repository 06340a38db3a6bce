"""Messages as bytes: CBOR arrays with the header fields of RFC 3 (Common Message Format).

A message is one array of nine elements. A frame is one or more messages in sequence (a CBOR
sequence, RFC 8742), so that waiting messages can travel together. The schema is
docs/reference/wire.cddl. The decoder trusts no sender: every size, depth and count has a bound, and
tags, indefinite lengths and duplicate keys are refused. Transports own the sockets.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import cbor2

from flux_trio.messages.errors import LocalProtocolError, RemoteProtocolError
from flux_trio.messages.types import Control, Event, Flag, Message, Request, Response
from flux_trio.messages.values import DEPTH_MAX, UnfitError, check_object, check_texts, kind_of

FRAME_BYTES_MAX: Final = 16 * 2**20  # a listing of 10,000 jobs is below 4 MiB
FRAME_BYTES_TARGET: Final = 256 * 2**10  # waiting messages share a frame up to this size
FRAME_ITEMS_MAX: Final = 2**20  # CBOR items: each may cost 64 bytes of memory, even a short one
GUEST_FRAME_ITEMS_MAX: Final = 2**16  # the limit for guests: decoded in about 10 ms
TOPIC_CHARS_MAX: Final = 255  # the real topics are below 40
ROUTES_MAX: Final = 64  # hops: more than the depth of any tree of brokers
ROUTE_CHARS_MAX: Final = 255  # a hop is a peer's name or a UUID

# The message types of RFC 3
REQUEST: Final = 1
RESPONSE: Final = 2
EVENT: Final = 4
CONTROL: Final = 8

_TOPIC: Final = int(Flag.TOPIC)
_PAYLOAD: Final = int(Flag.PAYLOAD)
_ROUTE: Final = int(Flag.ROUTE)
_PARTS: Final = _TOPIC | _PAYLOAD | _ROUTE
_PARTS_OF: Final = {  # required parts of each message type; a payload is optional
    REQUEST: _TOPIC | _ROUTE,
    RESPONSE: _TOPIC | _ROUTE,
    EVENT: _TOPIC,
    CONTROL: 0,
}
_U32_MAX: Final = 0xFFFFFFFF
_FIELDS: Final = 9


def encode(message: Message) -> bytes:
    """Return `message` as a frame; a concatenation of frames is also a frame.

    Raises LocalProtocolError for a message that `decode` would refuse.
    """
    fields = _to_fields(message)
    try:
        _check_fields(fields)
        data = _to_cbor(fields)
        _check_size(data)
    except UnfitError as error:
        name = getattr(message, "topic", "control")
        raise LocalProtocolError(f"cannot send {name!r}: {error}") from None
    return data


def decode(data: bytes) -> Message:
    """Return the only message of a frame; RemoteProtocolError for several or an invalid one."""
    messages = decode_frame(data)
    if len(messages) > 1:
        raise RemoteProtocolError(f"frame: expected one message, got {len(messages)}")
    return messages[0]


def decode_frame(data: bytes) -> list[Message]:
    """Return the messages of a frame in order, at least one.

    Raises RemoteProtocolError that says where, what was expected and what came.
    """
    return list(iter_frame(data))


def iter_frame(data: bytes, items_max: int = FRAME_ITEMS_MAX) -> Iterator[Message]:
    """Decode the messages of a frame one at a time, on demand; raises as `decode_frame`."""
    try:
        _check_size(data, items_max)
        for item in _items(data):
            yield _from_fields(item)
    except UnfitError as error:
        raise RemoteProtocolError(str(error)) from None


def join(encoded: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Join at least one encoded message into few frames; yields (number of messages, frame)."""
    start = size = 0
    for index, part in enumerate(encoded):
        if size and size + len(part) > FRAME_BYTES_TARGET:
            yield index - start, b"".join(encoded[start:index])
            start, size = index, 0
        size += len(part)
    yield len(encoded) - start, b"".join(encoded[start:])


def _to_fields(message: Message) -> list[Any]:
    """Build the array of wire.cddl: five fields common to all types, two typed, three parts."""
    match message:
        case Request():
            kind, first, second = REQUEST, message.nodeid, message.matchtag
        case Response():
            kind, first, second = RESPONSE, message.errnum, message.matchtag
        case Event():
            kind, first, second = EVENT, message.sequence, 0
        case Control():
            header = [message.flags, message.userid, message.rolemask]
            return [CONTROL, *header, message.type, message.status, None, None, None]
    parts = _PARTS_OF[kind] | (0 if message.payload is None else _PAYLOAD)
    header = [message.flags | parts, message.userid, message.rolemask]
    routes = None if isinstance(message, Event) else message.routes
    return [kind, *header, first, second, message.topic, routes, message.payload]


def _to_cbor(fields: list[Any]) -> bytes:
    try:
        return cbor2.dumps(fields)
    except UnicodeEncodeError:
        for name, value in zip(("topic", "routes", "payload"), fields[-3:], strict=True):
            check_texts(value, name)
        raise


def _from_fields(fields: Any) -> Message:
    if type(fields) is not list or len(fields) != _FIELDS:
        raise UnfitError(f"message: expected an array of {_FIELDS}, got {kind_of(fields)}")
    _check_fields(fields)
    kind, flags, userid, rolemask, first, second, topic, routes, payload = fields
    flags &= ~_PARTS
    if kind == REQUEST:
        hops = tuple(routes)
        return Request(topic, payload, second, flags, first, userid, rolemask, hops)
    if kind == RESPONSE:
        return Response(topic, payload, first, second, flags, userid, rolemask, tuple(routes))
    if kind == EVENT:
        return Event(topic, payload, first, flags, userid, rolemask)
    return Control(first, second, flags, userid, rolemask)


# The checks below are the same in both directions.


def _check_fields(fields: list[Any]) -> None:
    kind, flags, userid, rolemask, first, second, topic, routes, payload = fields
    _check_uint("flags", flags, 0xFF)
    _check_uint("userid", userid, _U32_MAX)
    _check_uint("rolemask", rolemask, _U32_MAX)
    _check_uint("field 5", first, _U32_MAX)
    _check_uint("field 6", second, 0 if kind == EVENT else _U32_MAX)
    _check_parts(kind, flags, topic, routes, payload)
    if topic is not None:
        _check_text("topic", topic, TOPIC_CHARS_MAX)
    if routes is not None:
        _check_routes(routes)
    if type(payload) is str:
        if kind != RESPONSE or first == 0:
            raise UnfitError("payload: expected a map or null (errnum is 0), got text")
    elif payload is not None:
        if kind == RESPONSE and first != 0:
            raise UnfitError(
                f"payload: expected text or null (errnum is set), got {kind_of(payload)}"
            )
        check_object(payload)


def _check_uint(name: str, value: Any, limit: int) -> None:
    if not isinstance(value, int) or value is True or value is False or not 0 <= value <= limit:
        raise UnfitError(f"{name}: expected an integer from 0 to {limit}, got {kind_of(value)}")


def _check_parts(kind: Any, flags: int, topic: Any, routes: Any, payload: Any) -> None:
    """Check RFC 3: the flags match the parts that are present; the type requires certain parts."""
    required = _PARTS_OF.get(kind) if type(kind) is int else None
    if required is None:
        raise UnfitError(f"type: expected 1, 2, 4 or 8, got {kind_of(kind)}")
    present = 0 if topic is None else _TOPIC
    present |= 0 if routes is None else _ROUTE
    if present != required or (payload is not None and kind == CONTROL):
        raise UnfitError(f"message: expected {_PART_NAMES[kind]} in a message of type {kind}")
    present |= 0 if payload is None else _PAYLOAD
    if flags & _PARTS != present:
        raise UnfitError(
            f"flags: expected topic, payload and route bits {present:#04x} for the parts that "
            f"came, got {flags & _PARTS:#04x}"
        )


_PART_NAMES: Final = {
    REQUEST: "a topic and routes",
    RESPONSE: "a topic and routes",
    EVENT: "a topic and no routes",
    CONTROL: "no topic, routes or payload",
}


def _check_text(name: str, value: Any, limit: int) -> None:
    if type(value) is not str or not 0 < len(value) <= limit or "\0" in value:
        raise UnfitError(
            f"{name}: expected text of 1 to {limit} characters without NUL, got {kind_of(value)}"
        )


def _check_routes(routes: Any) -> None:
    if not isinstance(routes, (list, tuple)) or len(routes) > ROUTES_MAX:
        raise UnfitError(f"routes: expected an array of 0 to {ROUTES_MAX}, got {kind_of(routes)}")
    for hop in routes:
        _check_text("routes", hop, ROUTE_CHARS_MAX)


# CBOR


class _NoTags(Mapping[int, Any]):
    """Replaces cbor2's table of tag decoders and refuses every tag."""

    def __getitem__(self, tag: int) -> NoReturn:
        raise UnfitError(f"expected no tags, got tag {tag}")

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


_NO_TAGS: Final = _NoTags()


def _items(data: bytes) -> Iterator[Any]:
    """Yield the data items; strict_hashable_types keeps keys from constructing objects."""
    file = io.BytesIO(data)
    decoder = cbor2.CBORDecoder(
        file,
        semantic_decoders=_NO_TAGS,
        max_depth=DEPTH_MAX + 1,  # plus the message's own array; check_object is exact
        allow_indefinite=False,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )
    while (at := file.tell()) < len(data):
        try:
            yield decoder.decode()
        except cbor2.CBORError as error:
            raise UnfitError(f"frame: in the item at byte {at}: {_reasons(error)}") from None


def _reasons(error: BaseException | None) -> str:
    reasons = []
    while error is not None:
        reasons.append(str(error))
        error = error.__cause__
    return ": ".join(reasons)


def _check_size(data: bytes, items_max: int = FRAME_ITEMS_MAX) -> None:
    if not 0 < len(data) <= FRAME_BYTES_MAX:
        raise UnfitError(f"frame: expected 1 to {FRAME_BYTES_MAX} bytes, got {len(data)}")
    # An item takes at least one byte, so only a long frame can have too many.
    if len(data) > items_max and _has_more_items(data, items_max):
        raise UnfitError(f"frame: expected at most {items_max} CBOR items, got more")


def _has_more_items(data: bytes, limit: int) -> bool:
    """Count the item heads (RFC 8949, 3), skipping text and byte strings; stop at `limit`."""
    at = count = 0
    while at < len(data) and count <= limit:
        head = data[at]
        argument = head & 0x1F
        at += 1
        count += 1
        if 24 <= argument <= 27:
            width = 1 << (argument - 24)
            argument = int.from_bytes(data[at : at + width], "big")
            at += width
        if head >> 5 in (2, 3):
            at += argument
    return count > limit
