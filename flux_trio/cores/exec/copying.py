"""The output of jobs, copied from the files of the shell host to where it is stored.

A copy begins when somebody reads the output of a job that runs, or when the job has ended:

    reader      <service>.copy → answered when what is there now is stored
    shell host  ReadOutput     → OutputRead, a few files at a time: in rounds, over all of them
    kvs         a commit with what was read (`guest`); then as much more may be read

While the job runs, a new round begins every `POLL_S` after one that found nothing. All copies share
`COPIES_BYTES_MAX`; so a job with much output does not delay the others.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from flux_trio.cores.exec.calls import POLL, ExecOutbox
from flux_trio.cores.exec.job import Copying, Job, Jobs, Phase
from flux_trio.cores.exec.output import WHOLE_BYTES, file_number, place_of, whole_length
from flux_trio.cores.exec.vocabulary import Chunk, FilePart, OutputRead, ReadOutput
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.editions import exec_requests
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Request, respond
from flux_trio.shell.protocol import STREAMS

POLL_S: Final = 0.05
POLLS_MAX: Final = 64  # copies that one poll reads on for; the others wait for the next
COPIES_MAX: Final = 1024  # at once; more jobs wait for one to end
COPIES_BYTES_MAX: Final = 1 << 26  # of all copies, read and not yet stored
COPY_BYTES_MAX: Final = 1 << 19  # of one of them
READ_PARTS_MAX: Final = 512  # files of one read
PART_BYTES_MIN: Final = 1 << 12  # of a file that may have grown
PART_PIECES_MAX: Final = 4  # of one file at a time, so that a long output is not one long turn


class Copy(msgspec.Struct):
    """One copy and its place in the output. The `number` is that of the guest namespace."""

    number: int
    nbytes: int = 0  # read, and not yet stored
    # Bytes that were read of the output files, by number: each task has two files
    offsets: dict[int, int] = msgspec.field(default_factory=dict)
    file: int = 0  # number of the next file; a round begins at 0
    reading: tuple[FilePart, ...] = ()  # parts that a ReadOutput is under way for
    found: bool = False  # this round has found something
    more: bool = False  # a file had as many bytes as were asked for
    all_written: bool = False  # the job had ended when the round began


class Copies(Part):
    """All copies. What is read goes to the job's `contents`; `changed` has these jobs."""

    changed: dict[JobId, None]
    _under_way: dict[JobId, Copy]
    _waiting: dict[JobId, None]
    _idle: dict[JobId, None]
    _readers: dict[JobId, list[Request]]

    def __init__(self, outbox: ExecOutbox, jobs: Jobs) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self.changed = {}
        self._under_way = {}
        self._waiting = {}  # jobs that wait for another copy to end, in order
        self._idle = {}  # jobs whose output was read as far as it goes; the next poll reads on
        self._readers = {}  # who wait until what is there is stored

    # Readers

    def ask(self, request: Request) -> Job | None:
        """<service>.copy: return the job whose output somebody reads, if it is to be stored.

        The answer comes when what is there now is stored; at once if the job has not started.
        """
        jobid = exec_requests.COPY.read(request).id
        job = self._jobs.get(jobid)
        guest = None if job is None else job.guest
        if job is None or guest is None:
            self._outbox.send(respond(request))
            return None
        guest.is_read = True
        if request.wants_response:
            self._readers.setdefault(jobid, []).append(request)
        if guest.has_started and job.phase is Phase.RUNNING:
            self.begin(job)
        if guest.copying in (Copying.NOT_YET, Copying.DONE):
            self.answer_readers(job)
        return job

    def leave(self, sender: str) -> None:
        """Forget the readers who are gone."""
        for jobid, waiting in self._readers.items():
            self._readers[jobid] = [each for each in waiting if each.sender != sender]

    def answer_readers(self, job: Job) -> None:
        for request in self._readers.pop(job.id, ()):
            self._outbox.send(respond(request))

    # Copies

    def begin(self, job: Job) -> None:
        """Copy the output of a job whose tasks have started, from its beginning."""
        assert job.guest is not None
        if job.guest.copying is Copying.NOT_YET:
            job.guest.copying = Copying.WAITING
            self._waiting[job.id] = None

    def begin_waiting(self) -> None:
        """Begin as many of the copies that wait as there may be at once."""
        while self._waiting and len(self._under_way) < COPIES_MAX:
            jobid = next(iter(self._waiting))
            del self._waiting[jobid]
            job = self._jobs.by_id[jobid]
            assert job.guest is not None
            job.guest.copying = Copying.UNDER_WAY
            self._under_way[jobid] = copy = Copy(job.guest.number)
            self._read_on(copy, job)

    def ended(self, job: Job) -> None:
        """Copy what is left of a job's output: its processes have ended."""
        self.begin(job)
        self._idle.pop(job.id, None)
        if (copy := self._under_way.get(job.id)) is not None:
            self._read_on(copy, job)

    def stored(self, job: Job, nbytes: int) -> None:
        """Go on: `nbytes` more of a job's output are stored."""
        copy = self._under_way.get(job.id)
        if nbytes and copy is not None:
            copy.nbytes -= nbytes
            self._read_on(copy, job)

    def pop_changed(self) -> dict[JobId, None]:
        """Return the jobs of which something was read, or whose copy has ended."""
        changed, self.changed = self.changed, {}
        return changed

    def end(self, job: Job) -> None:
        """End the copy of a job, if there is one: no more comes."""
        assert job.guest is not None
        self._waiting.pop(job.id, None)
        self._under_way.pop(job.id, None)
        self._idle.pop(job.id, None)
        job.guest.copying, job.guest.is_current = Copying.DONE, True
        self.changed[job.id] = None

    def poll(self) -> None:
        """Read on for idle copies when the timer fires."""
        for jobid in list(islice(self._idle, POLLS_MAX)):
            del self._idle[jobid]
            self._read_on(self._under_way[jobid], self._jobs.by_id[jobid])
        if self._idle:
            self._poll_later()

    def _poll_later(self) -> None:
        if POLL not in self._outbox.timers:
            self._outbox.set_timer(POLL, self._outbox.now + POLL_S)

    # Files

    def output_read(self, read: OutputRead) -> None:
        """Take output that was read; then read on, wait, or end the copy."""
        copy, job = self._under_way.get(read.id), self._jobs.get(read.id)
        if copy is None or job is None or copy.number != read.number:
            return  # the copy has ended meanwhile
        asked, copy.reading = copy.reading, ()
        for chunk in read.chunks:
            copy.found |= self._take(copy, job, chunk)
        sizes = {(part.taskid, part.stream): part.nbytes for part in asked}
        copy.more |= any(
            len(chunk.data) == sizes[chunk.taskid, chunk.stream] for chunk in read.chunks
        )
        if copy.file:  # in the middle of a round
            self._read_on(copy, job)
        else:
            self._end_round(copy, job)

    def _take(self, copy: Copy, job: Job, chunk: Chunk) -> bool:
        """Take whole characters and return whether there were any; one cut off waits for its rest.

        A character that is cut off at the end of a file that has no rest is taken as it is.
        """
        end = chunk.offset + len(chunk.data)
        is_last = job.sizes is not None and end >= job.sizes.get((chunk.taskid, chunk.stream), 0)
        length = len(chunk.data) if is_last else whole_length(chunk.data)
        copy.offsets[file_number(chunk.taskid, chunk.stream)] = chunk.offset + length
        if not length:
            return False
        whole = msgspec.structs.replace(chunk, data=chunk.data[:length])
        job.contents.add_output(self._outbox.now, whole)
        copy.nbytes += length
        self.changed[job.id] = None
        return True

    def _read_on(self, copy: Copy, job: Job) -> None:
        """Read output that may be new, as much as there is room for."""
        if copy.reading:
            return
        if not copy.file and _is_whole(copy, job):
            self.end(job)
            return
        room = COPIES_BYTES_MAX // len(self._under_way)
        room = min(COPY_BYTES_MAX, max(WHOLE_BYTES, room)) - copy.nbytes
        if room < WHOLE_BYTES:
            return  # until more of it is stored
        if not copy.file:
            copy.found = copy.more = False
            copy.all_written = job.sizes is not None
        copy.reading = _next_parts(copy, job, room)
        if copy.reading:
            self._outbox.send(ReadOutput(copy.number, job.id, copy.reading))
        else:  # no further file has output
            self._end_round(copy, job)

    def _end_round(self, copy: Copy, job: Job) -> None:
        """End the copy, begin the next round, or wait, after every file was read."""
        if copy.all_written and not copy.found:  # the files are shorter than they were
            self.end(job)
        elif job.sizes is not None or copy.more:
            self._read_on(copy, job)
        else:
            assert job.guest is not None
            job.guest.is_current = True
            self.changed[job.id] = None
            self._idle[job.id] = None
            self._poll_later()


