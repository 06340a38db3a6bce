"""One stream of output, its place in what a job writes, and an index of all of them. Data."""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.credit import Credit
from flux_trio.cores.exec.job import Job
from flux_trio.cores.exec.output import WHOLE_BYTES
from flux_trio.cores.exec.vocabulary import FilePart, StreamKey
from flux_trio.messages import Request
from flux_trio.shell.protocol import STREAMS

PART_PIECES_MAX: Final = 4  # of one file at a time, so that a long output is not one long turn
READ_BYTES_MAX: Final = PART_PIECES_MAX * WHOLE_BYTES  # of one file at a time


class Attachment(msgspec.Struct):
    """One stream, and its place in the output."""

    request: Request
    id: int
    credit: Credit
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

    @property
    def key(self) -> StreamKey:
        """Its sender and matchtag."""
        return self.request.sender, self.request.matchtag


class AttachmentIndex:
    """The open streams, found by key, by job and by sender. Only the streams are dumped."""

    def __init__(self) -> None:
        self._open: dict[StreamKey, Attachment] = {}
        self._by_job: dict[int, dict[StreamKey, Attachment]] = {}
        self._by_sender: dict[str, dict[StreamKey, Attachment]] = {}

    def __getstate__(self) -> list[Attachment]:
        return list(self._open.values())

    def __setstate__(self, attachments: list[Attachment]) -> None:
        self._open, self._by_job, self._by_sender = {}, {}, {}
        for each in attachments:
            self.add(each)

    def __contains__(self, key: StreamKey) -> bool:
        return key in self._open

    def get(self, key: StreamKey) -> Attachment | None:
        """The open stream with `key`."""
        return self._open.get(key)

    def of_job(self, jobid: int) -> list[Attachment]:
        """The streams of the output of job `jobid`, the oldest first."""
        return list(self._by_job.get(jobid, {}).values())

    def of_sender(self, sender: str) -> list[Attachment]:
        """The streams that peer `sender` has opened, the oldest first."""
        return list(self._by_sender.get(sender, {}).values())

    def add(self, attachment: Attachment) -> None:
        """`attachment` is open."""
        key = attachment.key
        self._open[key] = attachment
        self._by_job.setdefault(attachment.id, {})[key] = attachment
        self._by_sender.setdefault(key[0], {})[key] = attachment

    def remove(self, attachment: Attachment) -> None:
        """`attachment`, which is in here, has ended."""
        key = attachment.key
        del self._open[key]
        del self._by_job[attachment.id][key]
        if not self._by_job[attachment.id]:
            del self._by_job[attachment.id]
        del self._by_sender[key[0]][key]
        if not self._by_sender[key[0]]:
            del self._by_sender[key[0]]


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
