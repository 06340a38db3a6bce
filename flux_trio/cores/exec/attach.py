"""`job-exec.attach`: the output of a job as a stream of RFC 24 data, from its beginning to its end.

A job that runs is followed: its output files are read in rounds, a few of them at a time, and again
every `POLL_S` while anyone looks. A job that is over has its output in the KVS, and its pieces are
read one after the other. A job that is yet to start is waited for. ENODATA is the end.

A stream keeps no output in memory, only its place. So a reader who has granted no credit costs
nothing, and is read on for from that place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, TypeVar

import msgspec

from flux_trio.cores.credit import Credit, CreditKey, read_grant
from flux_trio.cores.exec.context import (
    Context,
    EventlogRead,
    JobCounted,
    PieceRead,
    StreamKey,
    TimerKey,
    TimerKind,
)
from flux_trio.cores.exec.job import SEVERITY_FATAL, Job, Phase, check_access
from flux_trio.cores.exec.output import WHOLE_BYTES, data_pieces, logged_pieces, whole_length
from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, Part, ReadOutput
from flux_trio.cores.sharing import Allowance
from flux_trio.cores.stored_output import check_not_purged, count_payload, output_key
from flux_trio.cores.turns import SetTimer
from flux_trio.formats import FormatError, job_key, parse_eventlog
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    end_of_stream,
    expect_payload,
    respond,
    respond_error,
    respond_stream,
    topics,
)
from flux_trio.protocols import JobEvent
from flux_trio.shell.protocol import STREAMS

POLL_S: Final = 0.05
READ_PARTS_MAX: Final = 32  # of one read: so many files, for one response each at least
PART_PIECES_MAX: Final = 4  # of one file at a time, so that a long output is not one long turn
READ_BYTES_MAX: Final = PART_PIECES_MAX * WHOLE_BYTES  # of one file at a time
STORED_PIECES_MAX: Final = 64  # of stored output in one turn, for a reader without credit
ATTACHMENTS_OF_USER_MAX: Final = 1024  # open at once; beyond it EAGAIN
POLLS_OF_USER_MAX: Final = 64  # streams that one poll reads on for; the others wait for the next

K = TypeVar("K")


class _AttachPayload(msgspec.Struct):
    id: int
    credit: CreditKey | None = None


class _CancelPayload(msgspec.Struct):
    matchtag: int


class Attachment(msgspec.Struct):
    """One stream, and its place in the output."""

    request: Request
    id: int
    credit: Credit
    following: bool = True  # False once what is left comes from the KVS
    # In the output files, by number: two files for each task
    offsets: dict[int, int] = msgspec.field(default_factory=dict)  # bytes that were sent of each
    file: int = 0  # the next one in this round; at 0 a round begins
    reading: tuple[Part, ...] = ()  # what a ReadOutput is under way for
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


class Attachments:
    """All streams. `jobs` is the core's table; `on_end` is told the job of each that has ended."""

    def __init__(
        self, context: Context, jobs: Mapping[int, Job], on_end: Callable[[int], None]
    ) -> None:
        self._context = context
        self._jobs = jobs
        self._on_end = on_end
        self._open: dict[StreamKey, Attachment] = {}
        self._by_job: dict[int, dict[StreamKey, Attachment]] = {}
        self._by_sender: dict[str, dict[StreamKey, Attachment]] = {}
        # Those that have sent all there was, by userid: the next poll reads on for them.
        self._idle: dict[int, dict[StreamKey, Attachment]] = {}
        self._polling = False
        self._of_user = Allowance(ATTACHMENTS_OF_USER_MAX, "output streams")

    def open(self, request: Request) -> None:
        """Take a request. Raises FluxError."""
        payload = expect_payload(request, _AttachPayload)
        jobid, key = payload.id, (request.sender, request.matchtag)
        if not request.is_streaming or key in self._open:
            text = f"{request.topic}: expected the streaming flag and a matchtag not in use"
            raise FluxError(Errno.EPROTO, text)
        job = self._jobs.get(jobid)
        if job is not None:
            job.check_access(request)
        self._of_user.take(request.userid)
        attachment = self._open[key] = Attachment(request, jobid, Credit(payload.credit))
        self._by_job.setdefault(jobid, {})[key] = attachment
        self._by_sender.setdefault(request.sender, {})[key] = attachment
        if job is not None:
            self._follow(attachment, job)
        else:
            lookup = {"key": job_key(jobid, "eventlog")}
            self._context.ask(topics.KVS_LOOKUP, lookup, EventlogRead(key, jobid))

    def grant(self, request: Request) -> None:
        """`job-exec.attach-credit`: the reader of a stream is ready for more."""
        key, more = read_grant(request)
        attachment = self._open.get(key)
        if attachment is not None:
            attachment.credit.add(more)
            job = self._jobs.get(attachment.id)
            if not attachment.following:
                self._look_up(attachment)
            elif job is not None:
                self._follow(attachment, job)
        self._send(respond(request))

    def follows(self, jobid: int) -> bool:
        """Whether anyone still reads the job's output files."""
        return any(one.following for one in self._by_job.get(jobid, {}).values())

    def job_changed(self, job: Job) -> None:
        """It has started, or all its output is there: read on."""
        for attachment in list(self._by_job.get(job.id, {}).values()):
            self._follow(attachment, job)

    def job_is_dead(self, jobid: int) -> None:
        """A job that is not in the table will never run."""
        for attachment in list(self._by_job.get(jobid, {}).values()):
            self._read_stored(attachment)

    def cancel(self, request: Request) -> None:
        """`job-exec.attach-cancel`: end one of the sender's streams with ECANCELED."""
        matchtag = expect_payload(request, _CancelPayload).matchtag
        attachment = self._open.get((request.sender, matchtag))
        if attachment is not None:
            self._refuse(attachment, Errno.ECANCELED, "")

    def disconnect(self, sender: str) -> None:
        """The peer is gone: its streams end without an answer."""
        for attachment in list(self._by_sender.get(sender, {}).values()):
            self._forget(attachment)

    def poll(self) -> None:
        """The timer: read on for those that wait for more, for a few of each user in turn."""
        self._polling = False
        for idle in list(self._idle.values()):
            for attachment in list(islice(idle.values(), POLLS_OF_USER_MAX)):
                self._is_idle_no_more(attachment)
                job = self._jobs.get(attachment.id)
                if job is not None:
                    self._follow(attachment, job)
        if self._idle:
            self._poll_later()

    # Files

    def output_read(self, key: StreamKey, read: OutputRead) -> None:
        """Send what was found; go on, wait, or end."""
        attachment, job = self._open.get(key), self._jobs.get(read.id)
        if attachment is None or job is None:
            return
        asked, attachment.reading = attachment.reading, ()
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
        """Every file was looked at: end, begin the next round, or wait."""
        if attachment.all_written and not attachment.found:  # files have lost what they had
            self._end(attachment)
        elif job.sizes is not None or attachment.more:
            self._follow(attachment, job)
        else:
            self._idle.setdefault(attachment.request.userid, {})[attachment.key] = attachment
            self._poll_later()

    def _send_chunk(self, attachment: Attachment, job: Job, chunk: Chunk) -> bool:
        """Whether there was anything to send: a character that is cut off waits for its rest."""
        end = chunk.offset + len(chunk.data)
        is_last = job.sizes is not None and end >= job.sizes.get((chunk.taskid, chunk.stream), 0)
        length = len(chunk.data) if is_last else whole_length(chunk.data)
        whole = Chunk(chunk.taskid, chunk.stream, chunk.offset, chunk.data[:length])
        for piece in data_pieces(whole):
            self._send(respond_stream(attachment.request, piece))
            attachment.credit.spend()
        file = chunk.taskid * len(STREAMS) + STREAMS.index(chunk.stream)
        attachment.offsets[file] = chunk.offset + length
        return length > 0

    def _follow(self, attachment: Attachment, job: Job) -> None:
        """Read what may be new; a job that is not there yet is waited for."""
        if attachment.reading or not attachment.following:
            return
        if job.phase is Phase.OVER and job.sizes is None:
            self._read_stored(attachment)
        elif job.simulation is not None or job.phase in _NO_FILES_YET:
            pass
        elif not attachment.file and _is_whole(attachment, job):
            self._end(attachment)
        elif most := attachment.credit.allows(READ_PARTS_MAX):
            if not attachment.file:
                attachment.found = attachment.more = False
                attachment.all_written = job.sizes is not None
            attachment.reading = _next_parts(attachment, job, most)
            if attachment.reading:
                self._context.emit(ReadOutput(attachment.key, job.id, attachment.reading))
            else:  # the rest of the files have no more
                self._end_round(attachment, job)

    def _poll_later(self) -> None:
        if not self._polling:
            self._polling = True
            self._context.emit(SetTimer(TimerKey(TimerKind.POLL), self._context.now + POLL_S))

    # Jobs that are not in the table: over, or yet to start

    def eventlog_read(self, awaited: EventlogRead, response: Response) -> None:
        """The eventlog tells whose the job is, and whether anything of it will run."""
        attachment = self._open.get(awaited.stream)
        if attachment is None or attachment.id != awaited.id:
            return
        if response.errnum:
            self._refuse(attachment, response.errnum, f"job {attachment.id}: {response.error_text}")
            return
        try:
            userid, is_over = _read_eventlog(_value_in(response))
            check_access(attachment.request, userid)
        except FormatError as error:
            self._refuse(attachment, Errno.EPROTO, f"job {attachment.id}: eventlog: {error}")
        except FluxError as error:
            self._refuse(attachment, error.errnum, error.text)
        else:
            job = self._jobs.get(attachment.id)
            if job is not None:
                self._follow(attachment, job)
            elif is_over:
                self._read_stored(attachment)

    def _read_stored(self, attachment: Attachment) -> None:
        """There are no output files (any more): what the job wrote is in the KVS, if anything."""
        if attachment.following:
            attachment.following = False
            self._look_up(attachment)

    def _look_up(self, attachment: Attachment) -> None:
        """Read the piece of stored output where the stream is."""
        if not attachment.looking:
            attachment.looking = True
            lookup = {"key": job_key(attachment.id, output_key(attachment.piece))}
            awaited = PieceRead(attachment.key, attachment.id, attachment.piece)
            self._context.ask(topics.KVS_LOOKUP, lookup, awaited)

    def piece_read(self, awaited: PieceRead, response: Response) -> None:
        """Send of a piece what there is credit for; then the next piece, or the end."""
        attachment = self._open.get(awaited.stream)
        if attachment is None or (attachment.id, attachment.piece) != (awaited.id, awaited.piece):
            return
        if response.errnum == Errno.ENOENT:
            counted = JobCounted(attachment.key, attachment.id)
            self._context.ask(topics.KVS_COUNT, count_payload(attachment.id), counted)
            return
        attachment.looking = False
        if response.errnum:
            self._refuse(attachment, response.errnum, response.error_text)
            return
        most = attachment.credit.allows(STORED_PIECES_MAX)
        try:
            pieces, line = logged_pieces(_value_in(response), attachment.line, most)
        except FormatError as error:
            self._refuse(attachment, Errno.EPROTO, f"job {attachment.id}: output: {error}")
            return
        for piece in pieces:
            self._send(respond_stream(attachment.request, piece))
        attachment.credit.spend(len(pieces))
        if line is None:
            attachment.piece, attachment.line = attachment.piece + 1, 0
            self._look_up(attachment)
        else:
            attachment.line = line
            if attachment.credit.allows(1):
                self._look_up(attachment)

    def job_counted(self, awaited: JobCounted, response: Response) -> None:
        """There is no further piece: that is the end, unless the job was purged."""
        attachment = self._open.get(awaited.stream)
        if attachment is None or attachment.id != awaited.id:
            return
        try:
            check_not_purged(response)
        except FluxError as error:
            self._refuse(attachment, error.errnum, error.text)
        else:
            self._end(attachment)

    # Ends

    def _end(self, attachment: Attachment) -> None:
        self._send(end_of_stream(attachment.request))
        self._forget(attachment)

    def _refuse(self, attachment: Attachment, errnum: int, text: str) -> None:
        self._send(respond_error(attachment.request, errnum, text))
        self._forget(attachment)

    def _forget(self, attachment: Attachment) -> None:
        key = attachment.key
        del self._open[key]
        self._of_user.give_back(attachment.request.userid)
        self._is_idle_no_more(attachment)
        _leave(self._by_sender, attachment.request.sender, key)
        _leave(self._by_job, attachment.id, key)
        self._on_end(attachment.id)

    def _is_idle_no_more(self, attachment: Attachment) -> None:
        _leave(self._idle, attachment.request.userid, attachment.key)

    def _send(self, response: Response | None) -> None:
        if response is not None:
            self._context.emit(response)


