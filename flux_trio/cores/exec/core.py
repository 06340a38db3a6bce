"""The execution service's decisions: RFC 32, with RFC 16 for what it reads and leaves in the KVS.

Hello first, once the shell host answers; then each start request becomes a `Job`, its R is read,
and it is simulated (`simulated.py`) or run (`real.py`). `job.py` has the answers. Cancels come as
`job-exception` events, new expirations by the job manager's journal (readings: How exec learns of
cancels).

R is the one thing looked up for a job that was allocated after the hello. For any other, and one to
reattach, the past is looked up as well: its eventlog, and what an earlier exec service stored.

A target that goes down ends the jobs on it (`targets.py`). The resource service tells of it by
events; `resource.status` is asked after each hello, and when that service is back.

Left out: launching as another user (RFC 15), and releasing resources in parts, which is never
needed since all tasks of a job end on one machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, assert_never

import msgspec

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.attach import Attachments
from flux_trio.cores.exec.context import (
    Context,
    EndPut,
    EndRead,
    EventlogRead,
    JobCounted,
    OutputPut,
    PieceRead,
    TimerKey,
    TimerKind,
)
from flux_trio.cores.exec.inputs import Inputs
from flux_trio.cores.exec.job import EXEC_LOG, SEVERITY_FATAL, SIGNUM_MAX, SIGTERM, Job, Phase
from flux_trio.cores.exec.real import RealJobs
from flux_trio.cores.exec.simulated import SimulatedJobs
from flux_trio.cores.exec.simulation import simulation_of
from flux_trio.cores.exec.storing import Storing
from flux_trio.cores.exec.targets import Targets
from flux_trio.cores.exec.vocabulary import OutputRead, ShellConnected, ShellFailed, ShellLost
from flux_trio.cores.methods import Methods
from flux_trio.cores.turns import ClockStepped, Exit, Log, TimerFired
from flux_trio.formats import (
    FormatError,
    format_fluid,
    job_key,
    parse_duration,
    parse_r,
    parse_size,
)
from flux_trio.messages import (
    ROLE_OWNER,
    Errno,
    Event,
    Flag,
    FluxError,
    Level,
    Request,
    Response,
    expect_payload,
    respond,
    tells_return_of,
    topics,
)
from flux_trio.protocols import JobEvent
from flux_trio.shell.protocol import Done, Fed, Listing, Postponed, Started, Unknown

# New expirations of jobs that were not started yet, latest first to be kept: one is used up when
# its job starts, and jobs that never start must not pile up.
UPDATES_MAX: Final = 10_000

PAST: Final = "the job's past"
NO_PROCESSES: Final = "this instance has no directory for a shell host: it runs no processes"


class _StartPayload(msgspec.Struct):
    """RFC 32, Start Request; other keys are the other edition's."""

    id: int
    userid: int
    jobspec: dict[str, Any]
    reattach: bool


class _KillPayload(msgspec.Struct):
    id: int
    signum: int


class _ExceptionPayload(msgspec.Struct):
    id: int
    severity: int


class _UpdateContext(msgspec.Struct):
    """RFC 21: of the Resource-update Event, or of the Release Event."""

    expiration: float | None = None
    final: bool = False


class _Update(msgspec.Struct):
    name: str
    context: _UpdateContext | None = None


class _JournalPayload(msgspec.Struct):
    """What the job manager's journal says: id of a job, place in its eventlog, event."""

    events: list[tuple[int, int, _Update]]


class Link(Enum):
    """How far the conversation with the job manager is."""

    SILENT = "nothing is said: there is no shell host that could start a job"
    ASKED = "exec-hello is sent"
    UNHEARD = "exec-hello met ENOSYS: nobody holds the name of the job manager"
    ATTACHED = "exec-hello was accepted"


