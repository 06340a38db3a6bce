"""Simulated jobs: a start, a timer, an end. They have no process and no output.

Left out: an end that was reported but that the job manager did not store. If such a job is started
again, it goes on, unless its time is over, its eventlog has a fatal exception, or a target of it is
down.
"""

from __future__ import annotations

from math import inf

from flux_trio.cores.exec.calls import ExecOutbox, TimerKey, TimerKind
from flux_trio.cores.exec.job import Job, Phase
from flux_trio.cores.exec.simulation import MOCK_TEXTS, Simulation
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.exec.vocabulary import SIGALRM, SIGTERM
from flux_trio.cores.state import Part
from flux_trio.editions import exec_requests
from flux_trio.messages import Errno, FluxError

TIME_LIMIT_NOTE = "resource allocation expired"


class SimulatedJobs(Part):
    """Runs jobs that have a `simulation`."""

    def __init__(self, outbox: ExecOutbox, starts: Starts) -> None:
        self._outbox = outbox
        self._starts = starts

    def begin(self, job: Job) -> None:
        """Start the job, or go on with it; its run time counts from its first start."""
        simulation = _simulation(job)
        mock = simulation.mock_exception
        if job.killed and job.started_at is None:
            self._starts.release(job)
        elif job.killed:
            self._finish(job, SIGTERM)
        elif mock in ("init", "starting"):
            self._starts.fail(job, MOCK_TEXTS[mock])
        elif not self.is_waiting(job):
            self._start(job, mock)

    def is_waiting(self, job: Job) -> bool:
        """Return whether the job waits for `override`."""
        return job.started_at is None and job.simulation is not None and job.simulation.override

    def override(self, job: Job, asked: exec_requests.Override) -> None:
        """Start or end a job whose jobspec leaves that to a request. Raises FluxError(EINVAL)."""
        if job.simulation is None or not job.simulation.override:
            raise FluxError(Errno.EINVAL, "the job is not in override mode")
        is_ready = job.phase is Phase.PREPARING and not job.lookups
        if asked.event == "start" and is_ready and self.is_waiting(job):
            self._start(job, job.simulation.mock_exception)
        elif asked.event == "finish" and job.phase is Phase.RUNNING:
            self._finish(job, asked.status)
        else:
            raise FluxError(Errno.EINVAL, f"the job cannot {asked.event} now")

    def _start(self, job: Job, mock: str | None) -> None:
        # `stepped` is counted from the start request on
        job.started_at = job.started_at or self._outbox.now - job.stepped
        self._starts.start(job)
        if mock is not None:
            self._starts.exception(job, MOCK_TEXTS[mock])
            self._starts.finish(job, SIGTERM)
        else:
            self.arm(job)

    def arm(self, job: Job) -> None:
        """Set the timer for the end of the job, or end it if that time is past."""
        at, _ = _end(job)
        if at <= self._outbox.now:
            self.expire(job)
        elif at == inf:
            self._outbox.clear_timer(TimerKey(TimerKind.END, job.id))
        else:
            self._outbox.set_timer(TimerKey(TimerKind.END, job.id), at)

    def expire(self, job: Job) -> None:
        """End the job: its end, or its time limit, has come."""
        _, timed_out = _end(job)
        if timed_out:
            self._starts.exception(job, TIME_LIMIT_NOTE, "timeout")
        self._finish(job, SIGALRM if timed_out else _simulation(job).status)

    def stop(self, job: Job, signum: int) -> None:
        """End the job as if `signum` had killed every process."""
        self._finish(job, signum)

    def _finish(self, job: Job, status: int) -> None:
        self._outbox.clear_timer(TimerKey(TimerKind.END, job.id))
        self._starts.finish(job, status if job.exit_status is None else job.exit_status)


def _end(job: Job) -> tuple[float, bool]:
    """Return when the job ends, and whether that is its time limit."""
    simulation = _simulation(job)
    limit = job.ends_at or inf
    run_s = simulation.run_s or (inf if simulation.override else 0.0)
    end = (job.started_at or 0.0) + job.stepped + run_s
    if limit < end and not simulation.until_limit:
        return limit, True
    return min(end, limit), False


def _simulation(job: Job) -> Simulation:
    assert job.simulation is not None
    return job.simulation
