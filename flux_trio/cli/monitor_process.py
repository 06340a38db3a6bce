"""The monitor's process: records in, a line of text for each broken clause out.

Records come as frames of MessagePack, a length before each; it ends when they do.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, TextIO

import msgspec

from flux_trio.messages import Control, Event, Message, Request, Response
from flux_trio.trace import Record

TOLD_MAX: Final = 10
"""Violations of one clause that are told: the first show how, and more would flood the log."""

_TYPES: Final[tuple[type[Message], ...]] = (Request, Response, Event, Control)
_PLACES: Final = {type_: place for place, type_ in enumerate(_TYPES)}
_LENGTH_BYTES: Final = 4
_NO_MESSAGE: Final = -1

_encoder = msgspec.msgpack.Encoder()


class _Frame(msgspec.Struct, array_like=True):
    n: int
    t: float
    kind: str
    party: str
    peer: str
    ref: int
    type: int
    message: msgspec.Raw
    data: dict[str, object] | None


_decoder = msgspec.msgpack.Decoder(_Frame)
_messages: Final = tuple(msgspec.msgpack.Decoder(type_) for type_ in _TYPES)


def encode_record(record: Record) -> bytes:
    """A record as a frame."""
    message = record.message
    type_ = _NO_MESSAGE if message is None else _PLACES[type(message)]
    body = _encoder.encode(
        (
            record.n,
            record.t,
            record.kind,
            record.party,
            record.peer,
            record.ref,
            type_,
            message,
            record.data,
        )
    )
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def decode_records(stream: BinaryIO) -> Iterator[Record]:
    """The records in a stream of frames; one that is cut short ends it."""
    while len(head := stream.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        length = int.from_bytes(head, "big")
        body = stream.read(length)
        if len(body) < length:
            return
        yield _record(_decoder.decode(body))


def _record(frame: _Frame) -> Record:
    message = None if frame.type == _NO_MESSAGE else _messages[frame.type].decode(frame.message)
    return Record(
        frame.n, frame.t, frame.kind, frame.party, frame.peer, frame.ref, message, frame.data
    )


def watch(records: Iterable[Record], out: TextIO) -> None:
    """Judge records as they come, and tell of each violation at once."""
    from flux_trio.conformance import Monitor, load_clauses
    from flux_trio.conformance.rules import ALL_RULES

    monitor = Monitor(ALL_RULES, load_clauses())
    told: Counter[str] = Counter()
    for record in records:
        for found in monitor.observe(record):
            told[found.clause] += 1
            if told[found.clause] <= TOLD_MAX:
                by = found.party or "an unknown party"
                text = " ".join(found.text.split())
                print(f"{found.clause} broken by {by}: {text} (record {record.n})", file=out)
            if told[found.clause] == TOLD_MAX:
                print(f"{found.clause}: what more there is of it is not logged", file=out)
            out.flush()
        monitor.violations.clear()  # told; an instance may run for months


def main() -> None:
    """Judge what comes on standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the instance, which closes the pipe
    watch(decode_records(sys.stdin.buffer), sys.stdout)


if __name__ == "__main__":
    main()
