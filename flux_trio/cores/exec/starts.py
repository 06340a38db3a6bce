"""The start streams: the responses to start requests (RFC 32, Start Request).

A job keeps every response until it is forgotten. So a repeated start gets all of them again, from
any job manager (readings: Exec override). While no start of a job is outstanding, its responses are
kept and not sent. In an edition that has `reattached`, that type answers a start with `reattach` in
place of `start`.

The state of each stream is a state of the table EXECUTION; no other value says where it stands.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.exec.calls import ExecOutbox
from flux_trio.cores.exec.job import SEVERITY_NOTE, Job, Phase
from flux_trio.cores.state import Part
from flux_trio.editions import Edition
from flux_trio.editions.rfc21 import ALL_RANKS, SEVERITY_FATAL
from flux_trio.editions.rfc32 import (
    Finished,
    RaisedException,
    Reattached,
    Released,
    Report,
    Start,
    StartAnswer,
    Started,
)
from flux_trio.formats import Idset
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Request, respond, respond_stream
from flux_trio.protocols import EXECUTION, ExecEvent, ExecState, JobConversations

_EVENTS: Final[dict[type[Report], ExecEvent]] = {
    Started: ExecEvent.START,
    Reattached: ExecEvent.START,
    RaisedException: ExecEvent.EXCEPTION,
    Finished: ExecEvent.FINISH,
    Released: ExecEvent.RELEASE_FINAL,
}


class Streams(JobConversations[ExecState, ExecEvent]):
    """The state of the start stream of each job."""

    table = EXECUTION


class _StartRequest(msgspec.Struct, frozen=True):
    """A start request that is outstanding."""

    request: Request
    reattach: bool


class Starts(Part):
    """All start streams; `over` has the jobs whose final release was due or sent in this turn.

    What is reported of a job can be held for a while: until it is written in its guest namespace.
    """

    streams: Streams
    over: list[JobId]
    _held: list[JobId]
    _requests: dict[JobId, _StartRequest]

    def __init__(self, outbox: ExecOutbox, edition: Edition) -> None:
        self._outbox = outbox
        self._edition = edition
        self.streams = Streams()
        self.over = []
        self._held = []  # jobs that started or ended in this turn, which is held
        self._requests = {}  # by job, of its open stream

    def pop_ended(self) -> list[int]:
        """Return the jobs whose final release was due or sent since the last call."""
        over, self.over = self.over, []
        return over

    # The job manager asks, or is gone

    def ask(self, job: Job, request: Request, start: Start) -> None:
        """Open the stream of `job`, which `start` in `request` asks for.

        A stream of it that is open has lost its reader.
        """
        if job.id in self._requests:
            self._lose(job.id)
        self.streams.step(job.id, ExecEvent.REQUEST)
        self._requests[job.id] = asked = _StartRequest(request, start.reattach)
        for report in job.reports[: len(job.reports) - job.nheld]:
            self._answer(job, asked, report)
        if self.is_release_sent(job):
            self.over.append(job.id)

    def lost(self) -> None:
        """Close all streams: the job manager is gone."""
        for jobid in self.streams:
            self._lose(jobid)

    def mark_undelivered(self) -> None:
        """Mark the final releases of this turn as not sent: the job manager leaves in this turn."""
        for jobid in self.over:
            self.streams.step(jobid, ExecEvent.UNDELIVERED)

    def is_release_sent(self, job: Job) -> bool:
        """Return whether the final release of `job` was sent to a job manager."""
        return self.streams.of(job.id) is ExecState.RELEASED

    def forget(self, jobid: int) -> None:
        """Remove the stream of a job that this service forgets."""
        self.streams.forget(jobid)
        self._requests.pop(jobid, None)

    def _lose(self, jobid: int) -> None:
        self._requests.pop(jobid, None)
        self.streams.step(jobid, ExecEvent.LOST)

    # Reports to the job manager

    def let_go(self, job: Job) -> None:
        """Tell what was held since the start or the end of the job."""
        held, job.nheld, job.is_held = job.nheld, 0, False
        for report in job.reports[len(job.reports) - held :]:
            self._tell(job, report)
        if held and job.phase is Phase.OVER:
            self.over.append(job.id)

    def pop_held(self) -> list[int]:
        """Return the jobs that have started or ended since the last call, which is held."""
        held, self._held = self._held, []
        return held

    def exception(self, job: Job, note: str, kind: str = "exec") -> None:
        """Raise a fatal exception of the job (RFC 21)."""
        job.killed = True
        self._report(job, RaisedException(SEVERITY_FATAL, kind, note))

    def note(self, job: Job, note: str) -> None:
        """Raise an exception that does not end the job; its user can read it (RFC 21)."""
        self._report(job, RaisedException(SEVERITY_NOTE, "exec", note))

    def start(self, job: Job) -> None:
        """Report that the job runs; where it has a namespace, once that is written in it."""
        job.phase = Phase.RUNNING
        if job.guest is not None and job.guest.is_named:
            job.is_held = True
            self._held.append(job.id)
        self._report(job, Started())

    def finish(self, job: Job, status: int) -> None:
        """Report that the job has ended with the wait(2) status `status`; release its resources."""
        job.status = status
        job.is_held |= job.guest is not None
        self._report(job, Finished(status))
        self.release(job)

    def release(self, job: Job, named: Idset | None = None) -> None:
        """Release all resources of the job that are left: the last response.

        `named` are those that are known of an R that cannot be read.
        """
        job.phase = Phase.OVER
        if job.guest is None:
            self.over.append(job.id)
        else:
            self._held.append(job.id)
            job.is_held = True
        resources = job.resources or job.given
        if resources is not None:
            ranks = str(resources.ranks - Idset.from_bits(job.released))
        else:
            ranks = str(named) if named else ALL_RANKS
        self._report(job, Released(ranks, final=True))

    def release_part(self, job: Job, ranks: Idset) -> None:
        """Release ranks on which no process of the job is left, while others have one."""
        job.released |= ranks.bits
        self._report(job, Released(str(ranks), final=False))

    def fail(self, job: Job, note: str) -> None:
        """Raise a fatal exception of a job that cannot start, and release its resources."""
        self.exception(job, note)
        self.release(job)

    def _report(self, job: Job, report: Report) -> None:
        job.reports.append(report)
        if job.is_held:
            job.nheld += 1
        else:
            self._tell(job, report)

    def _tell(self, job: Job, report: Report) -> None:
        asked = self._requests.get(job.id)
        if asked is not None:
            self._answer(job, asked, report)

    def _answer(self, job: Job, asked: _StartRequest, report: Report) -> None:
        if asked.reattach and self._edition.tells_reattached and isinstance(report, Started):
            report = Reattached()
        event = _EVENTS[type(report)]
        if isinstance(report, Released) and not report.final:
            event = ExecEvent.RELEASE
        if self.streams.step(job.id, event) is ExecState.RELEASED:
            del self._requests[job.id]
        payload = self._edition.start_answer.write(StartAnswer(job.id, report))
        answer = respond_stream if asked.request.is_streaming else respond
        self._outbox.send(
            answer(asked.request, payload)
        )  # errnum is 0 in every response (32.impl.5)
