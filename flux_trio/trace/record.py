"""One record of the trace, the sinks that keep records, and their JSON form."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from flux_trio.formats import MISSING, FormatError
from flux_trio.messages import Control, Event, Message, Request, Response, payload_bytes

RING_SIZE: Final = 4096  # records: the last moments of a busy instance
RING_BYTES_MAX: Final = (
    4 * 2**20
)  # of their payloads as JSON; in memory that is a few times as much

RING_SMALL_BYTES: Final = 1024  # a message up to this size counts only as a record


class Kind(StrEnum):
    """What a record tells."""

    SEND = "send"
    RECV = "recv"
    DROP = "drop"  # a message nobody will receive: its peer is gone or was replaced
    MODULE = "module"
    EVENT = "event"
    RESOURCE = "resource"
    HOOK = "hook"
    STATE = "state"
    CONFIG = "config"
    COUNTERS = "counters"
    CLOCK = "clock"  # the wall clock was set
    INSTANCE = "instance"


# Looked up once: asking a member for its value is slow, and every message is sent and received.
_SEND: Final[str] = Kind.SEND.value
_RECV: Final[str] = Kind.RECV.value
_DROP: Final[str] = Kind.DROP.value


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing that happened.

    `n` is its place in the order and `t` its time, seconds since the Unix epoch. For messages,
    `party` sent or received it, `peer` is the other end, and `ref` is the place of the send that
    a recv or drop belongs to. Other kinds put what they tell into `data`.
    """

    n: int
    t: float
    kind: str
    party: str
    peer: str = ""
    ref: int = 0
    message: Message | None = None
    data: dict[str, Any] | None = None


Sink = Callable[[Record], object]


class Ring:
    """The default sink: the last `size` records, with at most `bytes_max` bytes of large messages.

    A large message counts where it was sent. When there are too many bytes of them, the oldest
    records go, up to the oldest large message. What received a message has the same object as what
    sent it, so twice `bytes_max` is the most that is held. What records have as `data` is small by
    the bounds of those who make it.
    """

    def __init__(self, size: int = RING_SIZE, bytes_max: int = RING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._records: deque[Record] = deque(maxlen=size)
        self._keep: Sink = self._records.append  # what is no send: most records
        self._large: deque[tuple[int, int]] = deque()  # place and bytes of each large message
        self._bytes = 0  # the sum of those

    def follow(self, trace: Trace) -> None:
        """Keep what `trace` records from now on."""
        trace.add_sink(self._keep, self._keep_sent)

    def _keep_sent(self, record: Record) -> None:
        self._keep(record)
        size = payload_bytes(record.message)
        if size > RING_SMALL_BYTES:
            self._large.append((record.n, size))
            self._bytes += size
            if self._bytes > self._bytes_max:
                self._make_room()

    def _make_room(self) -> None:
        records, large = self._records, self._large
        while large and (self._bytes > self._bytes_max or large[0][0] < records[0].n):
            place, size = large.popleft()
            self._bytes -= size
            while records and records[0].n <= place:
                records.popleft()

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records))

    def __len__(self) -> int:
        return len(self._records)


