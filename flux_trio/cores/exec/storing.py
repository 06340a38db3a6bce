"""Keeping the output of jobs that have ended: read from the shell host's files, put into the KVS.

A job's output is read one part at a time, and each part is a commit of its own; the next is read
once that is durable. So a job has never more than READ_BYTES_MAX of its output in memory, however
much it wrote. The last commit has the end of the log and guest.exec.eventlog; after it the job
manager is told (RFC 16: the guest's content is there before).

Jobs whose output is one part go by one lane, longer ones by another. Each lane has a bound for what
is on its way, so a huge neighbour delays nobody; and no two jobs share a commit, so that the kvs
refuses one alone. What the output limit cuts off is told in the log, and never changes the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from flux_trio.cores.exec.context import Context, EndPut, OutputPut
from flux_trio.cores.exec.job import EXEC_LOG, Job
from flux_trio.cores.exec.output import log_begins, log_data, log_ends, whole_length
from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, Part, ReadOutput
from flux_trio.cores.stored_output import output_key
from flux_trio.cores.turns import Log
from flux_trio.formats import format_eventlog, format_fluid, job_key
from flux_trio.messages import Level, Response, topics
from flux_trio.shell.protocol import STREAMS

# One read, which becomes one value of the kvs: its text is at most twice as long, and the events
# around it add some 130 bytes for each part.
READ_BYTES_MAX: Final = 1 << 18
READ_PARTS_MAX: Final = 512
LANE_BYTES_MAX: Final = 4 * READ_BYTES_MAX  # on its way in one lane, as bytes that were written
JOB_BYTES: Final = 1 << 11  # what a job costs there beside its output


class Keeping(msgspec.Struct):
    """How far the output of one job is kept."""

    limit: int  # bytes
    total: int  # bytes that the job wrote
    file: int = 0  # number of the file that is next; each task has len(STREAMS) of them
    offset: int = 0  # bytes of that file that are kept
    kept: int = 0  # bytes, of all files
    piece: int = 0  # number of the key that is next
    reading: tuple[Part, ...] = ()  # what is read next, or is being read; nothing at the end
    cost: int = 0  # bytes on their way, counted in the job's lane
    refused: str = ""  # why the kvs did not take a piece; then nothing more is kept

    @property
    def is_one_part(self) -> bool:
        """Whether one read is enough, so that the job belongs to the lane of the quiet."""
        return self.total <= READ_BYTES_MAX


class _Lane(msgspec.Struct):
    """Jobs that wait to be read, each once, and the bytes of those that are on their way."""

    waiting: deque[int] = msgspec.field(default_factory=deque)
    nbytes: int = 0


class Storing:
    """All jobs whose output is being kept. `jobs` is the core's table."""

    def __init__(self, context: Context, jobs: Mapping[int, Job]) -> None:
        self._context = context
        self._jobs = jobs
        self._lanes = {True: _Lane(), False: _Lane()}  # by `Keeping.is_one_part`

    def begin(self, job: Job) -> None:
        """The job has ended: `job.sizes` and `job.status` are known."""
        assert job.sizes is not None
        job.keeping = Keeping(job.output_limit, sum(job.sizes.values()))
        _plan(job.keeping, job)
        self._go_on(job)

    def output_read(self, read: OutputRead) -> None:
        """A part of a job's output is here: commit it."""
        job = self._jobs.get(read.id)
        if job is None or job.keeping is None:
            return
        keeping = job.keeping
        chunks = _advance(keeping, job, read.chunks)
        _plan(keeping, job)
        if not keeping.reading:
            self._put_end(job, chunks)
            return
        events = [log_begins(self._context.now, job.ntasks)] if keeping.piece == 0 else []
        events += log_data(self._context.now, chunks)
        if not events:  # the files have lost what they had
            self._arrived(keeping)
            self._go_on(job)
            return
        put = ["put", job_key(job.id, output_key(keeping.piece)), format_eventlog(events)]
        keeping.piece += 1
        self._context.ask(topics.KVS_COMMIT, {"ops": [put]}, OutputPut(job.id))

    def piece_put(self, jobid: int, response: Response) -> None:
        """A piece is durable, or refused: read the next one, or give up."""
        job = self._jobs.get(jobid)
        if job is None or job.keeping is None:
            return
        self._arrived(job.keeping)
        if response.errnum:
            job.keeping.refused = response.error_text
            job.keeping.piece -= 1  # the end of the log goes there instead
        self._go_on(job)

    def end_put(self, jobid: int, response: Response) -> None:
        """All that is kept of the job is durable, or refused: tell the job manager how it ended.

        What is not stored stays with the shell host: it is the only copy.
        """
        job = self._jobs.get(jobid)
        if job is None or job.keeping is None:
            return
        assert job.status is not None
        self._arrived(job.keeping)
        refused = response.error_text if response.errnum else job.keeping.refused
        job.keeping = None
        if refused:
            job.is_stored = False
            name = format_fluid(job.id, "f58")
            text = f"job {name}: what it left is not stored, the shell host keeps it: {refused}"
            self._context.emit(Log(Level.ERR, text))
        job.tell_finish(self._context, job.status)

    def read_on(self) -> None:
        """Ask for what the lanes have room for; at the end of each turn."""
        for lane in self._lanes.values():
            while lane.waiting and lane.nbytes < LANE_BYTES_MAX:
                job = self._jobs.get(lane.waiting.popleft())
                if job is not None and job.keeping is not None:
                    keeping = job.keeping
                    keeping.cost = JOB_BYTES + sum(part.nbytes for part in keeping.reading)
                    lane.nbytes += keeping.cost
                    self._context.emit(ReadOutput(None, job.id, keeping.reading))

    def _go_on(self, job: Job) -> None:
        keeping = job.keeping
        assert keeping is not None
        if keeping.reading and not keeping.refused:
            self._lanes[keeping.is_one_part].waiting.append(job.id)
        else:
            self._put_end(job, ())

    def _put_end(self, job: Job, chunks: tuple[Chunk, ...]) -> None:
        """The last commit of the job: the end of its output, and how it ended."""
        keeping = job.keeping
        assert keeping is not None
        now = self._context.now
        events = [log_begins(now, job.ntasks)] if keeping.piece == 0 else []
        events += log_data(now, chunks)
        events += log_ends(now, job.ntasks, _note(keeping))
        job.note(now, "complete", {"status": job.status})
        job.note(now, "done")
        ops = [
            ["put", job_key(job.id, EXEC_LOG), format_eventlog(job.exec_log)],
            ["put", job_key(job.id, output_key(keeping.piece)), format_eventlog(events)],
        ]
        if not job.is_new:  # an earlier service may have kept more of it, with another limit
            ops.append(["unlink", job_key(job.id, output_key(keeping.piece + 1))])
        self._context.ask(topics.KVS_COMMIT, {"ops": ops}, EndPut(job.id))

    def _arrived(self, keeping: Keeping) -> None:
        self._lanes[keeping.is_one_part].nbytes -= keeping.cost
        keeping.cost = 0


