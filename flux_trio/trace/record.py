"""One record of the trace, the `Trace` that passes records to sinks, and the JSON form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.formats import LESS_DEEP, MISSING, FormatError
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
    SOURCE = "source"  # the first record of a trace that a program beside the instance has made
    TURN = "turn"  # a core took inputs, and decided: see `flux_trio.cores.turn_records`


KILLED: Final = "killed on request"
"""In the reason of a module record: the module has not failed by itself."""

ENDED: Final = "the trace is whole"
"""`data.what` of the last record of a trace that was written whole; its kind is `instance`."""

SLEEP: Final = "sleep"
"""The `type` of a fault record: the machine sleeps for its `seconds`, and nobody acts meanwhile."""

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


class WithMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record with a message, in the form that it has as JSON: `type` is the message's."""

    n: int
    t: float
    kind: str
    party: str
    type: str
    message: Message
    peer: str = ""
    ref: int = 0
    data: dict[str, Any] | None = None


class Receipts(msgspec.Struct, frozen=True, gc=False):
    """What `party` received at once, as (place of the send, message): records of kind recv.

    The first one has the place `n`, and each further one the next place.
    """

    n: int
    t: float
    party: str
    taken: list[tuple[int, Message]]

    def records(self) -> list[Record]:
        return [
            Record(n, self.t, _RECV, self.party, "", ref, message)
            for n, (ref, message) in enumerate(self.taken, self.n)
        ]


class Notes(msgspec.Struct, frozen=True, gc=False):
    """What `party` recorded at once, as (kind, data).

    The first one has the place `n`, and each further one the next place.
    """

    n: int
    t: float
    party: str
    taken: Sequence[tuple[str, dict[str, Any]]]

    def records(self) -> list[Record]:
        t, party = self.t, self.party
        return [
            Record(n, t, kind, party, "", 0, None, data)
            for n, (kind, data) in enumerate(self.taken, self.n)
        ]


Written: TypeAlias = Record | WithMessage | Receipts | Notes
Sink = Callable[[Record], object]
TurnSink = Callable[[Written], object]


