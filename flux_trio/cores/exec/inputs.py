"""`job-exec.input`: the standard input of a command goes to the tasks of a job that runs.

A request is answered once every task has taken its data. Each job has at most one write under way,
so a command waits for the tasks that read, and no data piles up here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from flux_trio.cores.exec.calls import ExecOutbox
from flux_trio.cores.exec.input_log import InputLog
from flux_trio.cores.exec.job import Job, Jobs, Phase
from flux_trio.cores.exec.real import RealJobs
from flux_trio.cores.exec.vocabulary import ToShell
from flux_trio.cores.state import Part
from flux_trio.editions import exec_requests, rfc24
from flux_trio.formats import FormatError, Idset, format_fluid
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error
from flux_trio.shell.protocol import Fed, Feed

INPUT_BYTES_MAX: Final = 1 << 16  # of one request
WAITING_BYTES_MAX: Final = 16 << 20
"""Bytes of the writes of Flux's own programs that wait for one job's tasks; beyond it EAGAIN."""
PIECE_BYTES: Final = 256  # that a write costs besides its data


class _Piece(msgspec.Struct, frozen=True):
    """A part of a write of one of Flux's own programs; the last one gets the answer."""

    request: Request
    data: exec_requests.Input
    is_last: bool


class Inputs(Part):
    """The writes that are under way."""

    _writes: dict[JobId, Request | None]
    _waiting: dict[JobId, deque[_Piece]]

    def __init__(self, outbox: ExecOutbox, jobs: Jobs, real: RealJobs, log: InputLog) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._real = real
        self._log = log
        self._writes = {}  # by job; None if the sender has gone
        self._waiting = {}  # by job: those after it, of Flux's own programs

    def write(self, request: Request) -> None:
        """Send the data to the tasks; the answer says whether they take more. Raises FluxError."""
        self._write(request, exec_requests.INPUT.read(request))

    def write_in_turn(self, request: Request, payload: exec_requests.Input) -> None:
        """Send data of one of Flux's own programs, which do not wait for the answer before.

        The answer is empty, also when the tasks have ended and nobody reads. Raises FluxError;
        ENOSYS if the job takes no input, and EPIPE if a task has got the end of its input.
        """
        job = self._jobs.asked_about(request, payload.id)
        has_run = job.phase in (Phase.RUNNING, Phase.STORING, Phase.OVER)
        if not has_run or job.start is None or not job.start.input:
            raise FluxError(Errno.ENOSYS, f"job {format_fluid(job.id, 'f58')} takes no input")
        if job.phase is not Phase.RUNNING:
            self._outbox.send(respond(request))
            return
        name = format_fluid(payload.id, "f58")
        waiting = self._waiting.setdefault(payload.id, deque())
        nbytes = sum(PIECE_BYTES + len(piece.data.data) for piece in waiting)
        if waiting and nbytes + len(payload.data) > WAITING_BYTES_MAX:
            text = f"more than {WAITING_BYTES_MAX} bytes of input wait for the tasks to read"
            raise FluxError(Errno.EAGAIN, f"job {name}: {text}")
        self._real.check_connected(job)
        if not self._take(job, payload):
            self._outbox.send(respond(request))
            return
        *starts, last = range(0, max(1, len(payload.data)), INPUT_BYTES_MAX)
        for at in starts:
            data = payload.data[at : at + INPUT_BYTES_MAX]
            part = msgspec.structs.replace(payload, data=data, eof=False)
            waiting.append(_Piece(request, part, is_last=False))
        part = msgspec.structs.replace(payload, data=payload.data[last:])
        waiting.append(_Piece(request, part, is_last=True))
        self._write_next(payload.id)

    def _take(self, job: Job, payload: exec_requests.Input) -> bool:
        """Log what is to be written; return whether the job may get it. Raises FluxError.

        A job that gets too much fails, and its exception says so. Its sender gets no error of its
        own: it would end before it reads that.
        """
        name = format_fluid(job.id, "f58")
        tasks = _tasks_of(job, payload)
        if not job.input_open or tasks & ~job.input_open:
            broken = FluxError(Errno.EPIPE).text
            text = f"job {name}: task {payload.ranks}: {broken}: its input is closed"
            raise FluxError(Errno.EPIPE, text)
        job.input_bytes += len(payload.data)
        if job.input_bytes > job.input_rules.limit:
            if not job.stopping:
                self._real.fail_of_input(job)
            return False
        if payload.eof:
            job.input_open &= ~tasks
        self._log.add(job, payload)
        return True

    def _write(self, request: Request, payload: exec_requests.Input) -> None:
        name = format_fluid(payload.id, "f58")
        job = self._jobs.asked_about(request, payload.id)
        if job.phase is not Phase.RUNNING:
            raise FluxError(Errno.ENOENT, f"job {name} is not running")
        if job.start is None or not job.start.input:
            raise FluxError(Errno.EINVAL, f"job {name} takes no input")
        if len(payload.data) > INPUT_BYTES_MAX:
            text = f"data: expected at most {INPUT_BYTES_MAX} bytes, got {len(payload.data)}"
            raise FluxError(Errno.EPROTO, text)
        self._real.check_connected(job)
        if payload.id in self._writes:
            raise FluxError(Errno.EBUSY, f"job {name}: another write of input is under way")
        is_all = payload.ranks == rfc24.ALL
        tasks = None if is_all else list(Idset.from_bits(_tasks_of(job, payload)))
        self._writes[payload.id] = request
        self._outbox.send(ToShell(Feed(payload.id, payload.data, payload.eof, tasks)))

    def fed(self, notice: Fed) -> None:
        """Answer the write of a job: its tasks have taken the data, or refused it."""
        request = self._writes.pop(notice.id, None)
        self._write_next(notice.id)
        if request is not None and notice.refusal:
            # Flux's own programs fail of another error, even if they only tell the end of the input
            errnum = (
                Errno.EIO if exec_requests.job_of_shell(request.topic) is None else Errno.ENOSYS
            )
            self._outbox.send(respond_error(request, errnum, notice.refusal))
        elif request is not None and exec_requests.job_of_shell(request.topic) is not None:
            self._outbox.send(respond(request))
        elif request is not None:
            taken = exec_requests.INPUT_TAKEN.write(exec_requests.InputTaken(notice.open))
            self._outbox.send(respond(request, taken))

    def _write_next(self, jobid: int) -> None:
        waiting = self._waiting.get(jobid)
        while waiting and jobid not in self._writes:
            piece = waiting.popleft()
            try:
                self._write(piece.request, piece.data)
            except FluxError:  # the job has ended meanwhile: nobody reads any more
                self._outbox.send(respond(piece.request))
                self._drop(waiting, piece.request)
            else:
                if not piece.is_last:
                    self._writes[jobid] = None
        if not waiting:
            self._waiting.pop(jobid, None)

    def _drop(self, waiting: deque[_Piece], request: Request) -> None:
        _keep(waiting, lambda piece: piece.request is not request)

    def disconnect(self, sender: str) -> None:
        """Let the writes of a peer that is gone end without an answer."""
        for jobid, request in self._writes.items():
            if request is not None and request.sender == sender:
                self._writes[jobid] = None
        for waiting in self._waiting.values():
            _keep(waiting, lambda piece: piece.request.sender != sender)

    def disconnected(self, reason: str) -> None:
        """Refuse the writes under way: the shell host cannot tell any more what the tasks took."""
        writes, self._writes = self._writes, {}
        waiting, self._waiting = self._waiting, {}
        late = [each.request for pieces in waiting.values() for each in pieces if each.is_last]
        for request in [*writes.values(), *late]:
            if request is not None:
                self._outbox.send(
                    respond_error(request, Errno.EIO, f"lost the shell host: {reason}")
                )


def _tasks_of(job: Job, payload: exec_requests.Input) -> int:
    """Return the tasks that input is for, as bits: `all` are those that are open."""
    if payload.ranks == rfc24.ALL:
        return job.input_open
    try:
        return Idset.parse(payload.ranks).bits
    except FormatError as error:
        raise FluxError(Errno.EPROTO, f"rank: {error}") from None


def _keep(waiting: deque[_Piece], is_kept: Callable[[_Piece], bool]) -> None:
    kept = [piece for piece in waiting if is_kept(piece)]
    waiting.clear()
    waiting.extend(kept)
