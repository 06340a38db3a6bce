"""Bytes and payloads that are almost right: made from right ones, by a seeded source."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from msgspec import structs

from flux_trio.messages import Control, Event, Message, Request, Response, native
from flux_trio.messages.codec import encode

# What the rules are about: each end of a range, and just beyond it.
NUMBERS: Final = (0, 1, -1, 255, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, -(2**63), 0.5, 1e308)
TEXTS: Final = ("", "x", "a.b", "\0", "\u00e9", "x" * 300, "0-9", "[0-", "f1", "*", "1e9d")
LEAVES: Final = (*NUMBERS, *TEXTS, None, True, False, [], {})
# Heads of CBOR: tags, indefinite lengths, byte strings, simple values, lengths that lie.
HEADS: Final = (
    b"\xc0", b"\xd8\x1c", b"\x9f", b"\xbf", b"\xff", b"\x5f", b"\x7f", b"\x41x", b"\xf7",
    b"\xf9\x7e\x00", b"\xfb" + b"\x7f\xf0" + bytes(6), b"\x9b" + b"\xff" * 8,
    b"\xbb" + b"\xff" * 8, b"\x7b" + b"\xff" * 8, b"\x9a\x00\xff\xff\xff", b"\x81" * 80,
)  # fmt: skip

# Of parts and headers: lengths that lie, the magic numbers, other types and flags.
NATIVE_HEADS: Final = (
    b"\xff\xff\xff\xff\xff", b"\xff\0\0\0\x01", b"\0", b"\x14\x8e\x01", b"\x8e\x01\x03\x0b",
    b"\x8e\x01\x08\x08", b"\x01\0" * 70, native.MAGIC,
)  # fmt: skip
JSON_PARTS: Final = (
    b"{", b"[" * 70, b"1e999", b"18446744073709551616", b'"\\ud800"', b"\xff", b"\0", b'"a":',
    b"NaN",
)  # fmt: skip


def value(source: Random, depth: int = 3) -> Any:
    """Anything that a payload could have."""
    kind = source.random()
    if depth and kind < 0.15:
        return [value(source, depth - 1) for _ in range(source.randrange(4))]
    if depth and kind < 0.3:
        keys = (source.choice(TEXTS) for _ in range(source.randrange(4)))
        return {key: value(source, depth - 1) for key in keys}
    return source.choice(LEAVES)


def changed(source: Random, payload: Any) -> Any:
    """`payload` with one thing in it replaced, left out or added, wherever."""
    if isinstance(payload, dict) and payload and source.random() < 0.8:
        key = source.choice(list(payload))
        others = {name: each for name, each in payload.items() if name != key}
        match source.randrange(6):
            case 0:
                return others
            case 1:
                return {**payload, source.choice(TEXTS): value(source)}
            case _:
                return {**others, key: changed(source, payload[key])}
    if isinstance(payload, list) and payload and source.random() < 0.8:
        index = source.randrange(len(payload))
        return [*payload[:index], changed(source, payload[index]), *payload[index + 1 :]]
    return value(source)


def message(source: Random) -> Message:
    """A message that may travel."""
    topic = source.choice(("kvs.lookup", "x", "job-manager.raise", "a" * 255))
    payload = source.choice((None, {}, {"id": 2**64 - 1}, {"a": [1.5, None, {"b": "x" * 40}]}))
    tag = source.choice((0, 1, 2**32 - 1))
    routes = tuple("r" * source.randrange(1, 4) for _ in range(source.randrange(3)))
    match source.randrange(4):
        case 0:
            return Request(topic, payload, tag, source.randrange(256) & 0xF4, routes=routes)
        case 1:
            text = "no" if source.random() < 0.5 else None
            errnum = source.choice((0, 1, 38))
            return Response(topic, text if errnum else payload, errnum, tag, routes=routes)
        case 2:
            return Event(topic, payload, tag)
    return Control(source.randrange(4), tag)


def frame(source: Random) -> bytes:
    """A frame in which something may be wrong."""
    if source.random() < 0.05:
        return source.randbytes(source.randrange(64))
    data = bytearray(b"".join(encode(message(source)) for _ in range(source.choice((1, 1, 1, 3)))))
    damage(source, data, HEADS)
    return bytes(data)


def damage(source: Random, data: bytearray, heads: tuple[bytes, ...]) -> None:
    """Change, leave out, double or insert bytes here and there."""
    for _ in range(source.choice((0, 1, 1, 1, 2, 4))):
        at = source.randrange(len(data) + 1)
        match source.randrange(6):
            case 0:
                data[at : at + 1] = source.randbytes(1)
            case 1:
                data[at : at + 1] = b""
            case 2:
                data[at:at] = source.choice(heads)
            case 3:
                del data[at:]
            case 4:
                data[at : at + 1] = bytes([(data[at] if at < len(data) else 0) ^ (1 << at % 8)])
            case 5:
                data[at:at] = data[source.randrange(len(data) + 1) :][:40]


def native_frame(source: Random) -> bytes:
    """A frame of Flux's own wire in which something may be wrong.

    In most of them the length of the whole is right, so that the parts are looked at.
    """
    frame = native.to_frame(message(source))
    if frame.payload is not None:
        payload = bytearray(frame.payload)
        damage(source, payload, JSON_PARTS)
        frame = structs.replace(frame, payload=bytes(payload))
    data = bytearray(native.encode(frame))
    damage(source, data, NATIVE_HEADS)
    if source.random() < 0.8:
        length = len(data) - native.HEAD_BYTES
        data[: native.HEAD_BYTES] = native.MAGIC + max(length, 0).to_bytes(4, "big")
    return bytes(data)


def stream(source: Random, upgrade: bytes) -> tuple[bytes, bytes]:
    """What a client says before it is let in, and after: WebSocket frames, or almost."""
    if source.random() < 0.2:
        noise = bytearray(upgrade)
        for _ in range(3):
            noise[source.randrange(len(noise))] = source.randrange(256)
        return bytes(noise), b""
    frames = bytearray()
    for _ in range(source.randrange(1, 4)):
        payload = frame(source)[:125]
        opcode = source.choice((0x82, 0x82, 0x82, 0x81, 0x02, 0x89, 0x88, 0xF2))
        frames += bytes([opcode, 0x80 | len(payload)]) + bytes(4) + payload
    if source.random() < 0.5:
        frames[source.randrange(len(frames))] = source.randrange(256)
    return upgrade, bytes(frames)
