"""What is due for a job, by its state, once the events of a turn are folded. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.state import Part
from flux_trio.protocols import DESTROY, INACTIVE_ADD, INACTIVE_REMOVE, JobEvent, JobState

_CLEAN: Final = JobEvent.CLEAN  # looked up once, since all jobs pass here


class JobActions(Part):
    """Does what is due: it logs the job's next event, or asks another service for it."""

    def __init__(
        self, ledger: Ledger, hooks: Hooks, scheduler: SchedulerSide, execution: ExecSide
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._scheduler = scheduler
        self._exec = execution
        self._by_state: dict[JobState, Callable[[ActiveJob], None]] = {
            JobState.DEPEND: self._in_depend,
            JobState.SCHED: scheduler.consider,
            JobState.RUN: execution.consider,
            JobState.CLEANUP: self._in_cleanup,
            JobState.INACTIVE: self._in_inactive,
        }

    def do(self, job: ActiveJob) -> None:
        """Do the action of the job's state. In NEW and PRIORITY, plugins must answer first."""
        if (action := self._by_state.get(job.state)) is not None:
            action(job)

    def _in_depend(self, job: ActiveJob) -> None:
        if not job.dependencies:
            self._ledger.log(job, JobEvent.DEPEND)

    def _in_cleanup(self, job: ActiveJob) -> None:
        if not job.has_resources:
            self._scheduler.withdraw(job)
            if not job.epilogs:
                self._ledger.log(job, _CLEAN)
        elif self._exec.is_done(job) and not job.epilogs and not job.prologs:
            if job.bypassed:
                self._ledger.log(job, JobEvent.FREE)
            else:
                self._scheduler.free(job)

    def _in_inactive(self, job: ActiveJob) -> None:
        if not job.introduced:
            return
        job.introduced = False  # plugins hear no more of it
        self._hooks.notify(INACTIVE_ADD, job)
        self._hooks.notify(DESTROY, job)
        while (oldest := self._ledger.forget_oldest()) is not None:
            self.forgotten(oldest)

    def forgotten(self, job: ActiveJob) -> None:
        """Tell plugins that they can no longer look up this inactive job."""
        self._hooks.notify(INACTIVE_REMOVE, job)
