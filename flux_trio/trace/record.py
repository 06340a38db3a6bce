"""One record of the trace, the `Trace` that passes records to sinks, and the JSON form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from flux_trio.formats import MISSING, FormatError
from flux_trio.messages import Control, Event, Message, Request, Response


class Kind(StrEnum):
    """The kinds of records."""

    SEND = "send"
    RECV = "recv"
    DROP = "drop"  # a message that will not be received: its peer is gone or was replaced
    MODULE = "module"
    EVENT = "event"
    RESOURCE = "resource"
    HOOK = "hook"
    STATE = "state"
    CONFIG = "config"
    COUNTERS = "counters"
    CLOCK = "clock"  # the wall clock was set
    INSTANCE = "instance"
    FAULT = "fault"  # something was broken on purpose
    TURN = "turn"  # a core took inputs, and decided: see `flux_trio.cores.recorded`


KILLED: Final = "killed on request"
"""In the reason of a module record: the module has not failed by itself."""

# Looked up once: reading a member's value is slow, and every message is sent and received.
_SEND: Final[str] = Kind.SEND.value
_RECV: Final[str] = Kind.RECV.value
_DROP: Final[str] = Kind.DROP.value
_TURN: Final[str] = Kind.TURN.value


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing that happened.

    `n` is its place in the order and `t` its time, in seconds since the Unix epoch. For messages,
    `party` sent or received it, `peer` is the other end, and `ref` is the place of the send that a
    recv or drop belongs to. Other kinds have their contents in `data`. A turn has the place of the
    record before it: the places are the same whether turns are recorded or not.
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


class Trace:
    """Numbers the records and passes each to every sink, in order, at once.

    Only the `turn_sinks` get the turns of cores too, and only modules that start later record them.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sinks: list[Sink] = []
        self.has_sinks = False  # as an attribute, since every call of a plugin looks at it
        self.turn_sinks: list[Sink] = []
        self._n = 0

    def add_sink(self, sink: Sink, *, turns: bool = False) -> None:
        """Call `sink` with every record from now on, and if `turns` with the turns of cores.

        It must not block.
        """
        self._sinks.append(sink)
        self.has_sinks = True
        if turns:
            self.turn_sinks.append(sink)

    def remove_sink(self, sink: Sink) -> None:
        self._sinks.remove(sink)
        self.has_sinks = bool(self._sinks)
        if sink in self.turn_sinks:
            self.turn_sinks.remove(sink)

    def hand_over(self) -> Trace:
        """Return a trace that goes on with the numbers and sinks; this one has no sink any more."""
        other = Trace(self._now)
        other._n, other._sinks, other.has_sinks = self._n, self._sinks, self.has_sinks
        self._sinks, self.has_sinks = [], False
        other.turn_sinks, self.turn_sinks = self.turn_sinks, []
        return other

    def sent(self, party: str, peer: str, message: Message) -> int:
        """Record that `party` sent `message` to `peer`; return its place in the order."""
        self._n = n = self._n + 1
        if self._sinks:
            self._emit(Record(n, self._now(), _SEND, party, peer, 0, message))
        return n

    def received(self, party: str, peer: str, message: Message, ref: int) -> None:
        """Record that `party` received the message sent at place `ref`."""
        self._n = n = self._n + 1
        if self._sinks:
            self._emit(Record(n, self._now(), _RECV, party, peer, ref, message))

    def received_all(self, party: str, taken: Sequence[tuple[int, Any]]) -> None:
        """Record that `party` received `taken`, pairs (place, message); skip places below 0."""
        if not self._sinks:
            self._n += sum([ref >= 0 for ref, _ in taken])
            return
        now = self._now()
        for ref, message in taken:
            if ref >= 0:
                self._n = n = self._n + 1
                self._emit(Record(n, now, _RECV, party, "", ref, message))

    def dropped(self, party: str, message: Message, ref: int, reason: str) -> None:
        """Record that the message sent at place `ref` will not be received."""
        self._n = n = self._n + 1
        if self._sinks:
            data = {"reason": reason}
            self._emit(Record(n, self._now(), _DROP, party, "", ref, message, data))

    def note(self, kind: str, party: str, data: dict[str, Any]) -> None:
        """Record something other than a message."""
        self._n = n = self._n + 1
        if self._sinks:
            self._emit(Record(n, self._now(), kind, party, data=data))

    def note_all(self, party: str, notes: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Record several (kind, data) at once."""
        if not self._sinks:
            self._n += len(notes)
            return
        now = self._now()
        for kind, data in notes:
            self._n = n = self._n + 1
            self._emit(Record(n, now, kind, party, "", 0, None, data))

    def turn(self, party: str, data: dict[str, Any]) -> None:
        """Record a turn of the core of `party`."""
        record = Record(self._n, self._now(), _TURN, party, data=data)
        for sink in self.turn_sinks:
            sink(record)

    def _emit(self, record: Record) -> None:
        for sink in self._sinks:
            sink(record)


_TYPES: Final = {"request": Request, "response": Response, "event": Event, "control": Control}
_NAMES: Final = {shape: name for name, shape in _TYPES.items()}
_encoder = msgspec.json.Encoder(order="sorted")
_as_they_are = msgspec.json.Encoder()


class _Received(msgspec.Struct, omit_defaults=True):
    """The JSON fields of a recv that leaves its message out."""

    n: int
    t: float
    kind: str
    party: str
    ref: int
    peer: str = ""


class _WithMessage(msgspec.Struct, omit_defaults=True):
    """The JSON fields of a record with a message; `type` is the message's."""

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
    """Return one line of the JSON-lines trace, without newline, with its keys in sorted order."""
    return _encoder.encode(_written(record))


NEAR: Final = 4096
"""Places from a send to a recv that leaves its message out. A reader keeps the messages of so many
records."""


def leaves_message_out(record: Record, since: int) -> bool:
    """Whether a receipt need not repeat its message: the send is near, and not before `since`."""
    return (
        record.kind == _RECV
        and record.ref >= since
        and record.n - record.ref <= NEAR
        and record.data is None
    )


def records_to_json(records: Iterable[Record], since: int) -> bytes:
    """Return lines of the JSON-lines trace; keys have the order in which a receiver sees them.

    A recv leaves its message out if the send is near, and not before the place `since`.
    """
    return _as_they_are.encode_lines(
        [
            r  # few calls: it is asked of each
            if r.message is None
            else _Received(r.n, r.t, r.kind, r.party, r.ref, r.peer)
            if r.kind == _RECV and leaves_message_out(r, since)
            else _written(r)
            for r in records
        ]
    )


def _written(r: Record) -> Record | _WithMessage:
    message = r.message
    if message is None:
        return r
    name = _NAMES[type(message)]
    return _WithMessage(r.n, r.t, r.kind, r.party, name, message, r.peer, r.ref, r.data)


def record_from_json(line: bytes | str) -> Record:
    """Parse a line; FormatError has the key, what was expected and what came."""
    try:
        fields = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error) from None
    except (RecursionError, UnicodeError):  # nested too deeply, or lone surrogates
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
