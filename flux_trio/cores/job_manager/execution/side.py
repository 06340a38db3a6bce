"""The job manager's side of RFC 32: the link to the execution service, starts and answers.

The service says hello; in classic it is refused while starts of another one are outstanding, in the
current edition it takes over. From then on, in the order of a job's life:

    RUN, no prolog is open    <service>.start  → start: the event start
                                               → exception: the event exception
                                               → finish: the event finish, with the status
                                               → release: the event release; the last is final
    the job is canceled       `jobs/ledger` publishes job-exception, and the service ends the job
    a service has come again  <service>.start of each job that is not over, with `reattach` if the
                              job has started

The job gives its resources back only after the final release. A disconnect of the service, an error
response, or an answer that RFC 32 does not allow ends the link: no start is sent until the next
hello, and jobs wait.
"""

from __future__ import annotations

from typing import assert_never

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import exec_requests, rfc21
from flux_trio.editions.rfc21 import ALL_RANKS
from flux_trio.editions.rfc32 import (
    Finished,
    RaisedException,
    Reattached,
    Released,
    Report,
    Start,
    Started,
)
from flux_trio.formats import FormatError, Idset
from flux_trio.messages import Errno, Event, FluxError, Level, Request, Response, respond, topics
from flux_trio.messages.types import PRIVATE, STREAMING
from flux_trio.protocols import (
    EXECUTION,
    ExecEvent,
    ExecState,
    InvalidTransition,
    JobEvent,
    JobState,
    Story,
)


def note_release(job: ActiveJob, released: Released) -> None:
    """Note the ranks that the service releases (readings: Release ranks).

    A service that gets the start again may tell all releases again, or only those that are left.
    Raises FormatError for ranks that are not those of R, that were released in answer to the same
    start, or that do not agree with `final`. Without a readable R, only their form is checked.
    """
    if released.ranks == ALL_RANKS:
        if not released.final:
            raise FormatError(f"true with ranks {ALL_RANKS!r}", released.final, "final")
        return
    try:
        ranks = Idset.parse(released.ranks)
    except FormatError as error:
        raise error.at("ranks") from None
    held = ranks if job.granted is None else job.granted.ranks
    in_answer = Idset.from_bits(job.released_in_answer)
    left = held - in_answer
    if not ranks or not ranks <= left:
        raise FormatError(f"some of the ranks {left}", released.ranks, "ranks")
    still = left - ranks
    if released.final and not still <= Idset.from_bits(job.released_ranks):
        raise FormatError(f"the ranks {left} with final true", released.ranks, "ranks")
    if not released.final and not still and job.granted is not None:
        raise FormatError("true with the last ranks", released.final, "final")
    job.released_in_answer |= ranks.bits


OUTSTANDING = (ExecState.STARTING, ExecState.RUNNING, ExecState.FINISHED)


