"""The start streams: what the job manager is told of each job (RFC 32, Start Request).

Every answer is remembered with its job until the job is forgotten. So a start that is repeated is
told the whole story again, whoever asks (readings: Exec override). While no start of a job is
outstanding, its story goes on untold.

Where each stream stands is a state of the table EXECUTION, and nothing else says so.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.exec.calls import ExecOutbox
from flux_trio.cores.exec.job import SEVERITY_FATAL, SEVERITY_NOTE, Job, Phase
from flux_trio.cores.state import Part
from flux_trio.editions import Edition
from flux_trio.editions.rfc32 import Finished, Raised, Released, Report, StartAnswer, Started
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Request, respond
from flux_trio.protocols import EXECUTION, ExecEvent, ExecState, Standings

_EVENTS: Final[dict[type[Report], ExecEvent]] = {
    Started: ExecEvent.START,
    Raised: ExecEvent.EXCEPTION,
    Finished: ExecEvent.FINISH,
    Released: ExecEvent.RELEASE_FINAL,  # this service releases all at once
}


class Streams(Standings[ExecState, ExecEvent]):
    """Where the start stream of each job stands."""

    table = EXECUTION


class Starts(Part):
    """All start streams. `over` has the jobs whose final release came up in this turn."""

    streams: Streams
    over: list[JobId]
    _requests: dict[JobId, Request]

    def __init__(self, outbox: ExecOutbox, edition: Edition) -> None:
        self._outbox = outbox
        self._edition = edition
        self.streams = Streams()
        self.over = []
        self._requests = {}  # by job, of the streams that are outstanding

    def take_over(self) -> list[int]:
        """The jobs whose final release came up since the last time."""
        over, self.over = self.over, []
        return over

    # The job manager asks, or is gone

    def ask(self, job: Job, request: Request) -> None:
        """Open the stream of `job`; one before it has lost its reader, who would not ask again."""
        state = self.streams.of(job.id)
        if state is not ExecState.IDLE:
            state = self._lose(job.id)
        if state is ExecState.RELEASED:
            self.streams.forget(job.id)  # it was told to its end, and is told once more
        self.streams.step(job.id, ExecEvent.REQUEST)
        self._requests[job.id] = request
        for report in job.told:
            self._answer(job, request, report)

    def lost(self) -> None:
        """The job manager is gone: no stream has a reader."""
        for jobid in self.streams:
            self._lose(jobid)

    def is_told(self, job: Job) -> bool:
        """Return whether a job manager was told the final release of `job`."""
        return self.streams.of(job.id) is ExecState.RELEASED

    def forget(self, jobid: int) -> None:
        """The stream of a job that is forgotten, or asked for anew, is no more."""
        self.streams.forget(jobid)
        self._requests.pop(jobid, None)

    def _lose(self, jobid: int) -> ExecState:
        self._requests.pop(jobid, None)
        return self.streams.step(jobid, ExecEvent.LOST)

    # What it is told

    def exception(self, job: Job, note: str, kind: str = "exec") -> None:
        """A fatal exception of the job (RFC 21)."""
        job.killed = True
        self._tell(job, Raised(SEVERITY_FATAL, kind, note))

    def note(self, job: Job, note: str) -> None:
        """An exception of the job that ends nothing, for its user to read (RFC 21)."""
        self._tell(job, Raised(SEVERITY_NOTE, "exec", note))

    def start(self, job: Job) -> None:
        """The job runs."""
        job.phase = Phase.RUNNING
        self._tell(job, Started())

    def finish(self, job: Job, status: int) -> None:
        """The job has ended with the wait(2) status `status`, and uses nothing."""
        job.status = status
        self._tell(job, Finished(status))
        self.release(job)

    def release(self, job: Job) -> None:
        """The job uses none of its resources: the last answer."""
        job.phase = Phase.OVER
        self.over.append(job.id)
        ranks = "" if job.resources is None else str(job.resources.ranks)
        self._tell(job, Released(ranks, final=True))

    def fail(self, job: Job, note: str) -> None:
        """The job cannot be started: a fatal exception, and the release that must follow."""
        self.exception(job, note)
        self.release(job)

    def _tell(self, job: Job, report: Report) -> None:
        job.told.append(report)
        request = self._requests.get(job.id)
        if request is not None:
            self._answer(job, request, report)

    def _answer(self, job: Job, request: Request, report: Report) -> None:
        if self.streams.step(job.id, _EVENTS[type(report)]) is ExecState.RELEASED:
            del self._requests[job.id]
        payload = self._edition.start_answer.write(StartAnswer(job.id, report))
        self._outbox.send(respond(request, payload))  # errnum 0, whatever it says (32.impl.5)
