"""One output stream and its place in the output of a job. Data."""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.exec.job import Job
from flux_trio.cores.exec.output import WHOLE_BYTES, file_number, place_of
from flux_trio.cores.exec.vocabulary import FilePart
from flux_trio.cores.pages import page_size
from flux_trio.cores.streams import JobStream
from flux_trio.formats.meanings import Matchtag
from flux_trio.shell.protocol import STREAMS

PART_PIECES_MAX: Final = 4  # of one file at a time, so that a long output is not one long turn
READ_BYTES_MAX: Final = PART_PIECES_MAX * WHOLE_BYTES  # of one file at a time


class Attachment(JobStream):
    """One output stream and its place in the output."""

    following: bool = True  # False once the rest comes from the KVS
    # Bytes that were sent of the output files, by number: each task has two files
    offsets: dict[int, int] = msgspec.field(default_factory=dict)
    file: int = 0  # number of the next file; a round begins at 0
    reading: tuple[FilePart, ...] = ()  # parts that a ReadOutput is under way for
    found: bool = False  # this round has found something
    more: bool = False  # a file had as many bytes as were asked for
    all_written: bool = False  # the job had ended when the round began
    owes_sentinel: bool = False  # of a copy: readers wait until it has what is there now
    has_begun: bool = False  # what there is to say before the output was said
    # In the KVS
    piece: int = 0  # number of the key
    line: int = 0  # of its value
    looking: bool = False  # a lookup is under way
    asked: set[Matchtag] = msgspec.field(default_factory=set)  # of all calls that are open for it


def is_whole(attachment: Attachment, job: Job) -> bool:
    """Return whether the job has ended and the stream has sent all of its output."""
    if job.sizes is None:
        return False
    sent = attachment.offsets
    return all(sent.get(file_number(*place), 0) >= nbytes for place, nbytes in job.sizes.items())


def next_parts(attachment: Attachment, job: Job, most: int) -> tuple[FilePart, ...]:
    """Return the parts to read next in this round, for `most` responses; move on in the round.

    While the job runs, every file has a part; afterwards only the files that have more output.
    """
    nfiles = job.ntasks * len(STREAMS)
    share = most // nfiles if job.sizes is None else most  # each file has a part
    pieces = max(1, min(page_size(PART_PIECES_MAX), share))
    parts: list[FilePart] = []
    file = attachment.file
    while file < nfiles and most:
        place = place_of(file)
        offset = attachment.offsets.get(file, 0)
        left = min(pieces, most) * WHOLE_BYTES
        if job.sizes is not None:
            left = min(left, job.sizes.get(place, 0) - offset)
        if left > 0:
            parts.append(FilePart(*place, offset, left))
            most -= -(-left // WHOLE_BYTES)
        file += 1
    attachment.file = file if file < nfiles else 0
    return tuple(parts)