class ExecSide(Part):
    """The conversation with the execution service."""

    service: str  # its registered name, "" while there is no service
    sender: str
    story: Story[ExecEvent]

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.service = ""
        self.sender = ""
        self.story = Story()
        self.silence = Silence("execution service")

    @property
    def absence(self) -> str:
        """Return why jobs with resources do not start, for users; "" while there is a service."""
        if self.service:
            return ""
        jobs = self._ledger.running.values()
        waiting = sum(job.state == JobState.RUN and not job.prologs for job in jobs)
        return (
            f"no execution service: jobs with resources wait in RUN ({waiting})" if waiting else ""
        )

    # --- events of jobs

    def resumed(self, job: ActiveJob) -> None:
        """Take up a job read back: it was started if it has resources and no open prolog."""
        if job.has_resources and not job.prologs:  # 21.events.22: not before a prolog has finished
            is_finished = job.status is not None
            self._step(job, ExecEvent.RESUME_FINISHED if is_finished else ExecEvent.RESUME)

    def consider(self, job: ActiveJob) -> None:
        """Start a job in RUN, if there is a service and no prolog holds the job."""
        if not job.prologs:
            self._start(job)

    def is_done(self, job: ActiveJob) -> bool:
        """Return whether no process of `job` runs, so that its resources may be freed.

        If its start was sent, the start is sent again, so that the final release still comes.
        """
        if job.released or job.start == ExecState.IDLE:
            return True
        if job.start == ExecState.RELEASED:
            # the service went away after finish: no process of the job runs
            # (readings: Final release without finish)
            self._ledger.log(job, JobEvent.RELEASE, rfc21.write(rfc21.RELEASE_ALL))
            return True
        self._start(job)
        return False

    # --- messages of the execution service

    def hello(self, request: Request) -> None:
        """job-manager.exec-hello: take a new service.

        While starts to the last service are outstanding, the edition decides: refuse the new
        service (EINVAL), or let it take over.
        """
        service = self._ledger.edition.exec_hello.read(request).service
        busy = sum(job.start in OUTSTANDING for job in self._ledger.running.values())
        if busy and self._ledger.edition.hello_needs_no_start_outstanding:
            text = f"{self.service} has {busy} start requests outstanding"
            raise FluxError(Errno.EINVAL, text)
        if busy:
            self._part(Level.INFO, f"is replaced: {service} takes over")
        self.service = service
        self.sender = request.sender
        self.silence.broken()
        self._ledger.send(respond(request))
        self._publish(service)
        self._ledger.dirty |= self._ledger.running

    def start_response(self, response: Response) -> None:
        """Take an answer to <service>.start; an error response ends the link to the service."""
        self.silence.broken()
        if response.errnum:
            self.lost(f"{response.topic}: {response.error_text or response.errnum}")
            return
        try:
            answer = self._ledger.edition.start_answer.read(response)
            job = self._ledger.jobs.get(answer.id)
            if job is None:
                raise FluxError(Errno.EPROTO, f"{response.topic}: no active job has id {answer.id}")
            try:
                self._answered(job, answer.report)
            except InvalidTransition as error:
                raise FluxError(Errno.EPROTO, str(error)) from None
            except FormatError as error:
                text = f"{response.topic}: release of job {answer.id}: {error}"
                raise FluxError(Errno.EPROTO, text) from None
        except FluxError as error:
            self.lost(error.text)

    def lost(self, reason: str) -> None:
        """Send no start until the next exec-hello: the service has failed."""
        self._end(Level.ERR, f"lost: {reason}")

    def left(self) -> None:
        """Send no start until the next exec-hello: the service has disconnected, as at its end."""
        self._end(Level.INFO, "disconnected")

    def _end(self, level: Level, what: str) -> None:
        if service := self.service:
            self._part(level, what)
            self._publish(service)

    def _part(self, level: Level, what: str) -> None:
        self._ledger.send(Log(level, f"execution service {self.service} {what}"))
        self._ledger.unsend(self.service)
        self.service = ""
        self.sender = ""
        self.silence.broken()
        for job in self._ledger.running.values():
            self._step(job, ExecEvent.LOST)
            if job.start != ExecState.IDLE:
                self._ledger.dirty[job.id] = job

    # --- the built-in service

    def who(self, request: Request) -> None:
        """job-manager.exec-service: who runs jobs (readings: Exec override at start)."""
        self._ledger.answer_at_once(respond(request, exec_requests.PLACE.write(self._place())))

    def _publish(self, service: str) -> None:
        """Tell the built-in service that another `service` has come, or has left."""
        if service != topics.JOB_EXEC:
            payload = exec_requests.PLACE.write(self._place())
            self._ledger.send(Event(topics.EXEC_SERVICE_EVENT, payload, flags=PRIVATE))

    def _place(self) -> exec_requests.ExecPlace:
        jobs = self._ledger.running.values()
        is_left = any(job.started and job.start == ExecState.ABANDONED for job in jobs)
        return exec_requests.ExecPlace(self.service, vacant=not (self.service or is_left))

    # --- starts

    def _start(self, job: ActiveJob) -> None:
        """Send a start of `job`, if there is a service and no start was sent."""
        if not self.service or not EXECUTION.allows(job.start, ExecEvent.REQUEST):
            return
        self._step(job, ExecEvent.REQUEST)
        job.released_in_answer = 0
        reattach = job.started and job.status is None
        start = Start(job.id, job.userid, job.current_jobspec(), reattach, job.current_resources())
        payload = self._ledger.edition.start.write(start)
        self.silence.asked(self._ledger.now)
        flags = STREAMING if self._ledger.edition.start_streams else 0
        self._ledger.send(Request(f"{self.service}.{topics.START_METHOD}", payload, flags=flags))

    def _answered(self, job: ActiveJob, report: Report) -> None:
        match report:
            case Started() | Reattached():
                self._step(job, ExecEvent.START)
                if not job.started:  # a service that reattached may answer start again
                    self._ledger.log(job, JobEvent.START)
            case Finished(status):
                was_started = job.started or job.start != ExecState.STARTING
                self._step(job, ExecEvent.FINISH)
                if not was_started:
                    self._omitted(job, "execution service finished the job before it started it")
                self._ledger.log(job, JobEvent.FINISH, rfc21.write(rfc21.Finish(status)))
            case Released():
                self._release(job, report)
            case RaisedException():
                self._step(job, ExecEvent.EXCEPTION)
                self._ledger.raise_exception(job, report.type, report.severity, report.note)
            case _:
                assert_never(report)

    def _release(self, job: ActiveJob, released: Released) -> None:
        before = job.start
        note_release(job, released)
        self._step(job, ExecEvent.RELEASE_FINAL if released.final else ExecEvent.RELEASE)
        if released.final and before != ExecState.FINISHED:
            self._omitted(job, "execution service released all resources before finish")
        context = rfc21.Release(released.ranks, released.final)
        self._ledger.log(job, JobEvent.RELEASE, rfc21.write(context))

    def _omitted(self, job: ActiveJob, note: str) -> None:
        """Raise a fatal exception unless the job has one: an answer was omitted (32.start.35)."""
        if job.exception is None:
            self._ledger.send(Log(Level.ERR, f"job {job.id}: {note}"))
            self._ledger.raise_exception(job, "exec", 0, note)

    def _step(self, job: ActiveJob, event: ExecEvent) -> None:
        job.start = self.story.step(EXECUTION, job.id, job.start, event)