def _is_whole(copy: Copy, job: Job) -> bool:
    """Return whether the job has ended and all of its output was read."""
    if job.sizes is None:
        return False
    read = copy.offsets
    return all(read.get(file_number(*place), 0) >= nbytes for place, nbytes in job.sizes.items())


def _next_parts(copy: Copy, job: Job, room: int) -> tuple[FilePart, ...]:
    """Return the parts to read next in this round, `room` bytes at most; move on in the round.

    While the job runs, every file has a part; afterwards only the files that have more output.
    """
    nfiles = job.ntasks * len(STREAMS)
    share = room // nfiles if job.sizes is None else room
    most = min(max(PART_BYTES_MIN, share), page_size(PART_PIECES_MAX) * WHOLE_BYTES)
    parts: list[FilePart] = []
    file = copy.file
    while file < nfiles and room >= PART_BYTES_MIN and len(parts) < page_size(READ_PARTS_MAX):
        place = place_of(file)
        offset = copy.offsets.get(file, 0)
        nbytes = min(most, room)
        if job.sizes is not None:
            nbytes = min(nbytes, job.sizes.get(place, 0) - offset)
        if nbytes > 0:
            parts.append(FilePart(*place, offset, nbytes))
            room -= nbytes
        file += 1
    copy.file = file if file < nfiles else 0
    return tuple(parts)
