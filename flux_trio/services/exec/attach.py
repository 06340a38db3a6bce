"""`job-exec.attach`: the output of a job as a stream of RFC 24 data, from its beginning to its end.

A job that runs is followed: its output files are read, again every `POLL_S` while anyone looks. One
that is over has its output in the KVS; one that is yet to start is waited for. ENODATA is the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from flux_trio.formats import FormatError, job_key, parse_eventlog
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    end_of_stream,
    expect_payload,
    respond_error,
    respond_stream,
    topics,
)
from flux_trio.protocols import JobEvent
from flux_trio.services.exec.context import Context, TimerKey, TimerKind
from flux_trio.services.exec.job import OUTPUT, SEVERITY_FATAL, Job, Phase, check_access
from flux_trio.services.exec.output import data_pieces, logged_pieces, whole_length
from flux_trio.services.exec.shell_protocol import STREAMS
from flux_trio.services.exec.vocabulary import Chunk, OutputRead, Part, ReadOutput
from flux_trio.services.sharing import Allowance
from flux_trio.services.turns import SetTimer

POLL_S: Final = 0.05
READ_BYTES_MAX: Final = 1 << 16  # of one file at a time, so that a long output is not one long turn
ATTACHMENTS_OF_USER_MAX: Final = 1024  # open at once; beyond it EAGAIN

Key = tuple[str, int]  # sender and matchtag (RFC 6)


class _AttachPayload(msgspec.Struct):
    id: int


class _CancelPayload(msgspec.Struct):
    matchtag: int


class Attachment:
    """One stream."""

    __slots__ = ("all_written", "following", "id", "offsets", "reading", "request")

    def __init__(self, request: Request, jobid: int) -> None:
        self.request = request
        self.id = jobid
        self.following = True  # False once what is left comes from the KVS
        self.reading = False  # a ReadOutput is under way
        self.all_written = False  # it was asked for when the job had ended
        self.offsets: dict[tuple[int, str], int] = {}  # what has been sent of each file


class Attachments:
    """All streams. `jobs` is the core's table; `on_end` is told the job of each that has ended."""

    def __init__(
        self, context: Context, jobs: Mapping[int, Job], on_end: Callable[[int], None]
    ) -> None:
        self._context = context
        self._jobs = jobs
        self._on_end = on_end
        self._open: dict[Key, Attachment] = {}
        self._polling = False
        self._of_user = Allowance(ATTACHMENTS_OF_USER_MAX, "output streams")

    def open(self, request: Request) -> None:
        """Take a request. Raises FluxError."""
        jobid = expect_payload(request, _AttachPayload).id
        if not request.is_streaming:
            raise FluxError(Errno.EPROTO, f"{request.topic}: expected a streaming request")
        job = self._jobs.get(jobid)
        if job is not None:
            job.check_access(request)
        self._of_user.take(request.userid)
        attachment = Attachment(request, jobid)
        self._open[request.sender, request.matchtag] = attachment
        if job is not None:
            self._follow(attachment, job)
        else:
            key = {"key": job_key(jobid, "eventlog")}
            self._context.ask(topics.KVS_LOOKUP, key, partial(self._found_eventlog, attachment))

    def follows(self, jobid: int) -> bool:
        """Whether anyone still reads the job's output files."""
        return any(one.following for one in self._of(jobid))

    def job_changed(self, job: Job) -> None:
        """It has started, or all its output is there: read on."""
        for attachment in self._of(job.id):
            self._follow(attachment, job)

    def job_is_dead(self, jobid: int) -> None:
        """A job that is not in the table will never run."""
        for attachment in self._of(jobid):
            self._look_up_output(attachment)

    def cancel(self, request: Request) -> None:
        """`job-exec.attach-cancel`: end one of the sender's streams with ECANCELED."""
        matchtag = expect_payload(request, _CancelPayload).matchtag
        attachment = self._open.get((request.sender, matchtag))
        if attachment is not None:
            self._refuse(attachment, Errno.ECANCELED, "")

    def disconnect(self, sender: str) -> None:
        """The peer is gone: its streams end without an answer."""
        for attachment in [one for one in self._open.values() if one.request.sender == sender]:
            self._forget(attachment)

    def poll(self) -> None:
        """The timer: read on for everyone who follows a job that runs."""
        self._polling = False
        for attachment in list(self._open.values()):
            job = self._jobs.get(attachment.id)
            if job is not None:
                self._follow(attachment, job)

    def output_read(self, key: Key, read: OutputRead) -> None:
        """Send what was found; go on, wait, or end."""
        attachment, job = self._open.get(key), self._jobs.get(read.id)
        if attachment is None or job is None:
            return
        attachment.reading = False
        sent = sum([self._send_chunk(attachment, job, chunk) for chunk in read.chunks])
        more = any(len(chunk.data) == READ_BYTES_MAX for chunk in read.chunks)
        if attachment.all_written and not sent:  # files have lost what they had
            self._end(attachment)
        elif job.sizes is not None or more:
            self._follow(attachment, job)
        else:
            self._poll_later()

    def _send_chunk(self, attachment: Attachment, job: Job, chunk: Chunk) -> int:
        file = (chunk.taskid, chunk.stream)
        end = chunk.offset + len(chunk.data)
        is_last = job.sizes is not None and end >= job.sizes.get(file, 0)
        length = len(chunk.data) if is_last else whole_length(chunk.data)
        whole = Chunk(chunk.taskid, chunk.stream, chunk.offset, chunk.data[:length])
        for piece in data_pieces(whole):
            self._send(respond_stream(attachment.request, piece))
        attachment.offsets[file] = chunk.offset + length
        return length

    def _follow(self, attachment: Attachment, job: Job) -> None:
        """Read what may be new; a job that is not there yet is waited for."""
        if attachment.reading or not attachment.following:
            return
        if job.phase is Phase.OVER and job.sizes is None:
            self._look_up_output(attachment)
        elif job.simulation is not None or job.phase in _NO_FILES_YET:
            pass
        elif parts := _unread(attachment, job):
            attachment.reading = True
            attachment.all_written = job.sizes is not None
            key = (attachment.request.sender, attachment.request.matchtag)
            self._context.emit(ReadOutput(key, job.id, parts))
        else:
            self._end(attachment)

    def _poll_later(self) -> None:
        if not self._polling:
            self._polling = True
            self._context.emit(SetTimer(TimerKey(TimerKind.POLL), self._context.now + POLL_S))

    # Jobs that are not in the table: over, or yet to start

    def _found_eventlog(self, attachment: Attachment, response: Response) -> None:
        if not self._is_open(attachment):
            return
        if response.errnum:
            self._refuse(attachment, response.errnum, f"job {attachment.id}: {response.error_text}")
            return
        payload = response.payload if isinstance(response.payload, dict) else {}
        try:
            userid, is_over = _read_eventlog(str(payload.get("value", "")))
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
                self._look_up_output(attachment)

    def _look_up_output(self, attachment: Attachment) -> None:
        """There are no output files (any more): what the job wrote is in the KVS, if anything."""
        if not attachment.following:
            return
        attachment.following = False
        key = {"key": job_key(attachment.id, OUTPUT)}
        self._context.ask(topics.KVS_LOOKUP, key, partial(self._found_output, attachment))

    def _found_output(self, attachment: Attachment, response: Response) -> None:
        if not self._is_open(attachment):
            return
        if response.errnum not in (0, Errno.ENOENT):
            self._refuse(attachment, response.errnum, response.error_text)
            return
        payload = response.payload if isinstance(response.payload, dict) else {}
        try:
            pieces = logged_pieces(str(payload.get("value", "")))
        except FormatError as error:
            self._refuse(attachment, Errno.EPROTO, f"job {attachment.id}: output: {error}")
            return
        for piece in pieces:
            self._send(respond_stream(attachment.request, piece))
        self._end(attachment)

    def _of(self, jobid: int) -> list[Attachment]:
        return [one for one in self._open.values() if one.id == jobid]

    def _is_open(self, attachment: Attachment) -> bool:
        key = (attachment.request.sender, attachment.request.matchtag)
        return self._open.get(key) is attachment

    def _end(self, attachment: Attachment) -> None:
        self._send(end_of_stream(attachment.request))
        self._forget(attachment)

    def _refuse(self, attachment: Attachment, errnum: int, text: str) -> None:
        self._send(respond_error(attachment.request, errnum, text))
        self._forget(attachment)

    def _forget(self, attachment: Attachment) -> None:
        del self._open[attachment.request.sender, attachment.request.matchtag]
        self._of_user.give_back(attachment.request.userid)
        self._on_end(attachment.id)

    def _send(self, response: Response | None) -> None:
        if response is not None:
            self._context.emit(response)


_NO_FILES_YET = (Phase.PREPARING, Phase.LAUNCHING)


def _unread(attachment: Attachment, job: Job) -> tuple[Part, ...]:
    """What to read next: of every file while the job runs, then of those with more to come."""
    parts = []
    files = job.sizes or {} if job.sizes is not None else _files(job)
    for taskid, stream in files:
        offset = attachment.offsets.get((taskid, stream), 0)
        left = READ_BYTES_MAX if job.sizes is None else job.sizes[taskid, stream] - offset
        if left > 0:
            parts.append(Part(taskid, stream, offset, min(left, READ_BYTES_MAX)))
    return tuple(parts)


def _files(job: Job) -> list[tuple[int, str]]:
    return [(taskid, stream) for taskid in range(job.ntasks) for stream in STREAMS]


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
