"""A process that floods an instance over its Unix socket, by hand: no client of ours would.

`python -m tests.support.flooder PATH submit|streams|frame|frames`. Prints one line of JSON: how the
connection ended (`code`, `reason`; null if it did not), and how many error responses came
(`errors`, by text).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterator

from flux_trio.formats import Jobspec
from flux_trio.messages import Flag, Request, Response, topics
from flux_trio.messages.codec import decode_frame, encode

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
STUCK_S = 1.5  # the other side takes no more: long enough for it to give up
QUIET_S = 1.0  # nothing more comes
STREAMS = 10_000
BIG = 10 * 2**20
TOTAL = 100 * 2**20


def frame(payload: bytes, size: int | None = None) -> bytes:
    """A masked binary frame; its head may say another size than it has."""
    length = len(payload) if size is None else size
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
            encode(Request(topics.KVS_WATCH, {"key": "none"}, tag, int(Flag.STREAMING)))
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


def receive(connection: socket.socket, wait_s: float) -> bytes:
    """What comes, to its end or until nothing has come for `wait_s`."""
    connection.settimeout(wait_s)
    data = bytearray()
    try:
        while part := connection.recv(2**16):
            data += part
    except OSError:
        pass
    return bytes(data)


def told(data: bytes) -> dict[str, object]:
    """What the instance said."""
    errors: Counter[str] = Counter()
    for opcode, payload in frames_of(data):
        if opcode == 8:
            code, reason = struct.unpack("!H", payload[:2])[0], payload[2:].decode()
            return {"code": code, "reason": reason, "errors": errors}
        for message in decode_frame(payload):
            if isinstance(message, Response) and message.errnum:
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
        try:
            for part in FLOODS[what]():
                connection.settimeout(STUCK_S)
                connection.sendall(part)
                if what == "streams":
                    data += receive(connection, 0.0)
        except OSError:
            pass  # it does not take any more
        print(json.dumps(told(data + receive(connection, QUIET_S))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
