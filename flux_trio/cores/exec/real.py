"""Jobs with processes: launched by the shell host, stopped in two steps, stored when they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from flux_trio.cores.exec.context import Context, EndRead, TimerKey, TimerKind
from flux_trio.cores.exec.job import (
    EXEC_LOG,
    SIGALRM,
    SIGKILL,
    SIGTERM,
    Job,
    Phase,
    completed_status,
    is_released,
)
from flux_trio.cores.exec.output import limit_of
from flux_trio.cores.exec.placement import LayoutError, place_tasks
from flux_trio.cores.exec.postponed import RETRIES_MAX, RETRY_S, Postponements
from flux_trio.cores.exec.simulated import TIME_LIMIT_NOTE
from flux_trio.cores.exec.storing import Storing
from flux_trio.cores.exec.tasks import start_request
from flux_trio.cores.exec.vocabulary import ToShell
from flux_trio.cores.exec.warning import warning_of
from flux_trio.cores.turns import ClearTimer, Log, SetTimer
from flux_trio.formats import FormatError, Idset, Jobspec, format_fluid, job_key
from flux_trio.messages import FluxError, Level, Response, expect_payload, topics
from flux_trio.shell.protocol import (
    STREAMS,
    Ack,
    Attach,
    Done,
    Failure,
    Postponed,
    ShellProtocolError,
    Signal,
    Started,
    frame,
)

STUCK_S: Final = 30.0  # after SIGKILL, which ends in a moment what is not stuck in the kernel
STUCK_NOTE: Final = "SIGKILL has not ended its processes; its resources stay allocated till then"


class _Values(msgspec.Struct):
    """The kvs.lookup-all response for two keys."""

    values: tuple[str | None, str | None]


class RealJobs:
    """What the core does with a job that has processes.

    `environment` is added to that of each task, `kill_grace_s` (seconds) lies between the first
    signal and SIGKILL, `output_limit` (bytes) is for a job that sets none itself. `jobs` is the
    core's table, which this never changes; `storing` takes over a job that has ended.
    """

    def __init__(
        self,
        context: Context,
        jobs: Mapping[int, Job],
        storing: Storing,
        environment: Mapping[str, str],
        kill_grace_s: float,
        output_limit: int,
    ) -> None:
        self._context = context
        self._jobs = jobs
        self._storing = storing
        self._environment = environment
        self._kill_grace_s = kill_grace_s
        self._output_limit = output_limit
        self._unconfirmed: set[int] = set()  # told to the end; the shell host has them until that
        self._confirms = True  # is durable, which the job manager's journal tells, if it has one
        self.is_connected = False  # a shell host answers
        self.postponements = Postponements()  # jobs that it could not start

    # Start

    def begin(self, job: Job) -> None:
        """Launch it, or find it again."""
        if job.status is not None:  # an exec service before this one saw its end, and stored it
            job.tell_start(self._context)
            job.tell_finish(self._context, job.status)
            return
        try:
            self._lay_out(job)
        except (FormatError, LayoutError, ShellProtocolError) as error:
            job.fail(self._context, str(error))
            return
        job.note(self._context.now, "init")
        job.note(self._context.now, "starting")
        job.phase = Phase.LAUNCHING
        if self.is_connected:
            self._hand_over(job)

    def _lay_out(self, job: Job) -> None:
        assert job.resources is not None
        jobspec = Jobspec.parse(job.jobspec)
        job.warning = warning_of(jobspec)
        job.output_limit = limit_of(jobspec, self._output_limit)
        placements = place_tasks(jobspec, job.resources)
        job.ntasks = len(placements)
        job.start = start_request(job.id, jobspec, job.resources, placements, self._environment)
        frame(job.start)  # refuses what is too long to be sent

    def _hand_over(self, job: Job) -> None:
        """Whatever `reattach` says, the shell host launches an id at most once."""
        assert job.start is not None
        may_launch = job.phase is Phase.LAUNCHING and not job.reattach and not job.killed
        self._context.emit(ToShell(job.start if may_launch else Attach(job.id)))

    # The shell host

    def connected(self) -> None:
        """There is a shell host, perhaps another than before: say everything again."""
        self.is_connected = True
        for job in self._real(Phase.LAUNCHING, Phase.RUNNING):
            if job.id not in self.postponements:
                self._hand_over(job)

    def disconnected(self, reason: str) -> None:
        """Another connection is being made."""
        self.is_connected = False
        self._context.emit(Log(Level.WARNING, f"lost the shell host: {reason}"))

    def postponed(self, notice: Postponed) -> None:
        """The host lacks something that it needs to start the job, which waits for it."""
        job = self._jobs.get(notice.id)
        if job is None or job.phase is not Phase.LAUNCHING:
            return
        if job.killed:
            self._hand_over(job)
            return
        if not self.postponements:
            self._set_retry()
        self.postponements.add(job.id, notice.text, self._context.now)

    def retry(self) -> None:
        """Ask again for jobs that wait."""
        if self.postponements:
            self._ask_again(RETRIES_MAX)
            self._set_retry()

    def give_up(self, job: Job) -> None:
        """A job that waits to be started was ended before."""
        if self.postponements.remove(job.id):
            self._hand_over(job)

    def _ask_again(self, count: int) -> None:
        for jobid in self.postponements.take_due(count, self._context.now):
            self._hand_over(self._jobs[jobid])

    def _set_retry(self) -> None:
        at = self._context.now + RETRY_S
        self._context.emit(SetTimer(TimerKey(TimerKind.RETRY), at))

    def started(self, notice: Started) -> None:
        """The job runs, or failed to; heard again after a new connection."""
        if self.postponements.remove(notice.id):
            self._ask_again(1)
        job = self._jobs.get(notice.id)
        if job is None or job.phase not in (Phase.LAUNCHING, Phase.RUNNING):
            return
        if job.phase is Phase.LAUNCHING:
            job.started_at = self._context.now
            job.note(self._context.now, "shell.start")
            job.tell_start(self._context)
            self.arm(job)
            if notice.failure is not None:
                job.tell_exception(self._context, _failure_note(job, notice.failure))
        if job.killed:
            job.stopping = False  # a signal may have been lost with the connection
            self.stop(job, SIGTERM)

    def unknown(self, jobid: int) -> None:
        """The shell host never had the job: it is not launched now."""
        job = self._jobs.get(jobid)
        if job is None or job.phase not in (Phase.LAUNCHING, Phase.RUNNING):
            return
        if not job.killed:
            job.tell_exception(self._context, "reattach: the shell host does not know the job")
        self._clear_timers(job)
        job.tell_release(self._context)

    def done(self, notice: Done) -> None:
        """Every process of the job has ended."""
        job = self._jobs.get(notice.id)
        if job is None or job.phase is not Phase.RUNNING:
            return
        self._clear_timers(job)
        job.phase = Phase.STORING
        job.status = notice.status
        job.sizes = {
            (size.taskid, stream): nbytes
            for size in notice.sizes
            for stream, nbytes in zip(STREAMS, (size.stdout, size.stderr), strict=True)
        }
        if notice.lost:
            tasks = Idset.of(notice.lost)
            job.tell_exception(
                self._context,
                f"task {tasks}: end not seen: its shell host was killed while it ran",
            )
        self._storing.begin(job)

    # Letting the shell host forget: it has the only other copy of what a job left

    def over(self, job: Job) -> None:
        """The job manager was told all of a job, and nobody reads its files here.

        The shell host keeps the job until the job manager has stored the final release: what was
        only told is lost when the instance is killed, or when its disk is full.
        """
        if not job.is_stored:
            return
        if job.is_confirmed or not self._confirms:
            self._acknowledge(job.id)
        else:
            self._unconfirmed.add(job.id)

    def confirmed(self, jobid: int) -> None:
        """The final release of a job that is not in the table is durable."""
        if jobid in self._unconfirmed:
            self._unconfirmed.remove(jobid)
            self._acknowledge(jobid)

    def follows(self) -> None:
        """A job manager tells from now on what is durable; what was before is looked up."""
        self._confirms = True
        over = [job.id for job in self._real(Phase.OVER)]
        for jobid in [*self._unconfirmed, *over]:
            self._look_up_end(jobid)

    def follows_not(self) -> None:
        """The job manager has no journal, so that what it was told must do."""
        self._confirms = False
        for jobid in list(self._unconfirmed):
            self.confirmed(jobid)

    def forget_unasked(self, ended: Iterable[int]) -> None:
        """Acknowledge jobs of the shell host whose end is stored: the first Ack was lost."""
        for jobid in ended:
            if jobid not in self._jobs:
                self._unconfirmed.add(jobid)
                self._look_up_end(jobid)

    def _look_up_end(self, jobid: int) -> None:
        keys = [job_key(jobid, name) for name in (EXEC_LOG, "eventlog")]
        self._context.ask(topics.KVS_LOOKUP_ALL, {"keys": keys}, EndRead(jobid))

    def end_found(self, jobid: int, response: Response) -> bool:
        """Whether all of a job is stored: what it left, and its final release."""
        try:
            exec_log, eventlog = expect_payload(response, _Values).values
            return completed_status(exec_log or "") is not None and is_released(eventlog or "")
        except (FluxError, FormatError) as error:
            name = format_fluid(jobid, "f58")
            self._context.emit(Log(Level.ERR, f"job {name}: its end cannot be read: {error}"))
            return False

    def _acknowledge(self, jobid: int) -> None:
        """Let the shell host forget the job: all that it knows is stored."""
        self._context.emit(ToShell(Ack(jobid)))

    # Time limit and signals

    def arm(self, job: Job) -> None:
        """Set the timer for the time limit, and that of the warning before it."""
        self._set_timer(TimerKind.END, job, job.ends_at)
        if job.warning is not None:
            at = max(job.ends_at - job.warning.before_s, self._context.now)
            self._set_timer(TimerKind.WARN, job, at if job.expiration else 0.0)

    def _set_timer(self, kind: TimerKind, job: Job, at: float) -> None:
        timer = TimerKey(kind, job.id)
        self._context.emit(SetTimer(timer, at) if at else ClearTimer(timer))

    def warn(self, job: Job) -> None:
        """The time limit is near. To a job that ends already it would mean nothing."""
        if job.warning is not None and job.phase is Phase.RUNNING and not job.stopping:
            self.signal(job, job.warning.signum)

    def expire(self, job: Job) -> None:
        """The time limit has come."""
        if job.phase is Phase.RUNNING:
            job.tell_exception(self._context, TIME_LIMIT_NOTE, "timeout")
            self.stop(job, SIGALRM)

    def stop(self, job: Job, signum: int) -> None:
        """Send `signum`, and SIGKILL to what still runs after the grace; only once."""
        if job.phase is Phase.RUNNING and not job.stopping:
            job.stopping = True
            self.signal(job, signum)
            self._context.emit(
                SetTimer(TimerKey(TimerKind.KILL, job.id), self._context.now + self._kill_grace_s)
            )

    def kill(self, job: Job) -> None:
        """The grace is over."""
        if job.phase is Phase.RUNNING:
            self.signal(job, SIGKILL)
            at = self._context.now + STUCK_S
            self._context.emit(SetTimer(TimerKey(TimerKind.STUCK, job.id), at))

    def stuck(self, job: Job, lost: str) -> None:
        """SIGKILL has not ended it: say so, since its resources are not free until it ends.

        `lost` says which of its targets are down, if any is.
        """
        if job.phase is Phase.RUNNING:
            job.tell_note(self._context, f"{STUCK_NOTE}{lost and f'; {lost}'}")

    def signal(self, job: Job, signum: int) -> None:
        """Send `signum` to the process groups of the job."""
        self._context.emit(ToShell(Signal(job.id, signum)))

    def _clear_timers(self, job: Job) -> None:
        if job.expiration:
            self._context.emit(ClearTimer(TimerKey(TimerKind.END, job.id)))
        if job.stopping:
            self._context.emit(ClearTimer(TimerKey(TimerKind.KILL, job.id)))
            self._context.emit(ClearTimer(TimerKey(TimerKind.STUCK, job.id)))
        if job.warning is not None:
            self._context.emit(ClearTimer(TimerKey(TimerKind.WARN, job.id)))

    def read_exec_log(self, job: Job, text: str) -> None:
        """Take from guest.exec.eventlog how the job ended, if it has. FormatError."""
        job.status = completed_status(text)

    def _real(self, *phases: Phase) -> list[Job]:
        jobs = self._jobs.values()
        return [job for job in jobs if job.simulation is None and job.phase in phases]


def _failure_note(job: Job, failure: Failure) -> str:
    host = ""
    if job.start is not None:
        host = job.start.tasks[failure.taskid].env["FLUX_TRIO_HOST"]
    return f"task {failure.taskid} (host {host}): start failed: {failure.text}"