def _plan(keeping: Keeping, job: Job) -> None:
    """Set what is to be read next: nothing when all is kept that is to be."""
    assert job.sizes is not None
    parts: list[Part] = []
    room = min(READ_BYTES_MAX, keeping.limit - keeping.kept)
    file, offset = keeping.file, keeping.offset
    while file < job.ntasks * len(STREAMS) and room and len(parts) < READ_PARTS_MAX:
        taskid, stream = _place(file)
        left = job.sizes.get((taskid, stream), 0) - offset
        if left > 0:
            parts.append(Part(taskid, stream, offset, min(left, room)))
            room -= parts[-1].nbytes
        file, offset = file + 1, 0
    keeping.reading = tuple(parts)


def _advance(keeping: Keeping, job: Job, chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """Move the place past what was read; returns what of it is kept, whole characters alone.

    A file that has less than it had when the job ended is passed over.
    """
    assert job.sizes is not None
    found = {(chunk.taskid, chunk.stream): chunk.data for chunk in chunks}
    asked = sum(part.nbytes for part in keeping.reading)
    is_last = keeping.kept + asked >= keeping.limit
    kept = []
    for part in keeping.reading:
        place = (part.taskid, part.stream)
        data = found.get(place, b"")
        keeping.file, keeping.offset = _number(*place) + 1, 0
        if len(data) == part.nbytes and part.offset + len(data) < job.sizes[place]:
            whole = data[: whole_length(data)] or data  # the file goes on, or the limit cuts it
            if is_last:
                keeping.limit -= len(data) - len(whole)
            keeping.file, keeping.offset = _number(*place), part.offset + len(whole)
            data = whole
        if data:
            keeping.kept += len(data)
            kept.append(Chunk(*place, part.offset, data))
    return tuple(kept)


def _number(taskid: int, stream: str) -> int:
    return taskid * len(STREAMS) + STREAMS.index(stream)


def _place(file: int) -> tuple[int, str]:
    taskid, stream = divmod(file, len(STREAMS))
    return taskid, STREAMS[stream]


def _note(keeping: Keeping) -> str:
    """What the log says of output that it lacks; "" if it lacks none."""
    if keeping.refused:
        return f"output is cut off, the rest is refused: {keeping.refused}"
    lacks = keeping.total - keeping.kept
    if lacks and keeping.kept >= keeping.limit:
        return f"output is cut off: {keeping.kept} bytes are kept, {lacks} are not"
    return ""
