"""Jobs that pretend to run: a start, a timer, an end. No process, no output."""

from __future__ import annotations

from math import inf

from flux_trio.cores.exec.context import Context, TimerKey, TimerKind
from flux_trio.cores.exec.job import SIGALRM, SIGTERM, Job
from flux_trio.cores.exec.simulation import MOCK_TEXTS, Simulation
from flux_trio.cores.turns import ClearTimer, SetTimer

TIME_LIMIT_NOTE = "resource allocation expired"


class SimulatedJobs:
    """What the core does with a job that has a `simulation`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def begin(self, job: Job) -> None:
        """Start it, or go on with it: its run time counts from its start."""
        simulation = _simulation(job)
        mock = simulation.mock_exception
        if job.killed and job.started_at is None:
            job.tell_release(self._context)
        elif job.killed:
            job.tell_finish(self._context, SIGTERM)
        elif mock in ("init", "starting"):
            job.fail(self._context, MOCK_TEXTS[mock])
        else:
            # `stepped` is counted from the start request on
            job.started_at = job.started_at or self._context.now - job.stepped
            job.tell_start(self._context)
            if mock is not None:
                job.tell_exception(self._context, MOCK_TEXTS[mock])
                job.tell_finish(self._context, SIGTERM)
            else:
                self.arm(job)

    def arm(self, job: Job) -> None:
        """Set the timer for the end of the job, or end it if that is past."""
        at, _ = _end(job)
        if at <= self._context.now:
            self.expire(job)
        elif at == inf:
            self._context.emit(ClearTimer(TimerKey(TimerKind.END, job.id)))
        else:
            self._context.emit(SetTimer(TimerKey(TimerKind.END, job.id), at))

    def expire(self, job: Job) -> None:
        """Its end has come, or its time limit."""
        _, timed_out = _end(job)
        if timed_out:
            job.tell_exception(self._context, TIME_LIMIT_NOTE, "timeout")
            job.tell_finish(self._context, SIGALRM)
        else:
            job.tell_finish(self._context, _simulation(job).status)

    def stop(self, job: Job, signum: int) -> None:
        """End it as if every process had died of `signum`."""
        self._context.emit(ClearTimer(TimerKey(TimerKind.END, job.id)))
        job.tell_finish(self._context, signum)


def _end(job: Job) -> tuple[float, bool]:
    """When the job ends, and whether that is its time limit."""
    simulation = _simulation(job)
    limit = job.ends_at or inf
    end = (job.started_at or 0.0) + job.stepped + simulation.run_s
    if limit < end and not simulation.until_limit:
        return limit, True
    return min(end, limit), False


def _simulation(job: Job) -> Simulation:
    assert job.simulation is not None
    return job.simulation