class ExecCore:
    """One execution service.

    `environment` is added to that of every task, as it is when the task starts. Without
    `has_shell` there is no shell host, and jobs that are not simulated fail.
    """

    def __init__(
        self,
        config: ExecConfig,
        *,
        environment: Mapping[str, str] | None = None,
        has_shell: bool = False,
        service: str = topics.JOB_EXEC,
    ) -> None:
        self._service = service
        self._simulate = config.simulate
        self._has_shell = has_shell
        self._needs_shell = has_shell and not config.simulate
        self._jobs: dict[int, Job] = {}
        self._manager = topics.JOB_MANAGER  # sender of the latest start request
        self._owner = -1  # and its userid: the instance owner's
        self._link = Link.SILENT
        self._hindrance = ""  # why there is no shell host
        self._told_reason = ""  # why jobs wait for this service, as the job manager was told last
        self._follows = False  # its journal has begun to tell
        self._attached_at: float | None = None  # time of the latest hello that was accepted
        self._updates: dict[int, float] = {}  # see UPDATES_MAX
        self._targets = Targets()
        self._context = context = Context()
        self._attachments = Attachments(context, self._jobs, self._settle)
        self._inputs = Inputs(context, self._jobs)
        self._simulated = SimulatedJobs(context)
        grace_s = parse_duration(config.kill_timeout)
        self._storing = Storing(context, self._jobs)
        self._real = RealJobs(
            context,
            self._jobs,
            self._storing,
            {} if environment is None else environment,
            grace_s,
            parse_size(config.output_limit),
        )
        self._methods = Methods(
            for_owner={f"{service}.{topics.START_METHOD}": self._start},
            for_all={
                topics.disconnect_of(service): self._disconnect,
                f"{service}.{_method(topics.EXEC_ATTACH)}": self._attachments.open,
                f"{service}.{_method(topics.EXEC_ATTACH_CANCEL)}": self._attachments.cancel,
                f"{service}.{_method(topics.credit_of(topics.EXEC_ATTACH))}": (
                    self._attachments.grant
                ),
                f"{service}.{_method(topics.EXEC_INPUT)}": self._inputs.write,
                f"{service}.{_method(topics.EXEC_KILL)}": self._kill,
            },
            stats=(topics.stats_of(service), self._stats),
        )
        self._takes: dict[type, Callable[[Any], None]] = {
            Request: self._request,
            Response: self._response,
            Event: self._event,
            TimerFired: self._timer,
            ClockStepped: self._clock_stepped,
            OutputRead: self._output_read,
            Started: self._started,
            Postponed: self._real.postponed,
            Done: self._done,
            Fed: self._inputs.fed,
            Unknown: lambda notice: self._real.unknown(notice.id),
            Listing: lambda notice: self._real.forget_unasked(notice.ended),
            ShellConnected: self._shell_connected,
            ShellLost: self._shell_lost,
            ShellFailed: self._shell_failed,
        }

    def start(self, now: float) -> list[Any]:
        """Say hello (32.hello.1); where jobs need the shell host, once that answers."""
        self._context.now = now
        self._hello_if_able()
        return self._context.take_actions()

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        """Take what waited, in order; then read on of what is to be stored."""
        self._context.now = now
        for item in inputs:
            self._takes[type(item)](item)
        self._storing.read_on()
        self._settle_ended()
        self._tell_postponements()
        return self._context.take_actions()

    # Hello

    def _hello_if_able(self) -> None:
        """A service that says hello while it can start no job would fail every one it is given."""
        if not self._needs_shell or self._real.is_connected:
            self._hello()

    def _hello(self) -> None:
        self._link = Link.ASKED
        self._context.ask(topics.EXEC_HELLO, {"service": self._service}, self._hello_answered)

    def _hello_answered(self, response: Response) -> None:
        if not response.errnum:
            self._link, self._attached_at = Link.ATTACHED, self._context.now
            self._follows = False
            # events from here on; what was before is looked up where it matters
            names = [JobEvent.RESOURCE_UPDATE, *([JobEvent.RELEASE] if self._has_shell else [])]
            wanted = {"allow": {name.value: 1 for name in names}}
            self._context.ask(topics.JOB_JOURNAL, wanted, self._journal, Flag.STREAMING)
            self._ask_targets()
            if self._hindrance:  # the shell host was lost after hello was said
                self._withdraw()
        elif response.errnum == Errno.ENOSYS:  # the broker's: there is no job manager now
            self._link = Link.UNHEARD
        else:  # 32.hello.9
            self._context.emit(Exit(f"{response.topic}: {response.error_text}"))

    def _manager_gone(self) -> None:
        """It is told of what runs when it is back."""
        if self._link is Link.ATTACHED:
            self._detach()
            self._hello_if_able()

    def _withdraw(self) -> None:
        """No job can be started: take back the hello, so that jobs with resources wait in RUN.

        A disconnect ends what is outstanding (readings: Exec override); an error response to a
        start would do so too, but breaks 32.impl.5.
        """
        farewell = topics.disconnect_of(topics.JOB_MANAGER)
        self._context.emit(Request(farewell, flags=int(Flag.NORESPONSE)))
        self._detach()
        self._tell_hindrance()  # it was forgotten with the rest

    def _detach(self) -> None:
        """The start requests end; what runs goes on, and is told to who asks next."""
        self._link = Link.SILENT
        for job in list(self._jobs.values()):
            job.request = None
            if job.phase is Phase.PREPARING:
                del self._jobs[job.id]

    def _tell_hindrance(self) -> None:
        """Let `queue status` say why jobs wait for this service, or no longer."""
        self._told_reason = self._reason
        reason = {"reason": self._told_reason}
        self._context.emit(Request(topics.JOB_HINDRANCE, reason, flags=int(Flag.NORESPONSE)))

    @property
    def _reason(self) -> str:
        return self._hindrance or self._real.postponements.reason

    def _tell_postponements(self) -> None:
        """At the end of a turn: what the shell host lacks has changed, or is there again."""
        if self._reason == self._told_reason:
            return
        if not self._told_reason:
            self._context.emit(Log(Level.ERR, self._reason))
        elif not self._reason:
            self._context.emit(Log(Level.INFO, "the shell host starts jobs again"))
        self._tell_hindrance()

    # Requests

    def _request(self, request: Request) -> None:
        answer = self._methods.call(request)
        if answer is not None:
            self._context.emit(answer)

    def _response(self, response: Response) -> None:
        match self._context.answered(response):
            case OutputPut(jobid):
                self._storing.piece_put(jobid, response)
            case EndPut(jobid):
                self._storing.end_put(jobid, response)
            case EndRead(jobid):
                self._end_read(jobid, response)
            case EventlogRead() as awaited:
                self._attachments.eventlog_read(awaited, response)
            case PieceRead() as awaited:
                self._attachments.piece_read(awaited, response)
            case JobCounted() as awaited:
                self._attachments.job_counted(awaited, response)
            case None:
                pass
            case other:
                assert_never(other)

    def _stats(self) -> dict[str, Any]:
        phases = Counter(job.phase.name.lower() for job in self._jobs.values())
        return {"jobs": {phase.name.lower(): phases[phase.name.lower()] for phase in Phase}}

    def _start(self, request: Request) -> None:
        try:
            payload = expect_payload(request, _StartPayload)
        except FluxError as error:  # without an id there is nothing to answer (32.impl.5)
            self._context.emit(Log(Level.ERR, error.text))
            return
        self._manager, self._owner = request.sender, request.userid
        job = self._jobs.get(payload.id)
        if job is not None:  # a repeat attaches, whatever `reattach` says
            job.request = request
            job.tell_again(self._context)
            self._settle(job.id)
            if job.phase is Phase.RUNNING:
                self._catch_up(job)
            return
        job = self._jobs[payload.id] = Job(request, payload.id, payload.userid, payload.jobspec)
        job.reattach = payload.reattach
        self._look_up(job, "R", self._found_resources)

    def _catch_up(self, job: Job) -> None:
        """Its expiration may have changed while nobody told us: the eventlog has the last one."""

        def found(response: Response) -> None:
            payload = response.payload if isinstance(response.payload, dict) else {}
            if self._jobs.get(job.id) is not job or job.phase is not Phase.RUNNING:
                return
            before = job.expiration
            try:
                job.read_eventlog(payload.get("value", ""))
            except FormatError as error:
                self._context.emit(Log(Level.ERR, f"{PAST} cannot be read: {error}"))
            if job.expiration != before:
                self._kind(job).arm(job)

        self._context.ask(topics.KVS_LOOKUP, {"key": job_key(job.id, "eventlog")}, found)

    def _kill(self, request: Request) -> None:
        payload = expect_payload(request, _KillPayload)
        job = self._jobs.get(payload.id)
        name = format_fluid(payload.id, "f58")
        if job is None:
            raise FluxError(Errno.ENOENT, f"job {name} is not running")
        job.check_access(request)
        if not 1 <= payload.signum <= SIGNUM_MAX:
            text = f"signum: expected 1 to {SIGNUM_MAX}, got {payload.signum}"
            raise FluxError(Errno.EINVAL, text)
        if job.phase is not Phase.RUNNING:
            raise FluxError(Errno.EINVAL, f"job {name} is not running")
        if job.simulation is not None:
            self._simulated.stop(job, payload.signum)
        else:
            self._real.signal(job, payload.signum)
        answer = respond(request)
        if answer is not None:
            self._context.emit(answer)

    def _disconnect(self, request: Request) -> None:
        self._attachments.disconnect(request.sender)
        self._inputs.disconnect(request.sender)
        if request.sender == self._manager:
            self._manager_gone()

    # What the KVS has of a job

    def _found_resources(self, job: Job, text: str | None) -> None:
        if text is None:
            job.fail(self._context, "the job has no R")
            return
        try:
            job.resources = parse_r(text)
            job.simulation = simulation_of(job.jobspec, self._simulate)
        except FormatError as error:
            job.fail(self._context, str(error))
            return
        update = self._updates.pop(job.id, None)
        job.expiration = job.resources.expiration if update is None else update
        allocated_at = job.resources.starttime
        job.is_new = not job.reattach and allocated_at > (self._attached_at or 0.0)
        if job.simulation is None:
            self._look_up(job, "jobspec", self._found_jobspec)
        if not job.is_new:
            self._look_up(job, "eventlog", self._found_eventlog)
            if job.simulation is None:
                self._look_up(job, EXEC_LOG, self._found_exec_log)
        elif job.simulation is not None:
            self._begin(job)

    def _found_jobspec(self, job: Job, text: str | None) -> None:
        self._read(job, job.read_environment, text, "the job's environment")

    def _found_eventlog(self, job: Job, text: str | None) -> None:
        self._read(job, job.read_eventlog, text, PAST)

    def _found_exec_log(self, job: Job, text: str | None) -> None:
        self._read(job, partial(self._real.read_exec_log, job), text, PAST)

    def _read(self, job: Job, read: Callable[[str], None], text: str | None, what: str) -> None:
        try:
            read(text or "")
        except FormatError as error:
            job.fail(self._context, f"{what} cannot be read: {error}")
            return
        if not job.lookups:
            self._begin(job)

    def _begin(self, job: Job) -> None:
        if job.status is None:
            self._tell_lost_targets(job)
        if job.simulation is not None:
            self._simulated.begin(job)
        elif job.killed and job.is_new:
            job.tell_release(self._context)  # 32.start.35: nothing of it was ever started
        elif not self._has_shell:
            job.fail(self._context, NO_PROCESSES)
        elif job.userid != self._owner:  # it would run with the owner's rights
            note = f"processes run as user {self._owner} only, the job is user {job.userid}'s"
            job.fail(self._context, note)
        else:
            self._real.begin(job)

    def _look_up(self, job: Job, name: str, then: Callable[[Job, str | None], None]) -> None:
        """Read one key; None if it is not there. What the KVS cannot do fails the job."""

        def found(response: Response) -> None:
            if self._jobs.get(job.id) is not job or job.phase is not Phase.PREPARING:
                return
            job.lookups -= 1
            if response.errnum not in (0, Errno.ENOENT):
                job.fail(self._context, f"cannot read {name}: {response.error_text}")
            else:
                payload = response.payload if isinstance(response.payload, dict) else {}
                then(job, payload.get("value"))

        job.lookups += 1
        self._context.ask(topics.KVS_LOOKUP, {"key": job_key(job.id, name)}, found)

    # Events, timers, the journal

    def _event(self, event: Event) -> None:
        if tells_return_of(topics.JOB_MANAGER, event):
            self._manager_back()
        if tells_return_of(topics.RESOURCE, event):
            self._ask_targets()
        if not event.rolemask & ROLE_OWNER:
            return
        match event.topic:
            case topics.JOB_EXCEPTION_EVENT:
                self._job_exception(event)
            case topics.RESOURCE_OFFLINE_EVENT:
                self._learn_targets(self._targets.went_down, event)
            case topics.RESOURCE_ONLINE_EVENT:
                self._learn_targets(self._targets.came_up, event)

    def _job_exception(self, event: Event) -> None:
        try:
            payload = expect_payload(event, _ExceptionPayload)
        except FluxError as error:
            self._context.emit(Log(Level.ERR, error.text))
            return
        if payload.severity != SEVERITY_FATAL:
            return
        job = self._jobs.get(payload.id)
        if job is None:
            self._attachments.job_is_dead(payload.id)
            return
        job.killed = True
        self._stop_killed(job)

    # Targets that go down

    def _ask_targets(self) -> None:
        self._context.ask(topics.RESOURCE_STATUS, None, self._targets_told)

    def _targets_told(self, response: Response) -> None:
        if not response.errnum:  # else the service is gone: `service-back` tells of the next one
            self._learn_targets(self._targets.read_status, response)

    def _learn_targets(self, learn: Callable[[Any], None], message: Event | Response) -> None:
        """Take in which targets are down, and end what is on them."""
        try:
            learn(message)
        except (FluxError, FormatError) as error:
            self._context.emit(Log(Level.ERR, f"{message.topic}: {error}"))
            return
        for job in list(self._jobs.values()):
            if job.phase in (Phase.LAUNCHING, Phase.RUNNING) and self._tell_lost_targets(job):
                self._stop_killed(job)

    def _tell_lost_targets(self, job: Job) -> bool:
        """The fatal exception of a job that has targets that are down, unless it has one already.

        All of the job ends, also what runs on other targets.
        """
        if job.killed or not (lost := self._lost_targets_of(job)):
            return False
        job.tell_exception(self._context, lost)
        return True

    def _lost_targets_of(self, job: Job) -> str:
        """Which targets of the job are down, and why; "" if none is."""
        if job.resources is None:
            return ""
        lost = self._targets.lost_of(job.resources)
        return self._targets.describe(job.resources, lost) if lost else ""

    def _stop_killed(self, job: Job) -> None:
        if job.phase is Phase.RUNNING:
            self._kind(job).stop(job, SIGTERM)
        else:
            self._real.give_up(job)

    def _manager_back(self) -> None:
        """Somebody holds the name of the job manager, who has heard nothing yet."""
        if self._reason:
            self._tell_hindrance()
        if self._link is Link.UNHEARD:
            self._hello()

    def _timer(self, timer: TimerFired) -> None:
        assert isinstance(timer.key, TimerKey)
        kind, jobid = timer.key
        job = self._jobs.get(jobid)
        if kind is TimerKind.POLL:
            self._attachments.poll()
        elif kind is TimerKind.RETRY:
            self._real.retry()
        elif kind is TimerKind.KILL and job is not None:
            self._real.kill(job)
        elif kind is TimerKind.STUCK and job is not None:
            self._real.stuck(job, self._lost_targets_of(job))
        elif kind is TimerKind.WARN and job is not None:
            self._real.warn(job)
        elif kind is TimerKind.END and job is not None:
            self._kind(job).expire(job)

    def _journal(self, response: Response) -> None:
        """New expirations; the end of the stream is also how a job manager that is gone shows."""
        if response.errnum:
            if self._follows:
                self._manager_gone()
            else:  # it has no journal: nobody tells new expirations, and what is durable
                self._real.follows_not()
            return
        if not self._follows:
            self._follows = True
            self._real.follows()
        try:
            payload = expect_payload(response, _JournalPayload)
        except FluxError as error:
            self._context.emit(Log(Level.ERR, error.text))
            return
        for jobid, _, event in payload.events:
            self._told(jobid, event)

    def _told(self, jobid: int, event: _Update) -> None:
        context = event.context
        if event.name == JobEvent.RESOURCE_UPDATE and context is not None:
            if context.expiration is not None:
                self._expiration_changed(jobid, context.expiration)
        elif event.name == JobEvent.RELEASE and context is not None and context.final:
            self._confirmed(jobid)

    def _confirmed(self, jobid: int) -> None:
        """The final release of a job is durable: the shell host may forget it."""
        job = self._jobs.get(jobid)
        if job is None:
            self._real.confirmed(jobid)
        else:
            job.is_confirmed = True
            self._settle(jobid)

    def _end_read(self, jobid: int, response: Response) -> None:
        if self._real.end_found(jobid, response):
            self._confirmed(jobid)

    def _expiration_changed(self, jobid: int, expiration: float) -> None:
        job = self._jobs.get(jobid)
        if job is None or job.resources is None:
            self._updates[jobid] = expiration
            if len(self._updates) > UPDATES_MAX:
                del self._updates[next(iter(self._updates))]
            return
        job.expiration = expiration
        if job.phase is Phase.RUNNING:
            self._kind(job).arm(job)

    def _kind(self, job: Job) -> RealJobs | SimulatedJobs:
        return self._real if job.simulation is None else self._simulated

    def _clock_stepped(self, step: ClockStepped) -> None:
        """Durations go on as they were: what was to come stays as far ahead."""
        if self._attached_at is not None:
            self._attached_at += step.by
        self._real.postponements.clock_stepped(step.by)
        for job in self._jobs.values():
            job.stepped += step.by

    # Shell host, output, the end

    def _shell_connected(self, _: ShellConnected) -> None:
        self._inputs.connected()
        self._real.connected()
        if self._hindrance:
            self._hindrance = ""
            self._context.emit(Log(Level.INFO, "the shell host answers again"))
            self._tell_hindrance()
        if self._link is Link.SILENT:
            self._hello()

    def _shell_lost(self, notice: ShellLost) -> None:
        self._inputs.disconnected(notice.reason)
        self._real.disconnected(notice.reason)

    def _shell_failed(self, notice: ShellFailed) -> None:
        """Told again as long as it lasts; the log has it once."""
        if notice.reason == self._hindrance:
            return
        if not self._hindrance:
            self._context.emit(Log(Level.ERR, notice.reason))
        self._hindrance = notice.reason
        if self._link is Link.ATTACHED and self._needs_shell:
            self._withdraw()
        else:
            self._tell_hindrance()

    def _started(self, notice: Started) -> None:
        self._real.started(notice)
        if notice.id in self._jobs:
            self._attachments.job_changed(self._jobs[notice.id])

    def _done(self, notice: Done) -> None:
        self._real.done(notice)
        if notice.id in self._jobs:
            self._attachments.job_changed(self._jobs[notice.id])

    def _output_read(self, read: OutputRead) -> None:
        if read.key is not None:
            self._attachments.output_read(read.key, read)
        else:
            self._storing.output_read(read)

    def _settle_ended(self) -> None:
        for jobid in self._context.take_over():
            if jobid in self._jobs:
                self._attachments.job_changed(self._jobs[jobid])
                self._settle(jobid)

    def _settle(self, jobid: int) -> None:
        """Forget a job whose story is told to the end, once nobody reads its files."""
        job = self._jobs.get(jobid)
        if job is None or job.phase is not Phase.OVER:
            return
        if job.request is None and not job.is_confirmed:
            return  # the next job manager may ask again
        if not self._attachments.follows(jobid):
            del self._jobs[jobid]
            if job.simulation is None and self._has_shell:
                self._real.over(job)


def _method(topic: str) -> str:
    """The method of a topic: what follows the service name."""
    return topic.partition(".")[2]
