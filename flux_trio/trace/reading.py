"""Reads a trace in any of its forms.

The content determines the form: JSON lines (`record_to_json`), one JSON object with the messages of
a scenario, or the output of `flux module trace --full`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from flux_trio.formats import MISSING, FormatError, Words
from flux_trio.trace.module_trace import HEADER, read_module_trace
from flux_trio.trace.record import Record, record_from_json
from flux_trio.trace.recording import read_recording

EXPECTED: Final = (
    "a trace: JSON lines, a JSON object with messages, or the output of `flux module trace --full`"
)


@dataclass(frozen=True, slots=True)
class Shown:
    """Which information the records of a source contain.

    `crossings`: sends and receipts have separate places, so crossing messages can be recognised.
    `headers`: matchtags, flags, userids and rolemasks. `events`: job eventlogs.
    """

    crossings: bool = True
    headers: bool = True
    events: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """A trace: the name of its form, its contents, and its records, which can be read once."""

    form: str
    shown: Shown
    records: Iterator[Record]


def read_trace(lines: Iterable[str]) -> Source:
    """Return the trace in the lines of a text.

    Raises FormatError, at once or during iteration, that names the line or the path in the JSON
    object, what was expected and what came. An incomplete last line, as after a crash, is ignored.
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
        return Source("JSON lines", Shown(), _read_lines(lines))
    shown = Shown(crossings=False, headers=False)
    return Source("recording of messages", shown, read_recording("".join(lines)))


def _is_record(line: str) -> bool:
    """Return whether a line is a complete JSON object and not a recording."""
    try:
        return "messages" not in msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return False


def _read_lines(lines: Iterable[str]) -> Iterator[Record]:
    last = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = record_from_json(line)
        except FormatError as error:
            if not line.endswith("\n"):
                return  # incomplete: a complete line ends with a newline
            raise _at_line(error, number) from None
        if record.n <= last:
            expected = f"a place in the order after {last}"
            raise FormatError(expected, record.n, f"line {number}: n")
        last = record.n
        yield record


def _at_line(error: FormatError, number: int) -> FormatError:
    where = f"line {number}: {error.where}" if error.where else f"line {number}"
    return FormatError(error.expected, Words(error.got), where)
