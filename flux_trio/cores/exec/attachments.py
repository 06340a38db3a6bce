"""One stream of output, and its place in what a job writes. Data."""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.exec.job import Job
from flux_trio.cores.exec.output import WHOLE_BYTES
from flux_trio.cores.exec.vocabulary import FilePart
from flux_trio.cores.streams import JobStream
from flux_trio.shell.protocol import STREAMS

PART_PIECES_MAX: Final = 4  # of one file at a time, so that a long output is not one long turn
READ_BYTES_MAX: Final = PART_PIECES_MAX * WHOLE_BYTES  # of one file at a time


class Attachment(JobStream):
    """One stream, and its place in the output."""

    following: bool = True  # False once what is left comes from the KVS
    # In the output files, by number: two files for each task
    offsets: dict[int, int] = msgspec.field(default_factory=dict)  # bytes that were sent of each
    file: int = 0  # the next one in this round; at 0 a round begins
    reading: tuple[FilePart, ...] = ()  # what a ReadOutput is under way for
    found: bool = False  # this round has found something
    more: bool = False  # a file had as much as was asked for
    all_written: bool = False  # the round began when the job had ended
    # In the KVS
    piece: int = 0  # number of the key
    line: int = 0  # of its value
    looking: bool = False  # a lookup is under way


def is_whole(attachment: Attachment, job: Job) -> bool:
    """Whether the job has ended and all of its files was sent."""
    if job.sizes is None:
        return False
    sent = attachment.offsets
    return all(
        sent.get(taskid * len(STREAMS) + STREAMS.index(stream), 0) >= nbytes
        for (taskid, stream), nbytes in job.sizes.items()
    )


def next_parts(attachment: Attachment, job: Job, most: int) -> tuple[FilePart, ...]:
    """What to read next in this round, for `most` responses; moves the place in the round.

    It is something of every file while the job runs, then of those with more to come.
    """
    nfiles = job.ntasks * len(STREAMS)
    share = most // nfiles if job.sizes is None else most  # while it runs, each file has one
    pieces = max(1, min(PART_PIECES_MAX, share))
    parts: list[FilePart] = []
    file = attachment.file
    while file < nfiles and most:
        taskid, stream = divmod(file, len(STREAMS))
        offset = attachment.offsets.get(file, 0)
        left = min(pieces, most) * WHOLE_BYTES
        if job.sizes is not None:
            left = min(left, job.sizes.get((taskid, STREAMS[stream]), 0) - offset)
        if left > 0:
            parts.append(FilePart(taskid, STREAMS[stream], offset, left))
            most -= -(-left // WHOLE_BYTES)
        file += 1
    attachment.file = file if file < nfiles else 0
    return tuple(parts)