class Trace:
    """Numbers records and hands each to every sink, in order, as it happens.

    `t` is when the last message was sent or received: seconds since the Unix epoch.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.t = 0.0
        self._sinks: list[tuple[Sink, Sink]] = []  # of what is no send, of what is one
        self._emit: Sink = self._emit_to_all
        self._emit_sent: Sink = self._emit_sent_to_all
        self._n = 0

    def add_sink(self, sink: Sink, of_sends: Sink | None = None) -> None:
        """From now on, `sink` is called with every record; it must not block.

        With `of_sends`, that one is called instead with each record of a message that was sent.
        """
        self._sinks.append((sink, of_sends or sink))
        self._choose_emit()

    def remove_sink(self, sink: Sink) -> None:
        """Stop calling `sink`, and what is called instead of it."""
        self._sinks.remove(next(each for each in self._sinks if each[0] == sink))
        self._choose_emit()

    def sent(self, party: str, peer: str, message: Message) -> int:
        """`party` sent `message` towards `peer`; returns its place in the order."""
        self._n = n = self._n + 1
        self.t = now = self._now()
        if self._sinks:
            self._emit_sent(Record(n, now, _SEND, party, peer, 0, message))
        return n

    def received(self, party: str, peer: str, message: Message, ref: int) -> None:
        """`party` took up the message that was sent at place `ref`."""
        self._n = n = self._n + 1
        self.t = now = self._now()
        if self._sinks:
            self._emit(Record(n, now, _RECV, party, peer, ref, message))

    def received_all(self, party: str, taken: Sequence[tuple[int, Any]]) -> None:
        """`party` took up all that waited, each with its place; what has none it was not sent."""
        self.t = now = self._now()
        if not self._sinks:
            self._n += sum(ref >= 0 for ref, _ in taken)
            return
        for ref, message in taken:
            if ref >= 0:
                self._n = n = self._n + 1
                self._emit(Record(n, now, _RECV, party, "", ref, message))

    def dropped(self, party: str, message: Message, ref: int, reason: str) -> None:
        """The message sent at place `ref` will reach nobody."""
        self._n = n = self._n + 1
        if self._sinks:
            data = {"reason": reason}
            self._emit(Record(n, self._now(), _DROP, party, "", ref, message, data))

    def note(self, kind: str, party: str, data: dict[str, Any]) -> None:
        """Something other than a message."""
        self._n = n = self._n + 1
        if self._sinks:
            self._emit(Record(n, self._now(), kind, party, data=data))

    def note_all(self, party: str, notes: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Several (kind, data) at once."""
        if not self._sinks:
            self._n += len(notes)
            return
        now = self._now()
        for kind, data in notes:
            self._n = n = self._n + 1
            self._emit(Record(n, now, kind, party, "", 0, None, data))

    def _choose_emit(self) -> None:
        """The one sink there mostly is, is called without a loop: every message comes by twice."""
        if len(self._sinks) == 1:
            ((self._emit, self._emit_sent),) = self._sinks
        else:
            self._emit, self._emit_sent = self._emit_to_all, self._emit_sent_to_all

    def _emit_to_all(self, record: Record) -> None:
        for sink, _ in self._sinks:
            sink(record)

    def _emit_sent_to_all(self, record: Record) -> None:
        for _, sink in self._sinks:
            sink(record)


_TYPES: Final = {"request": Request, "response": Response, "event": Event, "control": Control}
_NAMES: Final = {shape: name for name, shape in _TYPES.items()}
_encoder = msgspec.json.Encoder(order="sorted")


class _WithMessage(msgspec.Struct, omit_defaults=True):
    """What a line has of a record with a message."""

    n: int
    t: float
    kind: str
    party: str
    type: str
    message: Message
    peer: str = ""
    ref: int = 0
    data: dict[str, Any] | None = None


def record_to_json(record: Record) -> bytes:
    """One line of the JSON-lines trace, without its newline; `type` is that of the message."""
    message = record.message
    if message is None:
        return _encoder.encode(record)
    r = record
    line = _WithMessage(
        r.n, r.t, r.kind, r.party, _NAMES[type(message)], message, r.peer, r.ref, r.data
    )
    return _encoder.encode(line)


def record_from_json(line: bytes | str) -> Record:
    """The record a line holds. Raises FormatError with the key, what was expected and what came."""
    try:
        fields = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error) from None
    except (RecursionError, UnicodeError):  # too deeply nested; lone surrogates
        raise FormatError("a record that JSON can carry", line) from None
    return Record(
        n=fields.n,
        t=fields.t,
        kind=fields.kind,
        party=fields.party,
        peer=fields.peer,
        ref=fields.ref,
        message=_message(fields),
        data=fields.data,
    )


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    n: int
    t: float
    kind: str
    party: str
    peer: str = ""
    ref: int = 0
    type: str | None = None
    message: dict[str, Any] | None = None
    data: dict[str, Any] | None = None


def _message(line: _Line) -> Message | None:
    if line.message is None:
        return None
    shape = _TYPES.get(line.type or "")
    if shape is None:
        raise FormatError(f"one of {', '.join(_TYPES)}", line.type or MISSING, "type")
    try:
        message: Message = msgspec.convert(line.message, shape)
    except msgspec.ValidationError as error:
        raise FormatError.of_msgspec(error).at("message") from None
    return message
