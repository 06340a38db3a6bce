"""Storing the output of jobs that have ended: it is read from the shell host's files, part by part.

Each part is one commit; the next part is read once that commit is durable. So a job never has more
than READ_BYTES_MAX of its output in memory. The last commit has the end of the log and
guest.exec.eventlog; only then is the job manager told of the end (RFC 16: the guest's content is
there before).

Jobs whose output is one part go by one lane, jobs with longer output by another. Each lane has a
bound in bytes for the parts under way, so a job with much output does not delay the others. No two
jobs share a commit, so that the kvs can refuse one of them. If the output limit cuts output off,
the log says so; the result of the job stays the same.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from flux_trio.cores.exec.calls import EndPut, ExecOutbox, OutputPut, StoredKey
from flux_trio.cores.exec.job import Job, Jobs
from flux_trio.cores.exec.keeping import READ_BYTES_MAX, Keeping, advance, cut_off, plan
from flux_trio.cores.exec.output import log_data, log_ends
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, ReadOutput
from flux_trio.cores.kvs_calls import commit_ops
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import output_key
from flux_trio.cores.turns import Log
from flux_trio.editions import rfc21
from flux_trio.formats import format_eventlog, format_fluid, job_key
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Level, Response

LANE_BYTES_MAX: Final = 4 * READ_BYTES_MAX  # of output under way in one lane
JOB_BYTES: Final = 1 << 11  # of a job under way, besides its output


class _Lane(msgspec.Struct):
    """Jobs that wait to be read, each once, and the bytes of the parts that are under way."""

    waiting: deque[JobId] = msgspec.field(default_factory=deque)
    nbytes: int = 0


class Storing(Part):
    """Stores the output of all jobs that have ended."""

    _lanes: dict[bool, _Lane]

    def __init__(self, outbox: ExecOutbox, jobs: Jobs, starts: Starts) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._starts = starts
        self._lanes = {True: _Lane(), False: _Lane()}  # by `Keeping.is_one_part`

    def begin(self, job: Job) -> None:
        """Begin with a job that has ended; `job.sizes` and `job.status` are known."""
        assert job.sizes is not None
        job.keeping = Keeping(job.output_limit, sum(job.sizes.values()))
        plan(job.keeping, job.ntasks, job.sizes)
        self._go_on(job)

    def output_read(self, read: OutputRead) -> None:
        """Commit a part of a job's output that was read."""
        job = self._jobs.get(read.id)
        if job is None or job.keeping is None:
            return
        keeping = job.keeping
        assert job.sizes is not None
        chunks = advance(keeping, job.sizes, read.chunks)
        plan(keeping, job.ntasks, job.sizes)
        if not keeping.reading:
            self._put_end(job, chunks)
            return
        now = self._stamp(keeping)
        events = job.output_begins(now) if keeping.piece == 0 else []
        events += log_data(now, chunks)
        if not events:  # the files are shorter than they were
            self._arrived(keeping)
            self._go_on(job)
            return
        put = ["put", job_key(job.id, output_key(keeping.piece)), format_eventlog(events)]
        keeping.piece += 1
        self._outbox.ask_kvs(commit_ops([put]), OutputPut(job.id))

    def put(self, call: OutputPut | EndPut, response: Response) -> None:
        """Take the answer to a commit."""
        job = self._jobs.get(call.id)
        if job is None or job.keeping is None:
            return
        self._arrived(job.keeping)
        if isinstance(call, OutputPut):
            self._piece_put(job, job.keeping, response)
        else:
            self._end_put(job, job.keeping, response)

    def _piece_put(self, job: Job, keeping: Keeping, response: Response) -> None:
        """Read the next piece, or store no more output after an error."""
        if response.errnum:
            keeping.refused = response.error_text
            keeping.piece -= 1  # the end of the log goes there instead
        self._go_on(job)

    def _end_put(self, job: Job, keeping: Keeping, response: Response) -> None:
        """Tell the job manager how the job ended, when its last commit is durable or refused.

        If something was refused, the shell host keeps its copy, which is the only one.
        """
        assert job.status is not None
        refused = response.error_text if response.errnum else keeping.refused
        job.keeping = None
        if refused:
            job.is_stored = False
            name = format_fluid(job.id, "f58")
            text = f"job {name}: its output is not stored, the shell host keeps it: {refused}"
            self._outbox.send(Log(Level.ERR, text))
        self._starts.finish(job, job.status)

    def read_on(self) -> None:
        """Read as much output as the lanes have room for, at the end of each turn."""
        for lane in self._lanes.values():
            while lane.waiting and lane.nbytes < LANE_BYTES_MAX:
                job = self._jobs.get(lane.waiting.popleft())
                if job is not None and job.keeping is not None:
                    keeping = job.keeping
                    keeping.cost = JOB_BYTES + sum(part.nbytes for part in keeping.reading)
                    lane.nbytes += keeping.cost
                    self._outbox.send(ReadOutput(None, job.id, keeping.reading))

    def _go_on(self, job: Job) -> None:
        keeping = job.keeping
        assert keeping is not None
        if keeping.reading and not keeping.refused:
            self._lanes[keeping.is_one_part].waiting.append(job.id)
        else:
            self._put_end(job, ())

    def _put_end(self, job: Job, chunks: tuple[Chunk, ...]) -> None:
        """Make the last commit of the job: the end of its output, and how it ended."""
        keeping = job.keeping
        assert keeping is not None
        now = self._stamp(keeping)
        events = job.output_begins(now) if keeping.piece == 0 else []
        events += log_data(now, chunks)
        events += log_ends(now, job.ntasks, cut_off(keeping, job.sizes or {}))
        assert job.status is not None  # the job is over
        job.contents.add(now, "complete", rfc21.write(rfc21.Finish(job.status)))
        job.contents.add(now, "done")
        exec_log = format_eventlog(job.contents.events)
        ops = [
            ["put", job_key(job.id, StoredKey.EXEC_LOG.value), exec_log],
            ["put", job_key(job.id, output_key(keeping.piece)), format_eventlog(events)],
        ]
        if not job.is_new:  # an earlier service may have stored more, with another limit
            ops.append(["unlink", job_key(job.id, output_key(keeping.piece + 1))])
        self._outbox.ask_kvs(commit_ops(ops), EndPut(job.id))

    def _stamp(self, keeping: Keeping) -> float:
        """Return the timestamp of the next events; the clock may have been set back."""
        keeping.stamped = max(self._outbox.now, keeping.stamped)
        return keeping.stamped

    def _arrived(self, keeping: Keeping) -> None:
        self._lanes[keeping.is_one_part].nbytes -= keeping.cost
        keeping.cost = 0
