"""Beginning, signalling and ending jobs, whether they have processes or are simulated."""

from __future__ import annotations

from typing import Final

from flux_trio.cores.exec.job import Job, Jobs, Phase
from flux_trio.cores.exec.manager import Manager
from flux_trio.cores.exec.real import RealJobs
from flux_trio.cores.exec.simulated import SimulatedJobs
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.exec.targets import Targets
from flux_trio.cores.exec.vocabulary import SIGTERM
from flux_trio.cores.state import Part
from flux_trio.editions import rfc21
from flux_trio.messages import Event, Response

NO_PROCESSES: Final = "this instance has no directory for a shell host: it runs no processes"

NO_PMI: Final = (
    "a task has asked for PMI, by which the tasks of a job find each other: the shell host has no "
    "descriptors left for so many tasks"
)


class Runs(Part):
    """Hands each job to `RealJobs` or `SimulatedJobs`."""

    def __init__(
        self,
        jobs: Jobs,
        starts: Starts,
        manager: Manager,
        targets: Targets,
        real: RealJobs,
        simulated: SimulatedJobs,
        *,
        has_shell: bool,
    ) -> None:
        self._jobs = jobs
        self._starts = starts
        self._manager = manager
        self._targets = targets
        self._real = real
        self._simulated = simulated
        self._has_shell = has_shell

    def begin(self, job: Job) -> None:
        """Start a job whose values have been read, or fail it."""
        if job.status is None:
            self._raise_lost_targets(job)
        if job.simulation is not None:
            self._simulated.begin(job)
        elif job.killed and job.is_new:
            self._starts.release(job)  # 32.start.35: no part of it was started
        elif not self._has_shell:
            self._starts.fail(job, NO_PROCESSES)
        elif job.userid != self._manager.owner:  # it would run with the owner's rights
            owner = self._manager.owner
            note = f"the job is user {job.userid}'s, but processes can run only as user {owner}"
            self._starts.fail(job, note)
        else:
            self._real.begin(job)

    def arm(self, job: Job) -> None:
        """Set the timers of a job whose time limit has changed."""
        self._kind(job).arm(job)

    def expire(self, job: Job) -> None:
        """End the job: its simulated end, or its time limit, has come."""
        self._kind(job).expire(job)

    def signal(self, job: Job, signum: int) -> None:
        """Send a signal to a job that is RUNNING; any signal ends a simulated job."""
        if job.simulation is not None:
            self._simulated.stop(job, signum)
        else:
            self._real.signal(job, signum)

    def killed(self, job: Job, wait_status: int | None = None) -> None:
        """End a job that has a fatal exception, or do not launch it.

        The first one says with which status the job ends, if it has `wait_status`.
        """
        if not job.killed and wait_status is not None:
            job.exit_status = rfc21.shell_status(wait_status)
        job.killed = True
        if job.phase is Phase.RUNNING:
            self._kind(job).stop(job, SIGTERM)
        elif job.phase is Phase.PREPARING and not job.lookups and self._simulated.is_waiting(job):
            self._starts.release(job)
        else:
            self._real.give_up(job)

    def wants_pmi(self, jobid: int) -> None:
        """Fail a job whose tasks ask in vain: each would think to be the only one."""
        job = self._jobs.running(jobid)
        if job is not None and not job.killed:
            self._starts.exception(job, NO_PMI)
            self.killed(job)

    # Targets that go down

    def targets_changed(self, message: Event | Response) -> None:
        """Note which targets are down, and end the jobs on them."""
        if not self._targets.learn(message):
            return
        for job in list(self._jobs.by_id.values()):
            if job.phase in (Phase.LAUNCHING, Phase.RUNNING) and self._raise_lost_targets(job):
                self.killed(job)

    def stuck(self, job: Job) -> None:
        """Report that SIGKILL has not ended the job."""
        self._real.stuck(job, self._targets.lost_of(job))

    def _raise_lost_targets(self, job: Job) -> bool:
        """Raise a fatal exception if targets of the job are down and it has no such exception.

        The whole job ends, also on its other targets.
        """
        if job.killed or not (lost := self._targets.lost_of(job)):
            return False
        self._starts.exception(job, lost)
        return True

    def _kind(self, job: Job) -> RealJobs | SimulatedJobs:
        return self._real if job.simulation is None else self._simulated
