"""The monitor's process: reads records, and writes a line of text for each broken clause.

Records come in frames: a length, then an array of records in MessagePack. A receipt leaves its
message out if the send is near, as in a file. The process ends at the end of its input.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Final, TextIO

import msgspec

from flux_trio.messages import Control, Event, Message, Request, Response
from flux_trio.trace import Kind, Record
from flux_trio.trace.reading import SentMessages
from flux_trio.trace.record import leaves_message_out

REPORTED_MAX: Final = 10
"""Violations of one clause that are reported; more would flood the log or the live page."""

_TYPES: Final[tuple[type[Message], ...]] = (Request, Response, Event, Control)
_NO_MESSAGE: Final = -1
_SAME_MESSAGE: Final = -2  # the message of the record `ref`, in this frame or an earlier one
_PLACES: Final[dict[type, int]] = {
    type(None): _NO_MESSAGE,
    **{type_: place for place, type_ in enumerate(_TYPES)},
}
_SEND: Final[str] = Kind.SEND.value
_RECV: Final[str] = Kind.RECV.value
_LENGTH_BYTES: Final = 4
_READ_BYTES: Final = 1 << 20  # per read: the instance seldom wakes up to refill the pipe

YOUNG_OBJECTS: Final = 50_000
"""New objects before the collector looks for cycles. The records of a frame are more than its
default, and have no cycles."""

_encoder = msgspec.msgpack.Encoder()


class _Row(msgspec.Struct, array_like=True):
    n: int
    t: float
    kind: str
    party: str
    peer: str
    ref: int
    type: int
    message: msgspec.Raw = msgspec.Raw()
    data: dict[str, object] | None = None


_decoder = msgspec.msgpack.Decoder(list[_Row])
_messages: Final = tuple(msgspec.msgpack.Decoder(type_) for type_ in _TYPES)


def encode_records(records: Sequence[Record], since: int) -> bytes:
    """Encode records as a frame; the stream has all records from place `since` on."""
    body = _encoder.encode(
        [
            (r.n, r.t, r.kind, r.party, r.peer, r.ref, _SAME_MESSAGE)
            if r.kind == _RECV and leaves_message_out(r, since)  # few calls: it is asked of each
            else (
                r.n,
                r.t,
                r.kind,
                r.party,
                r.peer,
                r.ref,
                _PLACES[type(r.message)],
                r.message,
                r.data,
            )
            for r in records
        ]
    )
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def decode_records(stream: BinaryIO) -> Iterator[Record]:
    """Yield the records of a stream of frames; end at a frame that is cut short."""
    sent = SentMessages()
    while len(head := stream.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        length = int.from_bytes(head, "big")
        body = stream.read(length)
        if len(body) < length:
            return
        for row in _decoder.decode(body):
            yield _record(row, sent)


def _record(row: _Row, sent: SentMessages) -> Record:
    message: Message | None = None
    if row.type == _SAME_MESSAGE:
        message = sent.sent_at(row.ref)
    elif row.type != _NO_MESSAGE:
        message = _messages[row.type].decode(row.message)
        if row.kind == _SEND:
            sent.note(row.n, message)
    return Record(row.n, row.t, row.kind, row.party, row.peer, row.ref, message, row.data)


def watch(records: Iterable[Record], out: TextIO, edition: str) -> None:
    """Judge records as they come, by the rules of an edition, and print each violation at once."""
    from flux_trio.formats import printable
    from flux_trio.judge import Monitor, load_clauses
    from flux_trio.judge.rules import rules_of_instance

    clauses = load_clauses()
    monitor = Monitor(rules_of_instance(edition, clauses), clauses)
    reported: Counter[str] = Counter()
    for record in records:
        for found in (*monitor.observe(record), *monitor.unexplained):
            reported[found.clause] += 1
            if reported[found.clause] <= REPORTED_MAX:
                by = printable(found.blamed or "an unknown party")
                text = printable(" ".join(found.text.split()))
                what = found.clause if found.is_unexplained else f"{found.clause} broken by {by}"
                print(f"{what}: {text} (record {record.n})", file=out)
            if reported[found.clause] == REPORTED_MAX:
                print(f"{found.clause}: further violations are not logged", file=out)
            out.flush()
        # they are reported, and an instance may run for months
        monitor.violations.clear()
        monitor.unexplained.clear()


def main() -> None:
    """Judge the records on standard input until it ends; the argument is the edition."""
    gc.set_threshold(YOUNG_OBJECTS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the instance handles it and closes the pipe
    with open(sys.stdin.fileno(), "rb", buffering=_READ_BYTES, closefd=False) as records:
        watch(decode_records(records), sys.stdout, sys.argv[1])


if __name__ == "__main__":
    main()
