"""Output of tasks as RFC 24 has it: data events, and the log that is kept of a job that is over.

Each stream is a file: the order within a stream is kept,
the order between two streams is not, and the log has one stream after the other. Left out: redirect
events, input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from flux_trio.cores.exec.vocabulary import Chunk
from flux_trio.editions import rfc24
from flux_trio.formats import Event, FormatError, Idset, Jobspec, parse_size
from flux_trio.messages import Level
from flux_trio.shell.protocol import STREAMS

PIECE_BYTES_MAX: Final = 1 << 16  # of one data event
LIMIT_OPTION: Final = "system.shell.options.output.limit"

_CONTINUATION_MAX: Final = 3  # bytes of UTF-8 after the first of a character


def file_number(taskid: int, stream: str) -> int:
    """Return the number of a file of output; each task has len(STREAMS) files."""
    return taskid * len(STREAMS) + STREAMS.index(stream)


def place_of(file: int) -> tuple[int, str]:
    """Return the task and the stream of a file with this number."""
    taskid, stream = divmod(file, len(STREAMS))
    return taskid, STREAMS[stream]


def size_option(jobspec: Jobspec, option: str, default: int) -> int:
    """Return the bytes that an option of a jobspec allows. Raises FormatError."""
    value = jobspec.attribute(option)
    try:
        return default if value is None else parse_size(value)  # type: ignore[arg-type]
    except FormatError as error:
        raise error.at(option) from None


def log_begins(
    now: float,
    ntasks: int,
    paths: Mapping[str, str],
    remarks: Iterable[rfc24.Message] = (),
    *,
    is_unbuffered: bool = False,
) -> list[Event]:
    """Return the first events of the log of a job's output; `paths` has the files of streams.

    `remarks` are what there is to say of the job before it starts.
    """
    header = rfc24.header(ntasks, is_unbuffered=is_unbuffered)
    ranks = "0" if ntasks == 1 else f"[0-{ntasks - 1}]"  # an idset as flux-core spells it here
    redirects = [rfc24.Redirect(stream, ranks, path) for stream, path in paths.items()]
    return [
        Event(now, rfc24.HEADER, rfc24.write(header)),
        *(Event(now, rfc24.LOG, rfc24.write(each)) for each in remarks),
        *(Event(now, rfc24.REDIRECT, rfc24.write(each)) for each in redirects),
    ]


def log_data(now: float, chunks: Iterable[Chunk]) -> list[Event]:
    """Return the events with the output in `chunks`."""
    return [Event(now, rfc24.DATA, piece) for chunk in chunks for piece in data_pieces(chunk)]


def log_ends(now: float, ntasks: int, lacks: list[str]) -> list[Event]:
    """Return the last events of the log; `lacks` says which output is missing."""
    events = [Event(now, rfc24.LOG, rfc24.write(warning(each))) for each in lacks]
    ranks = str(Idset.of(range(ntasks)))
    ends = [rfc24.Data(stream, ranks, eof=True) for stream in STREAMS]
    return [*events, *(Event(now, rfc24.DATA, rfc24.write(end)) for end in ends)]


def truncated(sizes: Mapping[tuple[int, str], int], limit: int) -> list[str]:
    """Return a note for each stream of which not all is kept, as flux-core's shell words it.

    `sizes` has how many bytes each task has written to each stream.
    """
    written, lacks, room = Counter[str](), Counter[str](), limit
    for (_, stream), nbytes in sorted(sizes.items(), key=lambda item: file_number(*item[0])):
        kept = min(nbytes, room)
        room -= kept
        written[stream] += nbytes
        lacks[stream] += nbytes - kept
    return [
        f"{stream}: {lacks[stream]} of {written[stream]} bytes truncated"
        for stream in STREAMS
        if lacks[stream]
    ]


def warning(text: str) -> rfc24.Message:
    """Return a log event's message that warns a person."""
    return rfc24.Message(int(Level.WARNING), text)


def data_pieces(chunk: Chunk) -> Iterator[dict[str, Any]]:
    """Yield the contexts of the data events with the output in `chunk`.

    Each has at most PIECE_BYTES_MAX bytes, so N of them hold any N * WHOLE_BYTES bytes.
    """
    rest = chunk.data
    while rest:
        length = len(rest) if len(rest) <= PIECE_BYTES_MAX else whole_length(rest[:PIECE_BYTES_MAX])
        yield rfc24.write(rfc24.output(chunk.stream, str(chunk.taskid), rest[:length]))
        rest = rest[length:]


WHOLE_BYTES: Final = PIECE_BYTES_MAX - _CONTINUATION_MAX


def whole_length(data: bytes) -> int:
    """Return the length of `data` without a UTF-8 character that its end cuts off."""
    for back in range(1, min(_CONTINUATION_MAX, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4
            length = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if length > back else len(data)
        if byte < 0x80:
            break
    return len(data)
