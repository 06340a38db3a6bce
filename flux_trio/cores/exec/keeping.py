"""How far the output of one job is stored: the part to read next, the bytes to keep. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from flux_trio.cores.exec.output import file_number, place_of, whole_length
from flux_trio.cores.exec.vocabulary import Chunk, FilePart
from flux_trio.cores.pages import page_size
from flux_trio.formats.meanings import Stamp
from flux_trio.shell.protocol import STREAMS

# One read, which becomes one value of the kvs: its text is at most twice as long, and the events
# around it add some 130 bytes for each part.
READ_BYTES_MAX: Final = 1 << 18
READ_PARTS_MAX: Final = 512


class Keeping(msgspec.Struct):
    """How far the output of one job is stored."""

    limit: int  # bytes
    total: int  # bytes that the job wrote
    file: int = 0  # number of the next file; each task has len(STREAMS) files
    offset: int = 0  # bytes of that file that are kept
    kept: int = 0  # bytes, of all files
    piece: int = 0  # number of the next key
    stamped: Stamp = 0.0  # timestamp of the last event of the log of output
    reading: tuple[FilePart, ...] = ()  # parts to read next, or being read; empty at the end
    cost: int = 0  # bytes on their way, counted in the job's lane
    refused: str = ""  # why the kvs did not take a piece; then no more output is stored

    @property
    def is_one_part(self) -> bool:
        """Return whether one read is enough: then the job goes by the lane of short outputs."""
        return self.total <= READ_BYTES_MAX


def plan(keeping: Keeping, ntasks: int, sizes: Mapping[tuple[int, str], int]) -> None:
    """Set the parts to read next; they are empty once all output is stored."""
    parts: list[FilePart] = []
    room = min(READ_BYTES_MAX, keeping.limit - keeping.kept)
    file, offset = keeping.file, keeping.offset
    while file < ntasks * len(STREAMS) and room and len(parts) < page_size(READ_PARTS_MAX):
        taskid, stream = place_of(file)
        left = sizes.get((taskid, stream), 0) - offset
        if left > 0:
            parts.append(FilePart(taskid, stream, offset, min(left, room)))
            room -= parts[-1].nbytes
        file, offset = file + 1, 0
    keeping.reading = tuple(parts)


def advance(
    keeping: Keeping, sizes: Mapping[tuple[int, str], int], chunks: tuple[Chunk, ...]
) -> tuple[Chunk, ...]:
    """Move past the output that was read; return the part of it to keep, in whole characters.

    A file that is shorter than it was when the job ended is passed over.
    """
    found = {(chunk.taskid, chunk.stream): chunk.data for chunk in chunks}
    asked = sum(part.nbytes for part in keeping.reading)
    is_last = keeping.kept + asked >= keeping.limit
    kept = []
    for part in keeping.reading:
        place = (part.taskid, part.stream)
        data = found.get(place, b"")
        keeping.file, keeping.offset = file_number(*place) + 1, 0
        if len(data) == part.nbytes and part.offset + len(data) < sizes[place]:
            whole = data[: whole_length(data)] or data  # the file goes on, or the limit cuts it
            if is_last:
                keeping.limit -= len(data) - len(whole)
            keeping.file, keeping.offset = file_number(*place), part.offset + len(whole)
            data = whole
        if data:
            keeping.kept += len(data)
            kept.append(Chunk(*place, part.offset, data))
    return tuple(kept)


def cut_off(keeping: Keeping, sizes: Mapping[tuple[int, str], int]) -> list[str]:
    """Return notes about output that the log leaves out."""
    if keeping.refused:
        return [f"output is cut off, the rest is refused: {keeping.refused}"]
    return truncated(sizes, keeping.limit) if keeping.kept >= keeping.limit else []


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
