"""Messages as bytes on Flux's own wire: the frames of RFC 3, as flux-core sends them on a stream.

A frame is a magic number in the byte order of the host, the length of what follows, and parts: the
hops of the route (the newest first, then an empty part), the topic, the payload, and the header of
20 bytes, which RFC 3 calls PROTO. Each of the first three is there if a flag says so.

A `Frame` holds the payload in bytes, because not all payloads are objects: log lines, XML and
contents of the kvs travel too. `encode(decode(data))` is `data`. A `Message` is what a program
wants: `to_message` and `to_frame` convert. The decoder trusts no sender: every size and count has a
bound. The other codec of this package, `codec`, is for flux-trio's own wire.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, Final, final

import msgspec

from flux_trio.messages.codec import (
    CONTROL,
    EVENT,
    FRAME_BYTES_MAX,
    FRAME_ITEMS_MAX,
    REQUEST,
    RESPONSE,
    ROUTE_CHARS_MAX,
    ROUTES_MAX,
    TOPIC_CHARS_MAX,
)
from flux_trio.messages.errors import LocalProtocolError, RemoteProtocolError
from flux_trio.messages.types import Control, Event, Flag, Message, Payload, Request, Response
from flux_trio.messages.values import UnfitError, check_object, check_texts

MAGIC: Final = struct.pack("=I", 0xFFEE0012)
"""The byte order is that of the host, since a stream does not leave it."""
HEAD_BYTES: Final = 8  # the magic number and the length

_TOPIC: Final = int(Flag.TOPIC)
_PAYLOAD: Final = int(Flag.PAYLOAD)
_ROUTE: Final = int(Flag.ROUTE)
_PRESENT: Final = _TOPIC | _PAYLOAD | _ROUTE
_SHORT_MAX: Final = 254  # a longer part has 255 and four bytes of length
_PARTS_MAX: Final = ROUTES_MAX + 4  # the end of the routes, topic, payload, header
_PROTO: Final = struct.Struct(">BBBBIIII")  # magic, version, type, flags, four words
_PROTO_MAGIC: Final = 0x8E
_PROTO_VERSION: Final = 1
_LENGTH: Final = struct.Struct(">I")
_TYPES: Final = (REQUEST, RESPONSE, EVENT, CONTROL)
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


@final
class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message as it travels.

    `first` is the nodeid of a request, the errnum of a response, the sequence of an event, the type
    of a control message; `second` is a matchtag or a status. `routes` has the originator first; it
    is None without a route stack, which is not the same as an empty one. `flags` leaves out those
    that follow from the parts that are present.
    """

    type: int
    first: int
    second: int
    topic: str | None = None
    payload: bytes | None = None
    routes: tuple[str, ...] | None = None
    flags: int = 0
    userid: int = 0xFFFFFFFF
    rolemask: int = 0


def encode(frame: Frame) -> bytes:
    """Return `frame` in bytes. Raises LocalProtocolError for one that `decode` would refuse."""
    try:
        _check(frame)
        parts = [hop.encode() for hop in reversed(frame.routes or ())]
        flags = frame.flags
        if frame.routes is not None:
            flags |= _ROUTE
            parts.append(b"")
        if frame.topic is not None:
            flags |= _TOPIC
            parts.append(frame.topic.encode())
        if frame.payload is not None:
            flags |= _PAYLOAD
            parts.append(frame.payload)
        words = (frame.userid, frame.rolemask, frame.first, frame.second)
        parts.append(_PROTO.pack(_PROTO_MAGIC, _PROTO_VERSION, frame.type, flags, *words))
        body = b"".join(_length_of(part) + part for part in parts)
        _check_length(len(body), FRAME_BYTES_MAX)
    except (UnfitError, struct.error, UnicodeEncodeError) as error:
        raise LocalProtocolError(f"cannot send {frame.topic or 'control'!r}: {error}") from None
    return MAGIC + _LENGTH.pack(len(body)) + body


def decode(data: bytes) -> Frame:
    """Return the only frame in `data`. Raises RemoteProtocolError."""
    reader = FrameReader()
    reader.feed(data)
    frames = list(reader.frames())
    if len(frames) != 1 or reader.has_part:
        raise RemoteProtocolError(f"expected one frame, got {len(data)} bytes that are not one")
    return frames[0]


