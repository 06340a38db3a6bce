"""Output of tasks as RFC 24 has it: data events, and the log that is kept of a job that is over.

A data event says `stream`, `rank` (of the task), `data`, and `encoding` "base64" where the bytes
are not UTF-8. Each stream is a file, so the order within one is kept and that between two is not;
the log has one after the other. Left out: redirect events, input.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, Final

from flux_trio.formats import Event, FormatError, Idset, format_eventlog, parse_eventlog
from flux_trio.messages import Level
from flux_trio.services.exec.shell_protocol import STREAMS, TaskSize
from flux_trio.services.exec.vocabulary import Chunk, Part

PIECE_BYTES_MAX: Final = 1 << 16  # of one data event
# Of one job, in the log that is kept; what is beyond is dropped, and the log says so. Enough for a
# person to read, small enough for a thousand jobs that all print too much.
KEPT_BYTES_MAX: Final = 16 << 20

_CONTINUATION_MAX: Final = 3  # bytes of UTF-8 after the first of a character


def parts_to_keep(sizes: Iterable[TaskSize]) -> tuple[tuple[Part, ...], int]:
    """What to read for the log, in order of task and stream; and how many bytes are left out."""
    parts, left, dropped = [], KEPT_BYTES_MAX, 0
    for size in sizes:
        for stream, nbytes in zip(STREAMS, (size.stdout, size.stderr), strict=True):
            kept = min(nbytes, left)
            if kept:
                parts.append(Part(size.taskid, stream, 0, kept))
            left -= kept
            dropped += nbytes - kept
    return tuple(parts), dropped


def output_log(now: float, ntasks: int, chunks: Iterable[Chunk], dropped: int) -> str:
    """The eventlog of a job's output (`job.<id>.guest.output`)."""
    ranks = str(Idset.of(range(ntasks)))
    header = {
        "version": 1,
        "encoding": dict.fromkeys(STREAMS, "UTF-8"),
        "count": dict.fromkeys(STREAMS, ntasks),
        "options": {},
    }
    events = [Event(now, "header", header)]
    events += [Event(now, "data", piece) for chunk in chunks for piece in data_pieces(chunk)]
    if dropped:
        message = f"output is cut off: {KEPT_BYTES_MAX} bytes are kept, {dropped} are not"
        events.append(Event(now, "log", {"level": int(Level.WARNING), "message": message}))
    for stream in STREAMS:
        events.append(Event(now, "data", {"stream": stream, "rank": ranks, "eof": True}))
    return format_eventlog(events)


def logged_pieces(text: str) -> list[dict[str, Any]]:
    """The contexts of the data events of a log that have data; FormatError."""
    found = []
    for event in parse_eventlog(text):
        if event.name == "data":
            if event.context is None:
                raise FormatError("a data event with a context", event.name)
            if "data" in event.context:
                found.append(event.context)
    return found


def data_pieces(chunk: Chunk) -> Iterator[dict[str, Any]]:
    """The contexts of the data events that say what is in `chunk`."""
    rest = chunk.data
    while rest:
        length = len(rest) if len(rest) <= PIECE_BYTES_MAX else whole_length(rest[:PIECE_BYTES_MAX])
        yield _context(chunk, rest[:length])
        rest = rest[length:]


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
    except UnicodeDecodeError:
        context["encoding"] = "base64"
        context["data"] = base64.b64encode(data).decode()
    return context
