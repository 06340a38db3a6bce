"""Jobs with processes: launched by the shell host, stopped in two steps, stored when they end.

One job and the shell host:

    Start            → Started: start is told       → Postponed: asked again, a second later
    Signal           SIGTERM when the job has to end; SIGKILL when kill-timeout is over
    Survey           → Survivors: ranks without a process are released, if SIGKILL does not help
                     → FirstExit, Done: the end, with each task's status and bytes of output
    Ack              the output is stored, and the job manager has stored the final release
    Attach           → Started, Done or Unknown: after a restart, or when the connection is back

The shell host postpones a start if it lacks something, and the service asks again. An attempt costs
the host much work. So the service asks for a job at most once a second, and for at most RETRIES_MAX
jobs a second. A job that starts shows that the host has what it lacked; then the service asks for
the next job at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from flux_trio.cores.exec.calls import RETRY, ExecOutbox, TimerKey, TimerKind
from flux_trio.cores.exec.exits import exit_note, exit_rules_of, warning_of
from flux_trio.cores.exec.guest import Guests
from flux_trio.cores.exec.input_options import input_remarks, input_rules
from flux_trio.cores.exec.job import Job, Jobs, Phase
from flux_trio.cores.exec.output import LIMIT_OPTION, size_option, warning
from flux_trio.cores.exec.placement import LayoutError, place_tasks
from flux_trio.cores.exec.simulated import TIME_LIMIT_NOTE
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.exec.tasks import (
    VERBOSE,
    check_terminal,
    is_unbuffered,
    remarks_of,
    start_request,
    told_paths,
)
from flux_trio.cores.exec.vocabulary import SIGALRM, SIGKILL, SIGTERM, ToShell
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.formats import (
    FluidForm,
    FormatError,
    Idset,
    format_fluid,
    format_size,
    parse_jobspec,
)
from flux_trio.formats.meanings import JobId, Time
from flux_trio.messages import Errno, FluxError, Level
from flux_trio.shell.protocol import (
    STREAMS,
    Attach,
    Done,
    Failure,
    FirstExit,
    Postponed,
    ShellProtocolError,
    Signal,
    Started,
    Survey,
    Survivors,
    frame,
)

RETRY_S: Final = 1.0
RETRIES_MAX: Final = 16  # a second; a job that is postponed again goes to the end


class Postponements(Part):
    """The jobs that wait, and why the last of them could not be started."""

    _retry_at: dict[JobId, Time]
    _text: str

    def __init__(self) -> None:
        self._retry_at = {}  # job → seconds since the Unix epoch; in that order
        self._text = ""

    @property
    def reason(self) -> str:
        """Return why jobs wait, as a text for people; "" if no job waits."""
        return f"the shell host cannot start jobs now: {self._text}" if self._retry_at else ""

    def __len__(self) -> int:
        return len(self._retry_at)

    def __contains__(self, jobid: int) -> bool:
        return jobid in self._retry_at

    def add(self, jobid: int, text: str, now: float) -> None:
        """Add a job whose start the host has postponed; `text` says why."""
        self._text = text
        self._asked(jobid, now)

    def remove(self, jobid: int) -> bool:
        """Remove a job; return whether it was waiting."""
        return self._retry_at.pop(jobid, None) is not None

    def pop_due(self, count: int, now: float) -> list[int]:
        """Return up to `count` jobs to ask for now."""
        due: list[int] = []
        for jobid, at in self._retry_at.items():
            if at > now or len(due) == count:
                break
            due.append(jobid)
        for jobid in due:
            self._asked(jobid, now)
        return due

    def clock_stepped(self, by: float) -> None:
        """Move all times by `by` seconds, so that waiting times stay as long as they were."""
        self._retry_at = {jobid: at + by for jobid, at in self._retry_at.items()}

    def _asked(self, jobid: int, now: float) -> None:
        self._retry_at.pop(jobid, None)
        self._retry_at[jobid] = now + RETRY_S


STUCK_S: Final = 30.0  # after SIGKILL, which ends at once a process that is not stuck in the kernel
STUCK_NOTE: Final = (
    "SIGKILL has not ended its processes; where they are, its resources stay allocated"
)


EXCEEDED_STATUS: Final = 1 << 8  # as that of flux-core's shell, which ends itself
INSTEAD_OF_INPUT: Final = (
    "Try file input (flux submit --input=FILE): what commands send to a job is kept in the kvs"
)


class RealJobs(Part):
    """Runs jobs that have processes.

    `environment` is added to the environment of each task, where the job id has the form `id_form`.
    `kill_grace_s` seconds pass between the
    first signal and SIGKILL. `output_limit` bytes of output are stored, unless the jobspec sets a
    limit.
    """

    is_connected: bool

    def __init__(
        self,
        outbox: ExecOutbox,
        jobs: Jobs,
        starts: Starts,
        guests: Guests,
        environment: Mapping[str, str],
        id_form: FluidForm,
        kill_grace_s: float,
        output_limit: int,
    ) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._starts = starts
        self._guests = guests
        self._environment = environment
        self._id_form: FluidForm = id_form
        self._kill_grace_s = kill_grace_s
        self._output_limit = output_limit
        self.is_connected = False  # a shell host answers
        self.postponements = Postponements()  # jobs that the host could not start

    # Start

    def begin(self, job: Job) -> None:
        """Launch the job, or find it again."""
        if job.status is not None:  # an earlier exec service has stored its end
            self._starts.start(job)
            self._starts.finish(job, job.status)
            return
        try:
            self._lay_out(job)
        except (FormatError, LayoutError, ShellProtocolError) as error:
            self._starts.fail(job, str(error))
            return
        self._guests.begin(job)
        job.phase = Phase.LAUNCHING
        if self.is_connected:
            self._hand_over(job)

    def _lay_out(self, job: Job) -> None:
        assert job.resources is not None
        self._guests.prepare(job)
        jobspec = parse_jobspec(msgspec.json.encode(job.jobspec))
        job.warning = warning_of(jobspec)
        job.exit_rules = exit_rules_of(jobspec)
        job.output_limit = size_option(jobspec, LIMIT_OPTION, self._output_limit)
        job.remarks = [warning(each) for each in remarks_of(jobspec)]
        job.input_rules = input_rules(jobspec)
        job.is_unbuffered = is_unbuffered(jobspec)
        check_terminal(jobspec)
        placements = place_tasks(jobspec, job.resources)
        job.ntasks = len(placements)
        job.output_paths = told_paths(job.id, jobspec, job.resources, job.ntasks, self._id_form)
        job.nodes = [each.node for each in placements]
        job.start = start_request(
            job.id, jobspec, job.resources, placements, self._environment, self._id_form
        )
        job.input_open = (1 << job.ntasks) - 1 if job.start.input else 0
        if job.start.input:
            job.remarks += input_remarks(jobspec.attribute(VERBOSE), job.input_rules)
        frame(job.start)  # it refuses a request that is too long

    def _hand_over(self, job: Job) -> None:
        """Ask the shell host to launch the job; it launches a job id at most once."""
        assert job.start is not None
        may_launch = job.phase is Phase.LAUNCHING and not job.reattach and not job.killed
        self._outbox.send(ToShell(job.start if may_launch else Attach(job.id)))

    # The shell host

    def connected(self) -> None:
        """Repeat every request: the shell host may be another one than before."""
        self.is_connected = True
        for job in self._jobs.real(Phase.LAUNCHING, Phase.RUNNING):
            if job.id not in self.postponements:
                self._hand_over(job)

    def disconnected(self, reason: str) -> None:
        """Note that the connection is lost; the client makes another one."""
        self.is_connected = False
        self._outbox.send(Log(Level.WARNING, f"lost the shell host: {reason}"))

    def check_connected(self, job: Job) -> None:
        """Raise FluxError(EIO) if a request about `job` cannot reach the shell host."""
        if not self.is_connected:
            text = f"job {format_fluid(job.id, 'f58')}: there is no connection to its shell host"
            raise FluxError(Errno.EIO, text)

    def postponed(self, notice: Postponed) -> None:
        """Let the job wait: the host lacks something that it needs to start it."""
        job = self._jobs.get(notice.id)
        if job is None or job.phase is not Phase.LAUNCHING:
            return
        if job.killed:
            self._hand_over(job)
            return
        if not self.postponements:
            self._set_retry()
        self.postponements.add(job.id, notice.text, self._outbox.now)

    def retry(self) -> None:
        """Ask again for postponed jobs."""
        if self.postponements:
            self._ask_again(RETRIES_MAX)
            self._set_retry()

    def give_up(self, job: Job) -> None:
        """End a postponed job that was killed before it could start."""
        if self.postponements.remove(job.id):
            self._hand_over(job)

    def _ask_again(self, count: int) -> None:
        for jobid in self.postponements.pop_due(count, self._outbox.now):
            self._hand_over(self._jobs.by_id[jobid])

    def _set_retry(self) -> None:
        self._outbox.set_timer(RETRY, self._outbox.now + RETRY_S)

    def started(self, notice: Started) -> None:
        """Take the news that the job runs; a new connection repeats it."""
        if self.postponements.remove(notice.id):
            self._ask_again(1)
        job = self._jobs.get(notice.id)
        if job is None or job.phase not in (Phase.LAUNCHING, Phase.RUNNING):
            return
        if job.phase is Phase.LAUNCHING:
            job.started_at = self._outbox.now
            self._guests.started(job)
            self._starts.start(job)
            self.arm(job)
            if notice.failure is not None:
                self._starts.exception(job, _failure_note(job, notice.failure))
        if job.killed:
            job.stopping = False  # a signal may have been lost with the connection
            self.stop(job, SIGTERM)

    def unknown(self, jobid: int) -> None:
        """Fail a job that the shell host does not know: it must not be launched a second time."""
        job = self._jobs.get(jobid)
        if job is None or job.phase not in (Phase.LAUNCHING, Phase.RUNNING):
            return
        if not job.killed:
            self._starts.exception(job, "reattach: the shell host does not know the job")
        self.postponements.remove(jobid)
        self._clear_timers(job)
        self._starts.release(job)

    def done(self, notice: Done) -> None:
        """Store what is left of the output of a job: every process of the job has ended."""
        job = self._jobs.get(notice.id)
        if job is None or job.phase is not Phase.RUNNING:
            return
        self._clear_timers(job)
        job.phase = Phase.STORING
        job.status = notice.status if job.exit_status is None else job.exit_status
        job.sizes = {
            (size.taskid, stream): nbytes
            for size in notice.sizes
            for stream, nbytes in zip(STREAMS, (size.stdout, size.stderr), strict=True)
        }
        if notice.lost:
            tasks = Idset.of(notice.lost)
            self._starts.exception(
                job, f"task {tasks}: end not seen: its shell host was killed while it ran"
            )
        if notice.damage:
            self._starts.exception(job, f"damaged: {'; '.join(notice.damage)}")
        self._guests.ended(job)

    def first_exited(self, notice: FirstExit) -> None:
        """Take the news that the first task of a job has ended; a new connection repeats it."""
        job = self._jobs.running(notice.id)
        if job is None or job.first_exit is not None or job.killed:
            return
        job.first_exit = notice
        delay = job.exit_rules.delay(notice.status)
        if delay < math.inf:
            self._set_timer(TimerKind.EXIT, job, self._outbox.now + delay)

    def fail_of_exit(self, job: Job) -> None:
        """End a job that still runs, some time after its first task has exited."""
        if job.first_exit is None or job.stopping:
            return
        job.exit_status = job.first_exit.status
        assert job.start is not None  # it was laid out before it ran
        host = job.start.tasks[job.first_exit.taskid].env["FLUX_TRIO_HOST"]
        note = exit_note(job.exit_rules, job.first_exit, job.start.argv[0], host)
        self._starts.exception(job, note)
        self.stop(job, SIGTERM)

    def fail_of_input(self, job: Job) -> None:
        """End a job that was sent more input than it may get."""
        job.exit_status = EXCEEDED_STATUS
        limit = format_size(job.input_rules.limit)
        self._starts.exception(job, f"stdin exceeds {limit} limit. {INSTEAD_OF_INPUT}")
        self.stop(job, SIGTERM)

    # Time limit and signals

    def arm(self, job: Job) -> None:
        """Set the timers for the time limit and for the warning before it."""
        self._set_timer(TimerKind.END, job, job.ends_at)
        if job.warning is not None:
            at = max(job.ends_at - job.warning.before_s, self._outbox.now)
            self._set_timer(TimerKind.WARN, job, at if job.expiration else 0.0)

    def _set_timer(self, kind: TimerKind, job: Job, at: float) -> None:
        if at:
            self._outbox.set_timer(TimerKey(kind, job.id), at)
        else:
            self._outbox.clear_timer(TimerKey(kind, job.id))

    def warn(self, job: Job) -> None:
        """Send the warning signal before the time limit, unless the job is being ended."""
        if job.warning is not None and job.phase is Phase.RUNNING and not job.stopping:
            self.signal(job, job.warning.signum)

    def expire(self, job: Job) -> None:
        """End the job at its time limit."""
        if job.phase is Phase.RUNNING:
            self._starts.exception(job, TIME_LIMIT_NOTE, "timeout")
            self.stop(job, SIGALRM)
            job.is_expired = True

    def stop(self, job: Job, signum: int) -> None:
        """Send `signum`, and SIGKILL to processes that still run after the grace; only once."""
        if job.phase is Phase.RUNNING and not job.stopping:
            job.stopping = True
            self.signal(job, signum)
            self._set_timer(TimerKind.KILL, job, self._outbox.now + self._kill_grace_s)

    def cancel_expired(self, job: Job) -> None:
        """Send SIGTERM, once, to a job that goes on past its time limit: it is canceled."""
        if job.phase is Phase.RUNNING and job.is_expired:
            job.is_expired = False
            self.signal(job, SIGTERM)

    def kill(self, job: Job) -> None:
        """Send SIGKILL: the grace is over."""
        if job.phase is Phase.RUNNING:
            self.signal(job, SIGKILL)
            self._set_timer(TimerKind.STUCK, job, self._outbox.now + STUCK_S)

    def stuck(self, job: Job, lost: str) -> None:
        """Note that SIGKILL has not ended the job; ask where, and again after a while.

        `lost` names its targets that are down, "" if there are none.
        """
        if job.phase is Phase.RUNNING:
            if not job.is_stuck:
                job.is_stuck = True
                self._starts.note(job, f"{STUCK_NOTE}{lost and f'; {lost}'}")
            self._outbox.send(ToShell(Survey(job.id)))
            self._set_timer(TimerKind.STUCK, job, self._outbox.now + STUCK_S)

    def surveyed(self, notice: Survivors) -> None:
        """Release the ranks on which SIGKILL has left no process of the job."""
        job = self._jobs.running(notice.id)
        if job is None or not job.is_stuck or job.start is None or job.resources is None:
            return
        tasks = job.start.tasks
        held = Idset.of({int(tasks[taskid].env["FLUX_TRIO_RANK"]) for taskid in notice.tasks})
        free = job.resources.ranks - held - Idset.from_bits(job.released)
        if held and free:
            self._starts.release_part(job, free)

    def signal(self, job: Job, signum: int) -> None:
        """Send `signum` to the process groups of the job."""
        self._outbox.send(ToShell(Signal(job.id, signum)))

    def _clear_timers(self, job: Job) -> None:
        for kind in _TIMERS_OF_JOB:
            self._outbox.clear_timer(TimerKey(kind, job.id))


_TIMERS_OF_JOB: Final = (
    TimerKind.END,
    TimerKind.KILL,
    TimerKind.STUCK,
    TimerKind.WARN,
    TimerKind.EXIT,
    TimerKind.INPUT,
)


def _failure_note(job: Job, failure: Failure) -> str:
    host = ""
    if job.start is not None:
        host = job.start.tasks[failure.taskid].env["FLUX_TRIO_HOST"]
    return f"task {failure.taskid} (host {host}): start failed: {failure.text}"
