"""`job-exec.attach`: the output of a job as a stream of RFC 24 data, from its beginning to its end.

While a job runs, its output files are read in rounds, a few files at a time; a new round begins
every `POLL_S` as long as the job has a stream. The output of a finished job is in the KVS, and its
pieces are read one after the other. A stream of a job that has not started waits. ENODATA ends a
stream.

A stream keeps its place in the output, but holds no output. So a stream without credit costs
nothing. When it gets credit, reading goes on from its place.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from flux_trio.cores.exec.attachments import Attachment, is_whole, next_parts
from flux_trio.cores.exec.calls import POLL, EventlogRead, ExecOutbox, JobCounted, PieceRead
from flux_trio.cores.exec.job import Job, Jobs, Phase
from flux_trio.cores.exec.keeping import truncated
from flux_trio.cores.exec.output import (
    data_pieces,
    file_number,
    logged_pieces,
    warning,
    whole_length,
)
from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, ReadOutput
from flux_trio.cores.kvs_calls import Ask, look_up, look_up_own, value_in
from flux_trio.cores.pages import page_size
from flux_trio.cores.sharing import Allowance
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import check_not_purged, count_keys, fold_eventlog, output_key
from flux_trio.cores.streams import Credit, JobStreams, StreamKey
from flux_trio.editions import exec_requests, rfc24
from flux_trio.formats import EVENTLOG, FormatError, job_key
from flux_trio.formats.meanings import JobId
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    check_job_access,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
    topics,
)
from flux_trio.protocols import Job as StoredJob
from flux_trio.protocols import JobState

POLL_S: Final = 0.05
READ_PARTS_MAX: Final = 32  # files of one read, each for at least one response
STORED_PIECES_MAX: Final = 64  # of stored output in one turn, for a reader without credit
ATTACHMENTS_OF_USER_MAX: Final = 1024  # open at once; beyond it EAGAIN
POLLS_OF_USER_MAX: Final = 64  # streams that one poll reads on for; the others wait for the next


class Attachments(Part):
    """All output streams; `left` has the jobs of the streams that have ended in this turn."""

    _streams: JobStreams[Attachment]
    _idle: dict[int, dict[StreamKey, Attachment]]
    _of_user: Allowance
    _late: dict[StreamKey, int]
    left: list[JobId]
    copied: list[tuple[JobId, Response]]

    def __init__(self, outbox: ExecOutbox, jobs: Jobs) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._streams = JobStreams()
        # By userid: the streams that have sent all output so far. The next poll reads on for them.
        self._idle = {}
        self._of_user = Allowance(ATTACHMENTS_OF_USER_MAX, "output streams")
        # By key: how many reads are under way for streams that have ended. A new stream may have
        # the same key.
        self._late = {}
        self.left = []
        self.copied = []  # pieces and ends of outputs that are copied to guest namespaces

    def pop_left(self) -> list[int]:
        """Return the jobs of the streams that have ended since the last call."""
        left, self.left = self.left, []
        return left

    def open(self, request: Request) -> None:
        """Open the stream that `request` asks for. Raises FluxError."""
        payload = exec_requests.ATTACH.read(request)
        self._streams.check_new(request)
        jobid = payload.id
        job = self._jobs.get(jobid)
        if job is not None:
            check_job_access(request, job.userid)
        self._of_user.count_opened(request.userid)
        attachment = Attachment(request, Credit(payload.credit), jobid)
        self._streams.add(attachment)
        if job is not None:
            self._follow(attachment, job)
        else:
            self._read_eventlog(attachment)

    # Copies to guest namespaces: streams without a reader, whose pieces are in `copied`

    def copy(self, job: Job, credit: int) -> None:
        """Copy the output of a job that runs, from its beginning; `credit` pieces at first."""
        request = Request(topics.EXEC_ATTACH, None, job.id, userid=job.userid, routes=(_COPIES,))
        attachment = Attachment(request, Credit(credit), job.id)
        self._streams.add(attachment)
        self._follow(attachment, job)

    def say_when_read(self, jobid: JobId) -> None:
        """Let a copy, if it is under way, say when all that is there now is in `copied`."""
        if (attachment := self._streams.get((_COPIES, jobid))) is not None:
            attachment.owes_sentinel = True

    def copy_more(self, jobid: JobId, npieces: int) -> None:
        """Go on with a copy, if it is under way: `npieces` of it were taken."""
        attachment, job = self._streams.get((_COPIES, jobid)), self._jobs.get(jobid)
        if npieces and attachment is not None and job is not None:
            attachment.credit.add(npieces)
            self._follow(attachment, job)

    def end_copy(self, jobid: JobId) -> bool:
        """End a copy; return whether it was under way."""
        attachment = self._streams.get((_COPIES, jobid))
        if attachment is not None:
            self._forget(attachment)
        return attachment is not None

    def pop_copied(self) -> list[tuple[JobId, Response]]:
        copied, self.copied = self.copied, []
        return copied

    def _send(self, attachment: Attachment, response: Response | None) -> None:
        if attachment.request.sender != _COPIES:
            self._outbox.send(response)
        elif response is not None:
            self.copied.append((attachment.jobid, response))

    # Files, and what waits for them

    def _read_eventlog(self, attachment: Attachment) -> None:
        """Read the eventlog of a job that this service does not have, to learn its state."""
        read = EventlogRead(attachment.stream)
        self._ask(attachment, look_up(job_key(attachment.jobid, EVENTLOG)), read)

    def look_again(self) -> None:
        """Read again the eventlogs of the jobs that streams wait for, when another journal begins.

        The earlier job manager may have ended such a job before it could report that.
        """
        for attachment in self._streams.all_open():
            is_waiting = attachment.following and not attachment.asked
            if is_waiting and self._jobs.get(attachment.jobid) is None:
                self._read_eventlog(attachment)

    def grant(self, request: Request) -> None:
        """`job-exec.attach-credit`: add credit to a stream, and read on."""
        attachment = self._streams.granted(request)
        if attachment is not None:
            job = self._jobs.get(attachment.jobid)
            if not attachment.following:
                self._look_up(attachment)
            elif job is not None:
                self._follow(attachment, job)
        self._outbox.send(respond(request))

    def follows(self, jobid: int) -> bool:
        """Return whether a stream still reads the job's output files."""
        return any(one.following for one in self._streams.of_job(jobid))

    def job_changed(self, job: Job) -> None:
        """Read on: `job` has started, or all its output is there."""
        for attachment in self._streams.of_job(job.id):
            self._follow(attachment, job)

    def job_is_over(self, jobid: int) -> None:
        """Read the stored output of a job that this service does not have.

        The job has ended, or it will never run.
        """
        for attachment in self._streams.of_job(jobid):
            self._read_stored(attachment)

    def cancel(self, request: Request) -> None:
        """`job-exec.attach-cancel`: end one of the sender's streams with ECANCELED."""
        self._refuse(self._streams.canceled(request), Errno.ECANCELED, "")
        self._outbox.send(respond(request))

    def disconnect(self, sender: str) -> None:
        """End the streams of a peer that is gone, without an answer."""
        for attachment in self._streams.of_sender(sender):
            self._forget(attachment)

    def poll(self) -> None:
        """Read on for idle streams when the timer fires, for a few streams of each user."""
        for idle in list(self._idle.values()):
            for attachment in list(islice(idle.values(), POLLS_OF_USER_MAX)):
                self._remove_idle(attachment)
                job = self._jobs.get(attachment.jobid)
                if job is not None:
                    self._follow(attachment, job)
        if self._idle:
            self._poll_later()

    # Files

    def output_read(self, key: StreamKey, read: OutputRead) -> None:
        """Send the output that was read; then read on, wait, or end the stream."""
        if late := self._late.pop(key, 0):  # reads are answered in their order
            if late > 1:
                self._late[key] = late - 1
            return
        attachment, job = self._streams.get(key), self._jobs.get(read.id)
        if attachment is None:
            return
        asked, attachment.reading = attachment.reading, ()
        if job is None:
            return
        for chunk in read.chunks:
            attachment.found |= self._send_chunk(attachment, job, chunk)
        sizes = {(part.taskid, part.stream): part.nbytes for part in asked}
        attachment.more |= any(
            len(chunk.data) == sizes.get((chunk.taskid, chunk.stream)) for chunk in read.chunks
        )
        if attachment.file:  # in the middle of a round
            self._follow(attachment, job)
        else:
            self._end_round(attachment, job)

    def _end_round(self, attachment: Attachment, job: Job) -> None:
        """End the stream, begin the next round, or wait, after every file was read."""
        if attachment.all_written and not attachment.found:  # the files are shorter than they were
            self._end_written(attachment, job)
        elif job.sizes is not None or attachment.more:
            self._follow(attachment, job)
        else:
            if attachment.owes_sentinel:
                attachment.owes_sentinel = False
                self._send(attachment, respond_stream(attachment.request, None))
            self._idle.setdefault(attachment.request.userid, {})[attachment.stream] = attachment
            self._poll_later()

    def _send_chunk(self, attachment: Attachment, job: Job, chunk: Chunk) -> bool:
        """Send whole characters and return whether there were any.

        A character that is cut off waits for its rest.
        """
        end = chunk.offset + len(chunk.data)
        is_last = job.sizes is not None and end >= job.sizes.get((chunk.taskid, chunk.stream), 0)
        length = len(chunk.data) if is_last else whole_length(chunk.data)
        whole = Chunk(chunk.taskid, chunk.stream, chunk.offset, chunk.data[:length])
        for piece in data_pieces(whole):
            self._send(attachment, respond_stream(attachment.request, piece))
            attachment.credit.spend()
        attachment.offsets[file_number(chunk.taskid, chunk.stream)] = chunk.offset + length
        return length > 0

    def _follow(self, attachment: Attachment, job: Job) -> None:
        """Read output that may be new, if the job has started."""
        if attachment.reading or not attachment.following:
            return
        self._begin(attachment, job)
        if job.phase is Phase.OVER and job.sizes is None:
            self._read_stored(attachment)
        elif job.simulation is not None or job.phase in _NO_FILES_YET:
            pass
        elif not attachment.file and is_whole(attachment, job):
            self._end_written(attachment, job)
        elif most := attachment.credit.allows(page_size(READ_PARTS_MAX)):
            if not attachment.file:
                attachment.found = attachment.more = False
                attachment.all_written = job.sizes is not None
            attachment.reading = next_parts(attachment, job, most)
            if attachment.reading:
                self._outbox.send(ReadOutput(attachment.stream, job.id, attachment.reading))
            else:  # no further file has output
                self._end_round(attachment, job)

    def _begin(self, attachment: Attachment, job: Job) -> None:
        """Tell what there is to know of a job's output before it, once the job was laid out."""
        if attachment.has_begun or job.start is None or job.phase is Phase.OVER:
            return
        attachment.has_begun = True
        for remark in job.remarks:
            self._say(attachment, remark.piece())

    def _poll_later(self) -> None:
        if POLL not in self._outbox.timers:
            self._outbox.set_timer(POLL, self._outbox.now + POLL_S)

    # Jobs that this service does not have: they are over, or have not started

    def answered(self, call: EventlogRead | PieceRead | JobCounted, response: Response) -> None:
        """Take an answer of the kvs, for a stream that is open."""
        attachment = self._streams.get(call.stream)
        assert attachment is not None, "a stream has ended without its calls"
        attachment.asked.remove(response.matchtag)
        match call:
            case EventlogRead():
                self._eventlog_read(attachment, response)
            case PieceRead():
                self._piece_read(attachment, response)
            case JobCounted():
                self._job_counted(attachment, response)

    def _eventlog_read(self, attachment: Attachment, response: Response) -> None:
        """Check the job's user by its eventlog; read stored output if no process will run now."""
        try:
            eventlog = value_in(response)
            if eventlog is None:
                key = job_key(attachment.jobid, EVENTLOG)
                raise FluxError(Errno.ENOENT, f"{key}: no such key")
            stored, _ = fold_eventlog(StoredJob, attachment.jobid, eventlog)
        except FluxError as error:
            self._refuse(attachment, error.errnum, f"job {attachment.jobid}: {error.text}")
            return
        try:
            check_job_access(attachment.request, stored.userid)
        except FluxError as error:
            self._refuse(attachment, error.errnum, error.text)
            return
        job = self._jobs.get(attachment.jobid)
        if job is not None:
            self._follow(attachment, job)
        elif stored.state in _NOTHING_WILL_RUN:
            self._read_stored(attachment)

    def _read_stored(self, attachment: Attachment) -> None:
        """Go on with stored output: the job has no output files now."""
        if attachment.following:
            attachment.following = False
            self._look_up(attachment)

    def _look_up(self, attachment: Attachment) -> None:
        """Read the piece of stored output where the stream is."""
        if not attachment.looking:
            attachment.looking = True
            key = job_key(attachment.jobid, output_key(attachment.piece))
            self._ask(attachment, look_up_own(key), PieceRead(attachment.stream))

    def _piece_read(self, attachment: Attachment, response: Response) -> None:
        """Send as much of a piece as there is credit for; then read the next piece."""
        try:
            value = value_in(response)
        except FluxError as error:
            self._refuse(attachment, error.errnum, error.text)
            return
        if value is None:
            counted = JobCounted(attachment.stream)
            self._ask(attachment, count_keys(attachment.jobid), counted)
            return
        attachment.looking = False
        most = attachment.credit.allows(page_size(STORED_PIECES_MAX))
        try:
            pieces, line = logged_pieces(value, attachment.line, most)
        except FormatError as error:
            self._refuse(attachment, Errno.EPROTO, f"job {attachment.jobid}: output: {error}")
            return
        for piece in pieces:
            self._send(attachment, respond_stream(attachment.request, piece))
        attachment.credit.spend(len(pieces))
        if line is None:
            attachment.piece, attachment.line = attachment.piece + 1, 0
            self._look_up(attachment)
        else:
            attachment.line = line
            if attachment.credit.allows(1):
                self._look_up(attachment)

    def _job_counted(self, attachment: Attachment, response: Response) -> None:
        """End the stream after its last piece, or with an error if the job was purged."""
        try:
            check_not_purged(response)
        except FluxError as error:
            self._refuse(attachment, error.errnum, error.text)
        else:
            self._end(attachment)

    # Ends

    def _end_written(self, attachment: Attachment, job: Job) -> None:
        """End a stream that has all of a job's output; say what of it will not be kept."""
        for each in truncated(job.sizes or {}, job.output_limit):
            self._say(attachment, warning(each).piece())
        self._end(attachment)

    def _say(self, attachment: Attachment, piece: rfc24.Data) -> None:
        """Send a piece that is no output; it costs no credit."""
        if attachment.request.sender != _COPIES:  # their log has it anyway
            self._outbox.send(respond_stream(attachment.request, rfc24.write(piece)))

    def _end(self, attachment: Attachment) -> None:
        self._send(attachment, end_of_stream(attachment.request))
        self._forget(attachment)

    def _refuse(self, attachment: Attachment, errnum: int, text: str) -> None:
        self._send(attachment, respond_error(attachment.request, errnum, text))
        self._forget(attachment)

    def _ask(
        self, attachment: Attachment, ask: Ask, call: EventlogRead | PieceRead | JobCounted
    ) -> None:
        attachment.asked.add(self._outbox.ask_kvs(ask, call))

    def _forget(self, attachment: Attachment) -> None:
        self._streams.remove(attachment)
        for matchtag in attachment.asked:
            self._outbox.calls.close(matchtag)
        if attachment.reading:
            key = attachment.stream
            self._late[key] = self._late.get(key, 0) + 1
        if attachment.request.sender != _COPIES:
            self._of_user.count_closed(attachment.request.userid)
        self._remove_idle(attachment)
        self.left.append(attachment.jobid)

    def _remove_idle(self, attachment: Attachment) -> None:
        userid = attachment.request.userid
        idle = self._idle.get(userid, {})
        if idle.pop(attachment.stream, None) is not None and not idle:
            del self._idle[userid]


_COPIES: Final = "guest namespaces"
"""The sender of the streams that copy output; no peer has such a name."""
_NO_FILES_YET = (Phase.PREPARING, Phase.LAUNCHING)
_NOTHING_WILL_RUN = (JobState.CLEANUP, JobState.INACTIVE)
