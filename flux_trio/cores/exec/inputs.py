"""`job-exec.input`: the standard input of a command goes to the tasks of a job that runs.

A request is answered once every task has taken its data. Each job has at most one write under way,
so a command waits for the tasks that read, and no data piles up here.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.exec.calls import ExecOutbox
from flux_trio.cores.exec.job import Jobs, Phase
from flux_trio.cores.exec.vocabulary import ToShell
from flux_trio.cores.state import Part
from flux_trio.editions import exec_requests
from flux_trio.formats import format_fluid
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error
from flux_trio.shell.protocol import Fed, Feed

INPUT_BYTES_MAX: Final = 1 << 16  # of one request


class Inputs(Part):
    """The writes that are under way."""

    _writes: dict[JobId, Request | None]

    def __init__(self, outbox: ExecOutbox, jobs: Jobs) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._writes = {}  # by job; None if the sender has gone

    def write(self, request: Request, is_connected: bool) -> None:
        """Send the data to the tasks; the answer says whether they take more. Raises FluxError.

        `is_connected` says whether the shell host can be reached.
        """
        payload = exec_requests.INPUT.read(request)
        name = format_fluid(payload.id, "f58")
        job = self._jobs.asked_about(request, payload.id)
        if job.phase is not Phase.RUNNING:
            raise FluxError(Errno.ENOENT, f"job {name} is not running")
        if job.start is None or not job.start.input:
            raise FluxError(Errno.EINVAL, f"job {name} takes no input")
        if len(payload.data) > INPUT_BYTES_MAX:
            text = f"data: expected at most {INPUT_BYTES_MAX} bytes, got {len(payload.data)}"
            raise FluxError(Errno.EPROTO, text)
        if not is_connected:
            raise FluxError(Errno.EIO, f"job {name}: there is no connection to its shell host")
        if payload.id in self._writes:
            raise FluxError(Errno.EBUSY, f"job {name}: another write of input is under way")
        self._writes[payload.id] = request
        self._outbox.send(ToShell(Feed(payload.id, payload.data, payload.eof)))

    def fed(self, notice: Fed) -> None:
        """Answer the write of a job: its tasks have taken the data, or refused it."""
        request = self._writes.pop(notice.id, None)
        if request is not None and notice.refusal:
            self._outbox.send(respond_error(request, Errno.EIO, notice.refusal))
        elif request is not None:
            taken = exec_requests.INPUT_TAKEN.write(exec_requests.InputTaken(notice.open))
            self._outbox.send(respond(request, taken))

    def disconnect(self, sender: str) -> None:
        """Let the writes of a peer that is gone end without an answer."""
        for jobid, request in self._writes.items():
            if request is not None and request.sender == sender:
                self._writes[jobid] = None

    def disconnected(self, reason: str) -> None:
        """Refuse the writes under way: the shell host cannot tell any more what the tasks took."""
        writes, self._writes = self._writes, {}
        for request in writes.values():
            if request is not None:
                self._outbox.send(
                    respond_error(request, Errno.EIO, f"lost the shell host: {reason}")
                )
