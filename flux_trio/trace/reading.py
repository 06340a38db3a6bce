"""Reads a trace in any of its forms.

The content determines the form: JSON lines (`record_to_json`), one JSON object with the messages of
a scenario, or the output of `flux module trace --full`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from flux_trio.formats import MISSING, FormatError, Words
from flux_trio.messages import Message
from flux_trio.trace.module_trace import HEADER, read_module_trace
from flux_trio.trace.record import NEAR, Kind, Record, records_from_json
from flux_trio.trace.recording import read_recording

EXPECTED: Final = (
    "a trace: JSON lines, a JSON object with messages, or the output of `flux module trace --full`"
)


class Shown(msgspec.Struct, frozen=True):
    """Which information the records of a source contain.

    `crossings`: sends and receipts have separate places, so crossing messages can be recognised.
    `headers`: matchtags, flags, userids and rolemasks. `events`: job eventlogs.
    """

    crossings: bool = True
    headers: bool = True
    events: bool = True


class Source(msgspec.Struct, frozen=True):
    """A trace: the name of its form, its contents, and its records, which can be read once."""

    form: str
    shown: Shown
    records: Iterator[Record]


def read_trace(
    lines: Iterable[str], *, turns: bool = False, cut: Callable[[int], object] = lambda _: None
) -> Source:
    """Return the trace in the lines of a text; without `turns` the turns of cores are left out.

    Raises FormatError, at once or during iteration, that names the line or the path in the JSON
    object, what was expected and what came. An incomplete last line, as after a crash, is left out;
    `cut` is called with its number then.
    """
    source = iter(lines)
    first = next((line for line in source if line.strip()), None)
    if first is None:
        raise FormatError(EXPECTED, MISSING)
    lines = itertools.chain([first], source)
    if HEADER.fullmatch(first.rstrip()):
        trace = read_module_trace(lines)
        shown = Shown(crossings=False, headers=False, events=trace.has_events)
        return Source("flux module trace", shown, trace.records)
    if not first.lstrip().startswith("{"):
        raise FormatError(EXPECTED, first.rstrip(), "line 1")
    if _is_record(first):
        return Source("JSON lines", Shown(), _read_lines(lines, turns, cut))
    shown = Shown(crossings=False, headers=False)
    return Source("recording of messages", shown, read_recording("".join(lines)))


def _is_record(line: str) -> bool:
    """Return whether a line is a complete JSON object and not a recording."""
    try:
        return "messages" not in msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return False


def _read_lines(
    lines: Iterable[str], turns: bool, cut: Callable[[int], object]
) -> Iterator[Record]:
    last = 0
    sent = SentMessages()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            records = [sent.complete(record) for record in records_from_json(line)]
        except FormatError as error:
            if not line.endswith("\n"):
                cut(number)
                return  # incomplete: a complete line ends with a newline
            raise _at_line(error, number) from None
        if records[0].kind == Kind.TURN:
            if turns:
                yield records[0]
            continue
        if records[0].n <= last:
            expected = f"a place in the order after {last}"
            raise FormatError(expected, records[0].n, f"line {number}: n")
        last = records[-1].n
        yield from records


class SentMessages:
    """The messages of the last sends, for the receipts that leave them out."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}  # by place

    def complete(self, record: Record) -> Record:
        """Return `record` with its message. Raises FormatError if that is not there."""
        if record.message is None:
            if record.kind != Kind.RECV:
                return record
            return msgspec.structs.replace(record, message=self.sent_at(record.ref))
        if record.kind == Kind.SEND:
            self.note(record.n, record.message)
        return record

    def note(self, n: int, message: Message) -> None:
        """Keep the message of the send at place `n`, for receipts at most NEAR places later."""
        if len(self._messages) == 2 * NEAR:
            self._messages = {at: each for at, each in self._messages.items() if n - at <= NEAR}
        self._messages[n] = message

    def sent_at(self, n: int) -> Message:
        """Return the message that was sent at place `n`. Raises FormatError if it is not there."""
        message = self._messages.get(n)
        if message is None:
            expected = f"a message, or the place of a send at most {NEAR} before"
            raise FormatError(expected, Words(f"{n}: records may be missing"), "ref")
        return message


def _at_line(error: FormatError, number: int) -> FormatError:
    where = f"line {number}: {error.where}" if error.where else f"line {number}"
    return FormatError(error.expected, Words(error.got), where)
