"""A process that floods an instance over its Unix socket, by hand: no client of ours would.

`python -m tests.support.flooder PATH submit|streams|frame|frames`. It sends, and reads until the
instance closes the connection or answers the request that it sends last. Prints one line of JSON:
how the connection ended (`code`, `reason`; null if it did not), and how many error responses came
(`errors`, by text).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from flux_trio.formats import Jobspec
from flux_trio.messages import Flag, Request, Response, topics
from flux_trio.messages.codec import decode_frame, encode

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
STREAMS = 10_000
LAST = 2**31  # the matchtag of the last request
LAST_MARK = b"\x1a\x80\x00\x00\x00"  # that number in CBOR
READ_BYTES = 2**16
BIG = 10 * 2**20
TOTAL = 100 * 2**20


def frame(payload: bytes, size: int | None = None) -> bytes:
    """A masked binary frame; its head may say another size than it has."""
    length = len(payload) if size is None else size
    if length < 126:
        return b"\x82" + bytes([0x80 | length]) + bytes(4) + payload
    if length < 2**16:
        return b"\x82\xfe" + struct.pack("!H", length) + bytes(4) + payload
    return b"\x82\xff" + struct.pack("!Q", length) + bytes(4) + payload


def submissions() -> Iterator[bytes]:
    """For ever."""
    spec = Jobspec.from_command(["true"]).to_json()
    payload = {"jobspec": spec}
    matchtag = 0
    while True:
        batch = [
            encode(Request(topics.INGEST_SUBMIT, payload, matchtag + n)) for n in range(1, 101)
        ]
        matchtag += 100
        yield frame(b"".join(batch))


def streams() -> Iterator[bytes]:
    for start in range(1, STREAMS, 100):
        batch = [
            encode(Request(topics.KVS_OWN.watch, {"key": "none"}, tag, int(Flag.STREAMING)))
            for tag in range(start, start + 100)
        ]
        yield frame(b"".join(batch))


def one_frame() -> Iterator[bytes]:
    yield frame(bytes(2**16), size=TOTAL)
    for _ in range(TOTAL // 2**16 - 1):
        yield bytes(2**16)


def big_frames() -> Iterator[bytes]:
    big = frame(encode(Request(topics.BROKER_INFO, {"x": "x" * BIG}, 1)))
    for _ in range(TOTAL // BIG):
        yield big


FLOODS = {"submit": submissions, "streams": streams, "frame": one_frame, "frames": big_frames}
READS_MEANWHILE = {"streams"}


def receive_what_waits(connection: socket.socket) -> bytes:
    """What has come already."""
    data = bytearray()
    with suppress(BlockingIOError):
        while part := connection.recv(READ_BYTES, socket.MSG_DONTWAIT):
            data += part
    return bytes(data)


def receive_to_the_end(connection: socket.socket, data: bytes) -> bytes:
    """`data` and what comes after it, up to the answer to the last request or the end."""
    found = bytearray(data)
    with suppress(OSError):
        while not is_answered(found) and (part := connection.recv(READ_BYTES)):
            found += part
    return bytes(found)


def is_answered(data: bytearray) -> bool:
    """Whether what was read last completes the frame with the answer to the last request."""
    if LAST_MARK not in data[-2 * READ_BYTES :]:
        return False
    return any(LAST_MARK in payload for _, payload in frames_of(bytes(data)))


def told(data: bytes) -> dict[str, object]:
    """What the instance said."""
    errors: Counter[str] = Counter()
    for opcode, payload in frames_of(data):
        if opcode == 8:
            code, reason = struct.unpack("!H", payload[:2])[0], payload[2:].decode()
            return {"code": code, "reason": reason, "errors": errors}
        for message in decode_frame(payload):
            if isinstance(message, Response) and message.errnum and message.matchtag != LAST:
                errors[message.error_text] += 1
    return {"code": None, "reason": None, "errors": errors}


def frames_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 2 <= len(data):
        opcode, length = data[at] & 0xF, data[at + 1]
        at += 2
        if length >= 126:
            width = 2 if length == 126 else 8
            length = int.from_bytes(data[at : at + width], "big")
            at += width
        if at + length > len(data):
            return
        yield opcode, data[at : at + length]
        at += length


def main(path: str, what: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(UPGRADE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1)
        data = b""
        with suppress(OSError):  # raised when the instance has closed the connection
            for part in FLOODS[what]():
                connection.sendall(part)
                if what in READS_MEANWHILE:
                    data += receive_what_waits(connection)
            connection.sendall(frame(encode(Request(topics.BROKER_INFO, {}, LAST))))
        print(json.dumps(told(receive_to_the_end(connection, data))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