class Trace:
    """Numbers the records and passes each to every sink, in order, at once.

    The turn sinks write a trace that can be replayed: they get the turns of cores too. If there are
    no others, they get sends in the form that these have as JSON, and what is received or noted at
    once in one piece. Only modules that start later record their turns.
    """

    def __init__(self, now: Callable[[], float], nbefore: int = 0) -> None:
        self._now = now
        self._sinks: list[Sink] = []
        self._turn_sinks: list[TurnSink] = []
        self._n = nbefore  # the place of the last record; a trace may go on with another's
        self._sinks_changed()

    def _sinks_changed(self) -> None:
        """Look up what every message and every call of a plugin needs."""
        turns = self._turn_sinks
        self._every = every = tuple[Sink, ...]([*self._sinks, *turns])
        self.has_sinks = bool(every)
        self.has_turn_sinks = bool(turns)
        self._emit: Sink = every[0] if len(every) == 1 else self._emit_to_all
        self._emit_written: TurnSink = turns[0] if len(turns) == 1 else self._emit_to_turn_sinks

    def add_sink(self, sink: Sink) -> None:
        """Call `sink` with every record from now on. It must not block."""
        self._sinks.append(sink)
        self._sinks_changed()

    def add_turn_sink(self, sink: TurnSink) -> None:
        """Call `sink` with every record from now on, and with the turns of cores.

        It must not block.
        """
        self._turn_sinks.append(sink)
        self._sinks_changed()

    def remove_sink(self, sink: Sink) -> None:
        """Do not call `sink` any more."""
        if sink in self._turn_sinks:
            self._turn_sinks.remove(sink)
        else:
            self._sinks.remove(sink)
        self._sinks_changed()

    def hand_over(self) -> Trace:
        """Return a trace that goes on with the numbers and sinks; this one has no sink any more."""
        other = Trace(self._now, self._n)
        other._sinks, self._sinks = self._sinks, []
        other._turn_sinks, self._turn_sinks = self._turn_sinks, []
        other._sinks_changed()
        self._sinks_changed()
        return other

    @property
    def nrecords(self) -> int:
        """Return how many records there were so far, also without a sink."""
        return self._n

    def sent(self, party: str, peer: str, message: Message) -> int:
        """Record that `party` sent `message` to `peer`; return its place in the order."""
        self._n = n = self._n + 1
        if self._sinks:
            self._emit(Record(n, self._now(), _SEND, party, peer, 0, message))
        elif self.has_turn_sinks:
            type_ = _NAMES[type(message)]
            self._emit_written(WithMessage(n, self._now(), _SEND, party, type_, message, peer))
        return n

    def received(self, party: str, peer: str, message: Message, ref: int) -> None:
        """Record that `party` received the message sent at place `ref`."""
        self._n = n = self._n + 1
        if self.has_sinks:
            self._emit(Record(n, self._now(), _RECV, party, peer, ref, message))

    def received_all(self, party: str, taken: Sequence[tuple[int, Any]]) -> None:
        """Record that `party` received `taken`, pairs (place, message); skip places below 0."""
        if not self.has_sinks:
            return  # without a reader only sends need a place
        now = self._now()
        if not self._sinks:
            messages = [each for each in taken if each[0] >= 0]
            if messages:
                self._emit_written(Receipts(self._n + 1, now, party, messages))
                self._n += len(messages)
            return
        for ref, message in taken:
            if ref >= 0:  # numbered one by one, since a sink may add a record
                self._n = n = self._n + 1
                self._emit(Record(n, now, _RECV, party, "", ref, message))

    def dropped(self, party: str, message: Message, ref: int, reason: str) -> None:
        """Record that the message sent at place `ref` will not be received."""
        self._n = n = self._n + 1
        if self.has_sinks:
            data = {"reason": reason}
            self._emit(Record(n, self._now(), _DROP, party, "", ref, message, data))

    def note(self, kind: str, party: str, data: dict[str, Any]) -> None:
        """Record something other than a message."""
        self._n = n = self._n + 1
        if self.has_sinks:
            self._emit(Record(n, self._now(), kind, party, data=data))

    def note_all(self, party: str, notes: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Record several (kind, data) at once."""
        if not self.has_sinks:
            self._n += len(notes)
            return
        now, emit = self._now(), self._emit
        if not self._sinks:
            if notes:
                self._emit_written(Notes(self._n + 1, now, party, notes))
                self._n += len(notes)
            return
        for kind, data in notes:  # numbered one by one, since a sink may add a record
            self._n = n = self._n + 1
            emit(Record(n, now, kind, party, "", 0, None, data))

    def turn(self, party: str, data: dict[str, Any]) -> None:
        """Record a turn of the core of `party`."""
        self._emit_written(Record(self._n, self._now(), _TURN, party, data=data))

    def _emit_to_all(self, record: Record) -> None:
        for sink in self._every:
            sink(record)

    def _emit_to_turn_sinks(self, written: Written) -> None:
        for sink in self._turn_sinks:
            sink(written)


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


class _ReceivedAll(msgspec.Struct):
    """The JSON fields of several that leave their messages out."""

    n: int
    t: float
    kind: str
    party: str
    refs: list[int]


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


def records_to_json(records: Iterable[Written], since: int) -> bytes:
    """Return lines of the JSON-lines trace; keys have the order in which a receiver sees them.

    A recv leaves its message out if the send is near, and not before the place `since`.
    """
    written: list[Any] = []
    for r in records:  # few calls: each message comes by here
        if isinstance(r, WithMessage):
            written.append(r)
        elif isinstance(r, Receipts):
            written += _received_all(r, since)
        elif isinstance(r, Notes):
            written += r.records()
        elif r.message is None:
            written.append(r)
        else:
            written.append(_received(r, since))
    return _as_they_are.encode_lines(written)


def _received_all(receipts: Receipts, since: int) -> list[Any]:
    refs = [ref for ref, _ in receipts.taken]
    first, last = min(refs), receipts.n + len(refs) - 1
    if len(refs) > 1 and first >= since and last - first <= NEAR:
        return [_ReceivedAll(receipts.n, receipts.t, _RECV, receipts.party, refs)]
    return [_received(each, since) for each in receipts.records()]


def _received(r: Record, since: int) -> Record | _Received | WithMessage:
    if leaves_message_out(r, since):
        return _Received(r.n, r.t, r.kind, r.party, r.ref, r.peer)
    return _written(r)


def _written(r: Record) -> Record | WithMessage:
    message = r.message
    if message is None:
        return r
    name = _NAMES[type(message)]
    return WithMessage(r.n, r.t, r.kind, r.party, name, message, r.peer, r.ref, r.data)


def record_from_json(line: bytes | str) -> Record:
    """Parse the line of one record; FormatError has the key, what was expected and what came."""
    fields = _line(line)
    if fields.refs is not None:
        raise FormatError("one record", fields.refs, "refs")
    return _record(fields)


def records_from_json(line: bytes | str) -> list[Record]:
    """Parse a line, of one record or of several receipts.

    FormatError has the key, what was expected and what came.
    """
    fields = _line(line)
    refs = fields.refs
    if refs is None:
        return [_record(fields)]
    if fields.kind != _RECV or fields.message is not None or fields.ref or not refs:
        raise FormatError("the places of sends, of a recv without message and ref", refs, "refs")
    return [
        Record(n, fields.t, fields.kind, fields.party, fields.peer, ref, None, fields.data)
        for n, ref in enumerate(refs, fields.n)
    ]


def _line(line: bytes | str) -> _Line:
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error) from None
    except RecursionError:
        raise FormatError(LESS_DEEP, line) from None
    except UnicodeError:  # lone surrogates
        raise FormatError("a record that JSON can carry", line) from None


def _record(fields: _Line) -> Record:
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
    refs: list[int] | None = None
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