def _leave(index: dict[K, dict[StreamKey, Attachment]], place: K, key: StreamKey) -> None:
    """Take a stream out of an index, if it is there."""
    streams = index.get(place)
    if streams is not None:
        streams.pop(key, None)
        if not streams:
            del index[place]


_NO_FILES_YET = (Phase.PREPARING, Phase.LAUNCHING)


def _is_whole(attachment: Attachment, job: Job) -> bool:
    """Whether the job has ended and all of its files was sent."""
    if job.sizes is None:
        return False
    sent = attachment.offsets
    return all(
        sent.get(taskid * len(STREAMS) + STREAMS.index(stream), 0) >= nbytes
        for (taskid, stream), nbytes in job.sizes.items()
    )


def _next_parts(attachment: Attachment, job: Job, most: int) -> tuple[Part, ...]:
    """What to read next in this round, for `most` responses; moves the place in the round.

    It is something of every file while the job runs, then of those with more to come.
    """
    nfiles = job.ntasks * len(STREAMS)
    share = most // nfiles if job.sizes is None else most  # while it runs, each file has one
    pieces = max(1, min(PART_PIECES_MAX, share))
    parts: list[Part] = []
    file = attachment.file
    while file < nfiles and most:
        taskid, stream = divmod(file, len(STREAMS))
        offset = attachment.offsets.get(file, 0)
        left = min(pieces, most) * WHOLE_BYTES
        if job.sizes is not None:
            left = min(left, job.sizes.get((taskid, STREAMS[stream]), 0) - offset)
        if left > 0:
            parts.append(Part(taskid, STREAMS[stream], offset, left))
            most -= -(-left // WHOLE_BYTES)
        file += 1
    attachment.file = file if file < nfiles else 0
    return tuple(parts)


def _value_in(response: Response) -> str:
    payload = response.payload if isinstance(response.payload, dict) else {}
    return str(payload.get("value", ""))


def _read_eventlog(text: str) -> tuple[int, bool]:
    """The job's userid, and whether nothing of it will run any more. FormatError."""
    userid, is_over = -1, False
    for event in parse_eventlog(text):
        context = event.context or {}
        if event.name == JobEvent.SUBMIT:
            userid = context.get("userid", -1)
        elif event.name in (JobEvent.FINISH, JobEvent.CLEAN):
            is_over = True
        elif event.name == JobEvent.EXCEPTION:
            is_over |= context.get("severity") == SEVERITY_FATAL
    return userid, is_over
