"""The monitor's process: records in, a line of text for each broken clause out.

Records come as frames of MessagePack, a length before each; it ends when they do. A message that is
taken up as it was sent is not repeated: most are, and soon.
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
_AS_SENT: Final = -2
SENT_MAX: Final = 1024  # messages that both ends remember; later ones are repeated

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


class _Sent:
    """The last messages that were sent, by the place of that."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}

    def remember(self, n: int, message: Message) -> None:
        """Another one; the oldest is forgotten."""
        self._messages[n] = message
        if len(self._messages) > SENT_MAX:
            del self._messages[next(iter(self._messages))]

    def get(self, n: int) -> Message | None:
        """The one sent at a place."""
        return self._messages.get(n)


class Encoder:
    """Makes frames of records."""

    def __init__(self) -> None:
        self._sent = _Sent()

    def encode(self, record: Record) -> bytes:
        """The next record as a frame."""
        message = record.message
        type_ = _NO_MESSAGE if message is None else _PLACES[type(message)]
        if message is not None:
            if not record.ref:
                self._sent.remember(record.n, message)
            elif self._sent.get(record.ref) is message:
                type_, message = _AS_SENT, None
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
    sent = _Sent()
    while len(head := stream.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        length = int.from_bytes(head, "big")
        body = stream.read(length)
        if len(body) < length:
            return
        frame = _decoder.decode(body)
        message = _message(frame, sent)
        if message is not None and not frame.ref:
            sent.remember(frame.n, message)
        yield _record(frame, message)


def _message(frame: _Frame, sent: _Sent) -> Message | None:
    if frame.type == _AS_SENT:
        return sent.get(frame.ref)
    return None if frame.type == _NO_MESSAGE else _messages[frame.type].decode(frame.message)


def _record(frame: _Frame, message: Message | None) -> Record:
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
