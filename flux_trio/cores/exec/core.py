"""The execution service's decisions: RFC 32, with RFC 16 for what it reads and leaves in the KVS.

Who speaks with it, in order (namespaces with a name are only for Flux's own programs):

    job manager  exec-hello          → accepted: starts may come; refused: the service ends
    job manager  <service>.start     answered by start, exception, finish and release (`starts`)
    kvs          R, jobspec and, for a job that was started before, its eventlog are read
                 (`preparing`); the guest namespace is made meanwhile (`guest`)
    shell host   Start               → Started, FirstExit, Done, or Postponed (`real`); the start is
                 told when the namespace has the shell's first events
    job manager  the event job-exception: SIGTERM to the job, SIGKILL after kill-timeout
    kvs          output and exec.eventlog are stored (`copying`); only then the end is told
    users        <service>.input, .kill → tasks that took the input; a signal
    job-info     <service>.copy      → somebody reads the output: what there is, is stored

The service says hello once the shell host answers (`manager.py`). Each start request then becomes a
`Job`; what the KVS has of the job is read (`preparing.py`), and the job is simulated
(`simulated.py`) or run (`real.py`). `starts.py` sends the answers, `ending.py` forgets jobs. The
events `job-exception` tell of canceled jobs, the job manager's journal tells of new expirations
(readings: How exec learns of cancels); flux-core's job manager also asks for <service>.expiration.

A target that goes down ends the jobs on it (`targets.py`). The resource service publishes events
about that; the service asks for `resource.status` after each hello, and when the resource service
is back.

Resources are released in parts only if SIGKILL has not ended all processes of a job: those of the
ranks without one. Left out: launching as another user (RFC 15).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import assert_never

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.calls import (
    EndRead,
    ExecAction,
    ExecCall,
    ExecInput,
    ExecOutbox,
    ExecOwnAction,
    ExecOwnInput,
    ExpirationRead,
    GuestCall,
    GuestsWritten,
    HelloSaid,
    JobTimer,
    JournalFollowed,
    KeyRead,
    ServiceAsked,
    TargetsAsked,
    TimerKey,
    TimerKind,
)
from flux_trio.cores.exec.copying import Copies
from flux_trio.cores.exec.ending import Ends
from flux_trio.cores.exec.guest import Guests, GuestSettings
from flux_trio.cores.exec.input_log import InputLog
from flux_trio.cores.exec.inputs import Inputs
from flux_trio.cores.exec.job import Job, Jobs, Phase
from flux_trio.cores.exec.journal import Journal
from flux_trio.cores.exec.manager import Manager
from flux_trio.cores.exec.preparing import Preparing
from flux_trio.cores.exec.process_tables import ProcessTables
from flux_trio.cores.exec.real import RealJobs
from flux_trio.cores.exec.runs import Runs
from flux_trio.cores.exec.simulated import SimulatedJobs
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.exec.targets import Targets
from flux_trio.cores.exec.vocabulary import (
    OutputRead,
    ShellConnected,
    ShellFailed,
    ShellInput,
    ShellLost,
)
from flux_trio.cores.methods import Methods
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import ClockStepped, Core, Log, TimerFired
from flux_trio.editions import CLASSIC, Edition, exec_requests, job_requests, rfc21
from flux_trio.editions.codec import jobid_in
from flux_trio.editions.rfc32 import Start
from flux_trio.formats import FluidForm, format_fluid, parse_duration, parse_size
from flux_trio.messages import (
    ROLE_OWNER,
    Errno,
    Event,
    FluxError,
    Level,
    Request,
    Response,
    respond,
    respond_error,
    tells_return_of,
    topics,
    unknown_method,
)
from flux_trio.protocols import JobEvent
from flux_trio.shell.protocol import (
    Done,
    Fed,
    FirstExit,
    Listing,
    Postponed,
    Processes,
    Started,
    Survivors,
    Unknown,
    WantsPmi,
)


class ExecCore(CorePart, Core[TimerKey, ExecOwnInput, ExecOwnAction]):
    """One execution service.

    `environment` is added to the environment of every task, with the values that it has when the
    task starts; the job id in it has the form `id_form`. Without `has_shell` there is no shell
    host, and jobs that are not simulated fail. With `guests` each job has its guest namespace, so
    that Flux's own programs can follow a job that runs, and send it standard input; without, only
    what is in it.
    """

    def __init__(
        self,
        config: ExecConfig,
        *,
        environment: Mapping[str, str] | None = None,
        id_form: FluidForm = "f58",
        has_shell: bool = False,
        service: str = topics.JOB_EXEC,
        edition: Edition = CLASSIC,
        guests: GuestSettings | None = None,
    ) -> None:
        self._edition = edition
        self._outbox = outbox = ExecOutbox(edition)
        self.jobs = jobs = Jobs()
        self._starts = starts = Starts(outbox, edition)
        self._copies = copies = Copies(outbox, jobs)
        self._input_log = InputLog(outbox)
        settings = guests or GuestSettings(is_named=False)
        self._guests = Guests(outbox, jobs, starts, copies, self._input_log, settings)
        self._real = real = RealJobs(
            outbox,
            jobs,
            starts,
            self._guests,
            {} if environment is None else environment,
            id_form,
            parse_duration(config.kill_timeout),
            parse_size(config.output_limit),
        )
        needs_shell = has_shell and not config.simulate
        self._manager = Manager(
            outbox, jobs, starts, self._guests, real, service, edition, needs_shell=needs_shell
        )
        self.targets = Targets(outbox)
        self._simulated = simulated = SimulatedJobs(outbox, starts)
        self._runs = Runs(
            jobs, starts, self._manager, self.targets, real, simulated, has_shell=has_shell
        )
        self._inputs = Inputs(outbox, jobs, real, self._input_log)
        self._process_tables = ProcessTables(outbox, jobs, real)
        self._ends = Ends(outbox, jobs, starts, self._guests, has_shell=has_shell)
        names = [JobEvent.RESOURCE_UPDATE, *([JobEvent.RELEASE] if has_shell else [])]
        self._journal = Journal(outbox, jobs, self._manager, self._runs, self._ends, names)
        self._preparing = Preparing(
            outbox,
            jobs,
            starts,
            self._manager,
            self._journal,
            self._runs,
            self._guests,
            simulate=config.simulate,
        )
        self._methods = Methods(
            for_owner={
                f"{service}.{topics.START_METHOD}": self._start,
                topics.served_by(service, topics.EXEC_EXPIRATION): self._expiration,
                topics.served_by(service, topics.EXEC_SETTLED): self._manager.wait_settled,
                topics.served_by(service, topics.EXEC_COPY): self._guests.copy,
                topics.served_by(service, topics.EXEC_OVERRIDE): self._override,
            },
            for_all={
                topics.served_by(service, topics.EXEC_INPUT): self._inputs.write,
                topics.served_by(service, topics.EXEC_KILL): self._kill,
            },
            stats=(topics.stats_of(service), self._stats),
            farewells={service: self._disconnect},
            forget=outbox.forget,
        )

    def start(self, now: float) -> list[ExecAction]:
        """Say hello (32.hello.1), or first wait for the shell host if jobs need it."""
        self._outbox.now = now
        self._manager.hello_if_able()
        return self._outbox.pop_actions()

    def turn(self, now: float, inputs: Sequence[ExecInput]) -> list[ExecAction]:
        """Take the inputs in order; then write what came of them."""
        self._outbox.now = now
        for item in inputs:
            match item:
                case Request() if exec_requests.SHELL_SERVICE in item.topic:
                    self._asked_of_shell(item)
                case Request():
                    self._outbox.send(self._methods.call(item))
                case Response():
                    self._answered(self._outbox.calls.match(item), item)
                case Event():
                    self._event(item)
                case TimerFired(key):
                    self._outbox.fired(key)
                    self._fired(key)
                case ClockStepped(by):
                    self._clock_stepped(by)
                case OutputRead():
                    self._copies.output_read(item)
                case _:
                    self._shell_says(item)
        self._guests.settle()
        self._ends.settle_ended()
        self._manager.end_turn()
        return self._outbox.pop_actions()

    def _answered(self, call: ExecCall | None, response: Response) -> None:
        match call:
            case KeyRead():  # the most frequent one
                self._preparing.key_read(call, response)
            case HelloSaid():
                self._hello_answered(response)
            case ServiceAsked():
                self._manager.service_known(response)
            case JournalFollowed():
                self._journal.handle_response(response)
            case TargetsAsked():
                if self.targets.is_answer(response):
                    self._runs.targets_changed(response)
            case ExpirationRead(jobid):
                self._preparing.expiration_read(jobid, response)
            case EndRead(jobid):
                self._ends.end_read(jobid, response)
            case GuestCall() | GuestsWritten():
                for each in [call] if isinstance(call, GuestCall) else call.calls:
                    self._guest_answered(each, response)
            case None:
                pass  # no open call has this matchtag
            case _:
                assert_never(call)

    def _guest_answered(self, call: GuestCall, response: Response) -> None:
        job = self._guests.answered(call, response)
        if job is None:
            return
        if job.phase is Phase.PREPARING and job.resources is None:
            self._preparing.prepare(job)
        elif job.killed:
            self._runs.killed(job)

    def _hello_answered(self, response: Response) -> None:
        if self._manager.hello_answered(response):
            self._journal.follow()
            self.targets.ask()
            self._manager.withdraw_if_hindered()

    def _fired(self, key: TimerKey) -> None:
        match key.kind:
            case TimerKind.POLL:
                self._copies.poll()
            case TimerKind.RETRY:
                self._real.retry()
            case TimerKind.PLACE:
                self._manager.ask_place()
            case TimerKind.AGAIN:
                self._journal.ask_again()
                self.targets.ask_again()
            case TimerKind.UNREAD:
                self._preparing.ask_again()
            case kind:
                if (job := self.jobs.running(key.id)) is not None:
                    self._fired_of(job, kind)

    def _fired_of(self, job: Job, kind: JobTimer) -> None:
        match kind:
            case TimerKind.END:
                self._runs.expire(job)
            case TimerKind.WARN:
                self._real.warn(job)
            case TimerKind.EXIT:
                self._real.fail_of_exit(job)
            case TimerKind.KILL:
                self._real.kill(job)
            case TimerKind.STUCK:
                self._runs.stuck(job)
            case TimerKind.INPUT:
                self._input_log.flush(job)
            case _:
                assert_never(kind)

    def _clock_stepped(self, by: float) -> None:
        """Move all times by `by` seconds, so that durations stay as long as they were."""
        self._outbox.clock_stepped(by)
        self._manager.clock_stepped(by)
        self._real.postponements.clock_stepped(by)
        for job in self.jobs.by_id.values():
            job.stepped += by

    # Requests

    def _stats(self) -> exec_requests.Stats:
        phases = Counter(job.phase for job in self.jobs.by_id.values())
        jobs = {phase.name.lower(): phases[phase] for phase in Phase}
        return exec_requests.Stats(jobs)

    def _start(self, request: Request) -> None:
        wrong = ""
        try:
            payload = self._edition.start.read(request)
        except FluxError as error:
            wrong = error.text
            self._outbox.send(Log(Level.ERR, wrong))
            try:
                payload = Start(jobid_in(request), 0, {}, reattach=False)
            except FluxError:  # an answer needs the job's id (32.impl.5)
                return
        if not self._manager.is_attached:
            # The job manager did not know yet that an earlier service had gone, or that this one
            # has taken back its hello. It asks again once it has accepted the next hello.
            text = f"ignored the start of job {payload.id}: exec-hello is not in force"
            self._outbox.send(Log(Level.INFO, text))
            return
        self._manager.sender, self._manager.owner = request.sender, request.userid
        job = self.jobs.get(payload.id)
        if job is not None:  # a repeat attaches, whatever `reattach` says
            self._starts.ask(job, request, payload)
            self._journal.taken(job)
            return
        job = Job(payload.id, payload.userid, payload.jobspec, payload.reattach, given=payload.R)
        self.jobs.by_id[job.id] = job
        self._starts.ask(job, request, payload)
        self._journal.taken(job)
        if wrong:
            self._preparing.read_ranks(job, wrong)
        elif not self._guests.open(job):
            self._preparing.prepare(job)

    def _expiration(self, request: Request) -> None:
        """Take a new expiration from flux-core's job manager, which tells it by a request."""
        payload = exec_requests.EXPIRATION.read(request)
        job = self.jobs.asked_about(request, payload.id)
        self._journal.expiration_changed(job.id, payload.expiration)
        self._outbox.send(respond(request))

    def _override(self, request: Request) -> None:
        """Start or end a simulated job that waits for it, as flux-core's tests of jobs ask."""
        asked = exec_requests.OVERRIDE.read(request)
        self._simulated.override(self.jobs.asked_about(request, asked.jobid), asked)
        self._outbox.send(respond(request))

    def _asked_of_shell(self, request: Request) -> None:
        """Take standard input, or tell processes, as Flux's own programs ask the job's shell."""
        try:
            jobid = exec_requests.job_of_shell(request.topic)
            if jobid is None or self.jobs.get(jobid) is None:
                service, _, method = request.topic.partition(".")
                raise unknown_method(service, method)
            if request.topic.endswith(f".{exec_requests.PROCTABLE_METHOD}"):
                self._process_tables.ask(request, jobid)
                return
            payload = exec_requests.input_in(jobid, request)
            self._inputs.write_in_turn(request, payload)
        except FluxError as error:
            self._outbox.send(respond_error(request, error.errnum, error.text))

    def _kill(self, request: Request) -> None:
        payload = job_requests.KILL.read(request)
        job = self.jobs.asked_about(request, payload.id)
        if not 1 <= payload.signum <= job_requests.SIGNUM_MAX:
            text = f"signum: expected 1 to {job_requests.SIGNUM_MAX}, got {payload.signum}"
            raise FluxError(Errno.EINVAL, text)
        if job.phase is not Phase.RUNNING:
            raise FluxError(Errno.EINVAL, f"job {format_fluid(job.id, 'f58')} is not running")
        self._runs.signal(job, payload.signum)
        self._outbox.send(respond(request))

    def _disconnect(self, request: Request) -> None:
        self._inputs.disconnect(request.sender)
        self._process_tables.leave(request.sender)
        self._copies.leave(request.sender)
        self._manager.forget(request.sender)
        if request.sender == self._manager.sender:
            self._starts.mark_undelivered()
            self._manager.gone()

    # Events

    def _event(self, event: Event) -> None:
        if tells_return_of(topics.JOB_MANAGER, event):
            self._manager.is_back()
        if tells_return_of(topics.RESOURCE, event):
            self.targets.ask()
        if not event.rolemask & ROLE_OWNER:
            return
        match event.topic:
            case topics.JOB_EXCEPTION_EVENT:
                self._job_exception(event)
            case topics.EXEC_SERVICE_EVENT:
                self._manager.service_known(event)
            case topics.RESOURCE_OFFLINE_EVENT | topics.RESOURCE_ONLINE_EVENT:
                self._runs.targets_changed(event)

    def _job_exception(self, event: Event) -> None:
        try:
            payload = job_requests.JOB_EXCEPTION.read(event)
        except FluxError as error:
            self._outbox.send(Log(Level.ERR, error.text))
            return
        if payload.severity != rfc21.SEVERITY_FATAL:
            return
        job = self.jobs.get(payload.id)
        if job is not None:
            if payload.type == job_requests.CANCEL_TYPE:
                self._real.cancel_expired(job)
            self._runs.killed(job, payload.wait_status)

    # Shell host, output

    def _shell_says(self, notice: ShellInput) -> None:
        match notice:
            case Started():
                self._real.started(notice)
            case FirstExit():
                self._real.first_exited(notice)
            case WantsPmi(jobid):
                self._runs.wants_pmi(jobid)
            case Done():
                self._real.done(notice)
            case Processes():
                self._process_tables.told(notice)
            case Fed():
                self._inputs.fed(notice)
            case Postponed():
                self._real.postponed(notice)
            case Survivors():
                self._real.surveyed(notice)
            case Unknown(jobid):
                self._real.unknown(jobid)
            case Listing(ended):
                self._ends.acknowledge_again(ended)
            case _:
                self._link_says(notice)

    def _link_says(self, notice: ShellConnected | ShellLost | ShellFailed) -> None:
        match notice:
            case ShellConnected():
                self._real.connected()
                self._manager.shell_connected()
            case ShellLost(reason):
                self._inputs.disconnected(reason)
                self._process_tables.disconnected(reason)
                self._real.disconnected(reason)
            case ShellFailed(reason):
                self._manager.shell_failed(reason)
            case _:
                assert_never(notice)
