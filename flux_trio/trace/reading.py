"""Reads a trace in any of its forms.

The content determines the form: JSON lines (`record_to_json`), one JSON object with the messages of
a scenario, or the output of `flux module trace --full`.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from flux_trio.formats import MISSING, FormatError, Words
from flux_trio.messages import Message
from flux_trio.trace.module_trace import read_beside, read_module_trace
from flux_trio.trace.printed import is_module_trace
from flux_trio.trace.record import ENDED, NEAR, Kind, Record, records_from_json
from flux_trio.trace.recording import read_recording

EXPECTED: Final = (
    "a trace: JSON lines, a JSON object with messages, or the output of `flux module trace --full`"
)

LINE_BYTES_MAX: Final = 1 << 30
"""A line of a file has fewer bytes. The longest lines have the state of a core with all its jobs,
and are far shorter; a file that is no trace, such as a device, may have no end of a line at all."""

HEAD_BYTES: Final = 1 << 16
"""The first line of a trace ends within so many bytes, or begins a JSON object."""

_END: Final = {"what": ENDED}


class CutShort(FormatError):
    """The last line of a file has no newline and is no UTF-8: a crash has cut it in a character."""


class Shown(msgspec.Struct, frozen=True):
    """Which information the records of a source contain.

    `crossings`: sends and receipts have separate places, so crossing messages can be recognised.
    `headers`: matchtags, flags, userids and rolemasks. `events`: job eventlogs. `payloads`: what is
    in messages.
    """

    crossings: bool = True
    headers: bool = True
    events: bool = True
    payloads: bool = True


class Source(msgspec.Struct, frozen=True):
    """A trace: the name of its form, its contents, and its records, which can be read once.

    `begins` says that it begins with the instance, and not while that runs.
    """

    form: str
    shown: Shown
    records: Iterator[Record]
    begins: bool = True


def text_lines(readline: Callable[[int], bytes]) -> Iterator[str]:
    """Yield the lines of a file as text; `readline` is the method of a file that reads bytes.

    Raises FormatError, which names the line, if one is no UTF-8 or too long; it is CutShort if only
    the last line is no UTF-8.
    """
    line = readline(HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
    if not line.endswith(b"\n") and len(line) == HEAD_BYTES:
        if not line.lstrip().startswith(b"{"):
            got = Words(f"{HEAD_BYTES} bytes without the end of a line")
            raise FormatError(EXPECTED, got, "line 1")
        line += readline(LINE_BYTES_MAX - HEAD_BYTES)
    number = 1
    while line:
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            expected = f"a line of less than {LINE_BYTES_MAX} bytes"
            raise FormatError(expected, Words("a longer one"), f"line {number}")
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise _no_text(line, number, error) from None
        yield text
        line = readline(LINE_BYTES_MAX)
        number += 1


def _no_text(line: bytes, number: int, error: UnicodeDecodeError) -> FormatError:
    where = f"line {number}"
    if number == 1 and not line.lstrip().startswith(b"{"):
        return FormatError(EXPECTED, Words("bytes that are no UTF-8 text"), where)
    byte = Words(f"the byte 0x{line[error.start]:02x} after {error.start} others")
    kind = FormatError if line.endswith(b"\n") else CutShort
    return kind("UTF-8 text", byte, where)


def read_trace(
    lines: Iterable[str], *, turns: bool = False, cut: Callable[[int], object] = lambda _: None
) -> Source:
    """Return the trace in the lines of a text; without `turns` the turns of cores are left out.

    Raises FormatError, at once or during iteration, that names the line or the path in the JSON
    object, what was expected and what came. An incomplete last line, as after a crash, is left out;
    `cut` is called with its number then. It is called with 0 if all lines are complete, but the
    trace is one that ends with the record `ENDED` if it is whole, and does not: one with turns.
    """
    source = iter(lines)
    first = next((line for line in source if line.strip()), None)
    if first is None:
        raise FormatError(EXPECTED, MISSING)
    lines = itertools.chain([first], source)
    if is_module_trace(first):
        trace = read_module_trace(lines, cut)
        shown = Shown(
            crossings=False, headers=False, events=trace.has_events, payloads=trace.has_payloads
        )
        return Source("flux module trace", shown, trace.records, begins=False)
    if not first.lstrip().startswith("{"):
        raise FormatError(EXPECTED, first.rstrip(), "line 1")
    if _is_record(first):
        begins = _begins(first)
        if (beside := _source(first)) is not None:
            return _beside(beside, _read_lines(lines, turns, cut))
        return Source("JSON lines", Shown(), _read_lines(lines, turns, cut), begins=begins)
    shown = Shown(crossings=False, headers=False)
    recording = read_recording("".join(lines))
    return Source("recording of messages", shown, recording.records, begins=recording.begins)


def _is_record(line: str) -> bool:
    """Return whether a line is a record, even one that was cut, and no recording."""
    try:
        return "messages" not in msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError):  # a part of an object, or lone surrogates
        return not line.endswith("\n") and '"messages"' not in line
    except RecursionError:
        return True  # then the error of the record names the line


def _begins(first: str) -> bool:
    """Return whether a line has the first record of an instance."""
    try:
        return records_from_json(first)[0].n <= 1
    except FormatError:
        return True  # the error is raised when the records are read


def _source(first: str) -> Record | None:
    """Return the first record if it says that a program beside the instance has made the trace."""
    try:
        record = records_from_json(first)[0]
    except FormatError:
        return None  # the error is raised when the records are read
    return record if record.kind == Kind.SOURCE else None


def _beside(source: Record, records: Iterator[Record]) -> Source:
    data = source.data or {}
    has_headers = data.get("headers") is True
    trace = read_beside(itertools.islice(records, 1, None), has_headers=has_headers)
    shown = Shown(
        crossings=False, headers=has_headers, events=trace.has_events, payloads=trace.has_payloads
    )
    return Source(f"trace of {data.get('by')}", shown, trace.records, begins=False)


def _before_cut(lines: Iterable[str], cut: Callable[[int], object]) -> Iterator[str]:
    """Yield the lines, but for the last one if a crash has cut it in a character."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):  # noqa: B007 - the number of the last one is used
            yield line
    except CutShort:
        cut(number + 1)


def _read_lines(
    lines: Iterable[str], turns: bool, cut: Callable[[int], object]
) -> Iterator[Record]:
    last = 0
    is_cut = has_turns = is_whole = False

    def cut_at(number: int) -> None:
        nonlocal is_cut
        is_cut = True
        cut(number)

    sent = SentMessages()
    for number, line in enumerate(_before_cut(lines, cut_at), 1):
        if not line.strip():
            continue
        try:
            records = [sent.complete(record) for record in records_from_json(line)]
        except FormatError as error:
            if not line.endswith("\n") and _is_cut(line, is_first=not last):
                cut(number)
                return
            raise _at_line(error, number) from None
        if records[0].kind == Kind.TURN:
            has_turns = True
            if turns:
                yield records[0]
            continue
        if records[0].n <= last:
            expected = f"a place in the order after {last}"
            raise FormatError(expected, records[0].n, f"line {number}: n")
        last = records[-1].n
        is_whole = records[-1].data == _END
        yield from records
    if has_turns and not (is_whole or is_cut):
        cut(0)


def _is_cut(line: str, *, is_first: bool) -> bool:
    """Return whether a line without a newline is the beginning of one, as a crash leaves it.

    A whole JSON value is not. Nor is a first line without `n`: then the file is no trace.
    """
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return not is_first or '"n":' in line
    return False


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
