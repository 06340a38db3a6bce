"""The job manager's side of RFC 32: who executes, what it is asked, what it says."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.messages import (
    Errno,
    FluxError,
    Level,
    Request,
    Response,
    expect_payload,
    respond,
    topics,
)
from flux_trio.protocols import (
    EXECUTION,
    ExecEvent,
    ExecState,
    InvalidTransition,
    JobEvent,
    JobState,
    StartType,
)

OUTSTANDING = (ExecState.STARTING, ExecState.RUNNING, ExecState.FINISHED)


class Hello(msgspec.Struct, forbid_unknown_fields=True):
    """The job-manager.exec-hello request."""

    service: Annotated[str, msgspec.Meta(min_length=1)]


class StartAnswer(msgspec.Struct):
    """A <service>.start response."""

    id: int
    type: StartType
    data: dict[str, Any]


class ReleaseData(msgspec.Struct):
    """The data of a release: an idset of execution targets."""

    ranks: str
    final: bool


class ExceptionData(msgspec.Struct):
    """The data of an exception; the note is optional on the wire."""

    severity: Annotated[int, msgspec.Meta(ge=0, le=7)]
    type: str
    note: str = ""


class FinishData(msgspec.Struct):
    """The data of a finish: a wait(2) status."""

    status: int


class ExecSide(Part):
    """The conversation with the execution service."""

    service: str  # the name it registered, "" when there is none
    sender: str

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.service = ""
        self.sender = ""
        self.silence = Silence("execution service")

    @property
    def absence(self) -> str:
        """Why jobs that could be started are not, for people; "" while there is a service."""
        if self.service:
            return ""
        jobs = self._ledger.running.values()
        waiting = sum(job.state == JobState.RUN and not job.prologs for job in jobs)
        return (
            f"no execution service: jobs with resources wait in RUN ({waiting})" if waiting else ""
        )

    # --- what the job machine asks

    def consider(self, job: ActiveJob) -> None:
        """A job in RUN: start it when nothing holds it and somebody can."""
        if job.start == ExecState.IDLE and self.service and not job.prologs:
            self._send_start(job)

    def is_done(self, job: ActiveJob) -> bool:
        """Whether nothing of `job` runs, so that its resources may be freed.

        A job whose start was sent is asked about again, so that its final release still comes.
        """
        if job.released or not job.start_sent:
            return True
        if job.status is not None and job.start in (ExecState.IDLE, ExecState.RELEASED):
            # the service went away after finish: nothing of the job runs
            # (readings: Final release without finish)
            self._ledger.log(job, JobEvent.RELEASE, {"ranks": "all", "final": True})
            return True
        if job.start == ExecState.IDLE and self.service:
            self._send_start(job)
        return False

    # --- what the execution service says

    def hello(self, request: Request) -> None:
        """job-manager.exec-hello: a service takes over, unless another has starts outstanding."""
        service = expect_payload(request, Hello).service
        busy = sum(job.start in OUTSTANDING for job in self._ledger.running.values())
        if busy:
            text = f"{self.service} has {busy} start requests outstanding"
            raise FluxError(Errno.EINVAL, text)
        self.service = service
        self.sender = request.sender
        self.silence.broken()
        self._ledger.send(respond(request))
        self._ledger.dirty |= self._ledger.running

    def start_response(self, response: Response) -> None:
        """An answer to <service>.start; a conventional error is the service's end."""
        self.silence.broken()
        if response.errnum:
            self.lost(f"{response.topic}: {response.error_text or response.errnum}")
            return
        try:
            answer = expect_payload(response, StartAnswer)
            job = self._ledger.jobs.get(answer.id)
            if job is None:
                raise FluxError(Errno.EPROTO, f"{response.topic}: no active job has id {answer.id}")
            try:
                self._answered(job, answer)
            except InvalidTransition as error:
                raise FluxError(Errno.EPROTO, f"job {job.id}: {error}") from None
        except FluxError as error:
            self.lost(error.text)

    def lost(self, reason: str, level: Level = Level.ERR) -> None:
        """The service is gone or failed: nothing more is sent until the next exec-hello."""
        if not self.service:
            return
        self._ledger.send(Log(level, f"execution service {self.service} lost: {reason}"))
        self._ledger.unsend(self.service)
        self.service = ""
        self.sender = ""
        self.silence.broken()
        for job in self._ledger.running.values():
            if job.start != ExecState.IDLE:
                job.start = EXECUTION.step(job.start, ExecEvent.LOST)
                self._ledger.dirty[job.id] = job

    # --- how

    def _send_start(self, job: ActiveJob) -> None:
        job.start = EXECUTION.step(job.start, ExecEvent.REQUEST)
        job.start_sent = True
        payload = {
            "id": job.id,
            "userid": job.userid,
            "jobspec": job.current_jobspec(),
            "reattach": job.started and job.status is None,
        }
        self.silence.asked(self._ledger.now)
        self._ledger.send(Request(f"{self.service}.{topics.START_METHOD}", payload))

    def _answered(self, job: ActiveJob, answer: StartAnswer) -> None:
        match answer.type:
            case StartType.START:
                self._step(job, ExecEvent.START)
                if not job.started:  # a service that reattached may say so again
                    self._ledger.log(job, JobEvent.START)
            case StartType.FINISH:
                self._finished(job, _data(answer, FinishData))
            case StartType.RELEASE:
                self._release(job, _data(answer, ReleaseData))
            case StartType.EXCEPTION:
                self._step(job, ExecEvent.EXCEPTION)
                data = _data(answer, ExceptionData)
                self._ledger.raise_exception(job, data.type, data.severity, data.note)

    def _finished(self, job: ActiveJob, data: FinishData) -> None:
        self._step(job, ExecEvent.FINISH)
        self._ledger.log(job, JobEvent.FINISH, {"status": data.status})

    def _release(self, job: ActiveJob, data: ReleaseData) -> None:
        before = job.start
        self._step(job, ExecEvent.RELEASE_FINAL if data.final else ExecEvent.RELEASE)
        if data.final and before != ExecState.FINISHED and job.exception is None:
            note = "execution service released all resources before finish"
            self._ledger.send(Log(Level.ERR, f"job {job.id}: {note}"))
            self._ledger.raise_exception(job, "exec", 0, note)
        context = {"ranks": data.ranks, "final": data.final}
        self._ledger.log(job, JobEvent.RELEASE, context)

    def _step(self, job: ActiveJob, event: ExecEvent) -> None:
        job.start = EXECUTION.step(job.start, event)


def _data(answer: StartAnswer, shape: type[Any]) -> Any:
    try:
        return msgspec.convert(answer.data, shape)
    except msgspec.ValidationError as error:
        raise FluxError(Errno.EPROTO, f"start response {answer.type}: data: {error}") from None