class FrameReader:
    """Takes the bytes of a stream as they come, and gives the frames in them.

    A frame may have `frame_max` bytes after its magic number and length.
    """

    def __init__(self, frame_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_max = frame_max
        self._waiting = bytearray()

    @property
    def has_part(self) -> bool:
        """Return whether a frame has begun that is not complete."""
        return bool(self._waiting)

    def feed(self, data: bytes | bytearray) -> None:
        self._waiting += data

    def frames(self) -> Iterator[Frame]:
        """Yield the frames that are complete, in order.

        Raises RemoteProtocolError that says what was expected and what came; the stream has no
        meaning after that.
        """
        waiting = self._waiting
        try:
            while (size := _size_of_first(waiting, self._frame_max)) <= len(waiting):
                body = bytes(waiting[HEAD_BYTES:size])
                del waiting[:size]
                yield _from_parts(_parts_of(body))
        except UnfitError as error:
            raise RemoteProtocolError(str(error)) from None


def _size_of_first(waiting: bytearray, frame_max: int) -> int:
    """Return how many bytes the first frame has; HEAD_BYTES while its length has not come."""
    if not MAGIC.startswith(bytes(waiting[:4])):
        raise UnfitError(f"frame: expected the magic number {MAGIC.hex()}, got {waiting[:4].hex()}")
    if len(waiting) < HEAD_BYTES:
        return HEAD_BYTES
    (length,) = _LENGTH.unpack_from(waiting, 4)
    _check_length(length, frame_max)
    return HEAD_BYTES + int(length)


def _check_length(length: int, frame_max: int) -> None:
    if not _PROTO.size < length <= frame_max:
        raise UnfitError(
            f"frame: expected a length of {_PROTO.size + 1} to {frame_max}, got {length}"
        )


def _length_of(part: bytes) -> bytes:
    return bytes([len(part)]) if len(part) <= _SHORT_MAX else b"\xff" + _LENGTH.pack(len(part))


def _parts_of(body: bytes) -> list[bytes]:
    parts = []
    at, end = 0, len(body)
    while at < end:
        length, at = body[at], at + 1
        if length > _SHORT_MAX:
            if end - at < _LENGTH.size:
                raise UnfitError("frame: expected a part's length in 4 bytes, got the frame's end")
            (length,) = _LENGTH.unpack_from(body, at)
            at += _LENGTH.size
        if length > end - at:
            raise UnfitError(f"frame: expected a part of at most {end - at} bytes, got {length}")
        parts.append(body[at : at + length])
        at += length
        if len(parts) > _PARTS_MAX:
            raise UnfitError(f"frame: expected at most {_PARTS_MAX} parts, got more")
    return parts


def _from_parts(parts: list[bytes]) -> Frame:
    kind, flags, *words = _header(parts.pop())
    routes = topic = payload = None
    if flags & _ROUTE:
        if b"" not in parts:
            raise UnfitError("routes: expected an empty part after them, got none")
        end = parts.index(b"")
        routes = tuple(_text("routes", hop) for hop in reversed(parts[:end]))
        parts = parts[end + 1 :]
    if len(parts) != bool(flags & _TOPIC) + bool(flags & _PAYLOAD):
        raise UnfitError(
            f"frame: expected the parts that the flags {flags:#04x} name, got {len(parts)} other "
            "than routes and header"
        )
    if flags & _PAYLOAD:
        payload = parts.pop()
    if flags & _TOPIC:
        topic = _text("topic", parts.pop())
    userid, rolemask, first, second = words
    absent = flags & ~_PRESENT
    frame = Frame(kind, first, second, topic, payload, routes, absent, userid, rolemask)
    _check(frame)
    return frame


def _header(part: bytes) -> tuple[int, ...]:
    """Return the fields of the PROTO part after its magic number and version."""
    if len(part) != _PROTO.size:
        raise UnfitError(f"header: expected {_PROTO.size} bytes, got {len(part)}")
    magic, version, *fields = _PROTO.unpack(part)
    if (magic, version) != (_PROTO_MAGIC, _PROTO_VERSION):
        raise UnfitError(f"header: expected it to begin with 8e01, got {part[:2].hex()}")
    return tuple(fields)


def _text(name: str, part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise UnfitError(f"{name}: expected text in UTF-8, got {part[:16].hex()}") from None


def _check(frame: Frame) -> None:
    """Raise UnfitError unless the parts are those of the type; the same in both directions."""
    if frame.type not in _TYPES:
        raise UnfitError(f"type: expected 1, 2, 4 or 8, got {frame.type}")
    if (frame.type == CONTROL) != (frame.topic is None):
        raise UnfitError(f"topic: expected one in all messages but control, type {frame.type}")
    if frame.type == CONTROL and frame.payload is not None:
        raise UnfitError("payload: expected none in a control message")
    if not 0 <= frame.flags <= 0xFF or frame.flags & _PRESENT:
        raise UnfitError(f"flags: expected none for the parts, got {frame.flags:#04x}")
    if frame.topic is not None:
        _check_text("topic", frame.topic, TOPIC_CHARS_MAX)
    if frame.routes is not None:
        if len(frame.routes) > ROUTES_MAX:
            raise UnfitError(f"routes: expected at most {ROUTES_MAX}, got {len(frame.routes)}")
        for hop in frame.routes:
            _check_text("routes", hop, ROUTE_CHARS_MAX)


def _check_text(name: str, text: str, limit: int) -> None:
    if not 0 < len(text) <= limit or "\0" in text:
        raise UnfitError(f"{name}: expected text of 1 to {limit} characters without NUL")


# A message, which is what a program wants, and its frame.


def to_frame(message: Message) -> Frame:
    """Return the frame of `message`. Raises LocalProtocolError if its payload cannot travel.

    An object travels as JSON and a text as it is, each with a NUL, which flux-core expects. As a
    client of flux-core does, we send every message but a control message with a route stack.
    """
    flags, userid, rolemask = message.flags, message.userid, message.rolemask
    if isinstance(message, Control):
        return Frame(
            CONTROL, message.type, message.status, None, None, None, flags, userid, rolemask
        )
    try:
        payload = _payload_bytes(message.payload)
    except UnfitError as error:
        raise LocalProtocolError(f"cannot send {message.topic!r}: {error}") from None
    routes: tuple[str, ...] = ()
    match message:
        case Request():
            kind, first, second, routes = REQUEST, message.nodeid, message.matchtag, message.routes
        case Response():
            kind, first, second, routes = RESPONSE, message.errnum, message.matchtag, message.routes
        case Event():
            kind, first, second = EVENT, message.sequence, 0
    return Frame(kind, first, second, message.topic, payload, routes, flags, userid, rolemask)


def to_message(frame: Frame) -> Message:
    """Return `frame` as a message.

    A payload that is no JSON object, or one beyond the bounds of objects, becomes a text. Whoever
    expects an object says then what came; the connection goes on.
    """
    flags, userid, rolemask = frame.flags, frame.userid, frame.rolemask
    if frame.topic is None:
        return Control(frame.first, frame.second, flags, userid, rolemask)
    routes = frame.routes or ()
    is_error = frame.type == RESPONSE and frame.first != 0
    payload = _text_of(frame.payload) if is_error else _payload_of(frame.payload)
    rest = (flags, userid, rolemask)
    if frame.type == REQUEST:
        return Request(frame.topic, payload, frame.second, flags, frame.first, *rest[1:], routes)
    if frame.type == RESPONSE:
        return Response(frame.topic, payload, frame.first, frame.second, *rest, routes)
    return Event(frame.topic, payload, frame.first, *rest)


def _payload_bytes(payload: Payload) -> bytes | None:
    if payload is None:
        return None
    try:
        if isinstance(payload, str):
            return payload.encode(errors="surrogateescape") + b"\0"
        check_object(payload)
        return msgspec.json.encode(payload) + b"\0"
    except UnicodeEncodeError:
        check_texts(payload, "payload")
        raise


def _payload_of(data: bytes | None) -> Payload:
    if data is None or not data.startswith(b"{") or not data.endswith(b"\0"):
        return _text_of(data)
    payload = _object_of(data[:-1])
    return _text_of(data) if payload is None else payload


def _object_of(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in `data`; None if it is none, or beyond the bounds of objects."""
    if len(data) > FRAME_ITEMS_MAX and _has_more_items(data):
        return None
    try:
        payload = msgspec.json.decode(data)
        check_object(payload)
    except (msgspec.DecodeError, UnfitError, UnicodeError, RecursionError):
        return None
    assert isinstance(payload, dict)
    return payload


def _has_more_items(data: bytes) -> bool:
    """Whether there are more than FRAME_ITEMS_MAX values; what is in strings does not count."""
    return (
        _count_items(data) > FRAME_ITEMS_MAX
        and _count_items(_STRINGS.sub(b"", data)) > FRAME_ITEMS_MAX
    )


def _count_items(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _text_of(data: bytes | None) -> str | None:
    """Return `data` as text without its NUL; bytes that are no UTF-8 are escaped."""
    return None if data is None else data.removesuffix(b"\0").decode(errors="surrogateescape")
