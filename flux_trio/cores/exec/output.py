"""Output of tasks as RFC 24 has it: data events, and the log that is kept of a job that is over.

A data event says `stream`, `rank` (of the task), `data`, and `encoding` "base64" where the bytes
are not UTF-8, or would more than double as JSON text (zeros do). Each stream is a file, so the
order within one is kept and that between two is not; the log has one after the other. Left out:
redirect events, input.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, Final

from flux_trio.cores.exec.vocabulary import Chunk
from flux_trio.formats import Event, FormatError, Idset, Jobspec, parse_event, parse_size
from flux_trio.messages import Level
from flux_trio.shell.protocol import STREAMS

PIECE_BYTES_MAX: Final = 1 << 16  # of one data event
LIMIT_OPTION: Final = "system.shell.options.output.limit"

_CONTINUATION_MAX: Final = 3  # bytes of UTF-8 after the first of a character
_ESCAPED: Final = bytes(byte for byte in range(0x20) if byte not in b"\b\t\n\f\r")
_ESCAPE_BYTES: Final = 6  # \u0000


def limit_of(jobspec: Jobspec, default: int) -> int:
    """How many bytes of a job's output are kept. FormatError."""
    value = jobspec.attribute(LIMIT_OPTION)
    if value is None:
        return default
    try:
        return parse_size(value)  # type: ignore[arg-type]  # it refuses what is no size
    except FormatError as error:
        raise error.at(LIMIT_OPTION) from None


def log_begins(now: float, ntasks: int) -> Event:
    """The first event of the log of a job's output."""
    header = {
        "version": 1,
        "encoding": dict.fromkeys(STREAMS, "UTF-8"),
        "count": dict.fromkeys(STREAMS, ntasks),
        "options": {},
    }
    return Event(now, "header", header)


def log_data(now: float, chunks: Iterable[Chunk]) -> list[Event]:
    """The events that say what is in `chunks`."""
    return [Event(now, "data", piece) for chunk in chunks for piece in data_pieces(chunk)]


def log_ends(now: float, ntasks: int, note: str) -> list[Event]:
    """The last events; `note` says what is missing, "" for nothing."""
    events = []
    if note:
        events.append(Event(now, "log", {"level": int(Level.WARNING), "message": note}))
    ranks = str(Idset.of(range(ntasks)))
    ends = [{"stream": stream, "rank": ranks, "eof": True} for stream in STREAMS]
    return [*events, *(Event(now, "data", end) for end in ends)]


def logged_pieces(text: str, line: int, most: int) -> tuple[list[dict[str, Any]], int | None]:
    """At most `most` pieces of a log, from `line` on, and the line after them, None at the end.

    A piece is the context of a data event that has data. A log event is a piece without data of
    standard error, with `note`: what there is to tell. Raises FormatError.
    """
    found: list[dict[str, Any]] = []
    lines = text.split("\n")
    while line < len(lines) - 1:
        event = parse_event(lines[line])
        context = event.context or {}
        is_data = event.name == "data" and "data" in context
        if is_data or event.name == "log":
            if len(found) == most:
                return found, line
            found.append(context if is_data else note_piece(str(context.get("message", ""))))
        line += 1
    return found, None


def note_piece(text: str) -> dict[str, Any]:
    """A piece that tells something about the output; to a reader of output alone it is empty."""
    return {"stream": "stderr", "rank": "0", "data": "", "note": text}


def data_pieces(chunk: Chunk) -> Iterator[dict[str, Any]]:
    """The contexts of the data events that say what is in `chunk`.

    Each has at most PIECE_BYTES_MAX bytes, so N of them hold any N * WHOLE_BYTES bytes.
    """
    rest = chunk.data
    while rest:
        length = len(rest) if len(rest) <= PIECE_BYTES_MAX else whole_length(rest[:PIECE_BYTES_MAX])
        yield _context(chunk, rest[:length])
        rest = rest[length:]


WHOLE_BYTES: Final = PIECE_BYTES_MAX - _CONTINUATION_MAX


def whole_length(data: bytes) -> int:
    """How much of `data` there is before a UTF-8 character that its end cuts off."""
    for back in range(1, min(_CONTINUATION_MAX, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4
            length = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if length > back else len(data)
        if byte < 0x80:
            break
    return len(data)


def _context(chunk: Chunk, data: bytes) -> dict[str, Any]:
    context: dict[str, Any] = {"stream": chunk.stream, "rank": str(chunk.taskid)}
    try:
        context["data"] = data.decode()
        is_text = not _more_than_doubles(data)
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        context["encoding"] = "base64"
        context["data"] = base64.b64encode(data).decode()
    return context


def _more_than_doubles(data: bytes) -> bool:
    """Whether JSON escapes make of `data` more than twice as many bytes."""
    escaped = len(data) - len(data.translate(None, _ESCAPED))
    return escaped * (_ESCAPE_BYTES - 1) > len(data)
