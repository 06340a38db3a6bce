"""What the answer of a state's hook means for the job that has come into the state.

If the hook failed, the job is held in the state, and the failure is the reason (`waiting_for`).
The job is released when plugins are loaded or removed, or its urgency or jobspec changes. An
inactive job is not held.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.scheduler.bypass import Bypass
from flux_trio.cores.job_manager.scheduler.priorities import Priorities, hold
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.job_manager.waiting import AskState
from flux_trio.cores.state import Part
from flux_trio.formats import FormatError
from flux_trio.formats.meanings import JobId
from flux_trio.protocols import HookAnswer, JobState

_PRIORITY: Final = JobState.PRIORITY  # looked up once, since all jobs pass here


class StateAnswers(Part):
    """Lets a job go on, or holds it."""

    held: dict[JobId, ActiveJob]  # by a failure

    def __init__(
        self,
        ledger: Ledger,
        hooks: Hooks,
        scheduler: SchedulerSide,
        priorities: Priorities,
        bypass: Bypass,
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._scheduler = scheduler
        self._priorities = priorities
        self._bypass = bypass
        self.held = {}

    def answered(self, job: ActiveJob, answer: HookAnswer) -> None:
        """Act on the answer to the hook of the state that `job` is in."""
        self._ledger.dirty[job.id] = job
        if job.allocating is not None:
            job.allocating = None
        if answer.error is not None:
            self._hold(job, answer.error)  # whoever made the error has logged it
            return
        if job.is_held:
            self.held.pop(job.id, None)
            self._ledger.release(job)
        if answer.resource_set is not None and job.state == JobState.SCHED:
            self._allocate(job, answer)
        elif answer.priority is not None or job.state is _PRIORITY:
            self._priorities.set(job, answer.priority)

    def ask_again(self) -> None:
        """Ask again about the jobs that a failure holds: plugins were loaded or removed."""
        held, self.held = self.held, {}
        for job in held.values():
            if job.id in self._ledger.jobs and job.is_held:
                self._hooks.when_free(job, AskState(job.state))

    def _allocate(self, job: ActiveJob, answer: HookAnswer) -> None:
        assert answer.resource_set is not None
        try:
            self._bypass.allocate(job, answer.resource_set)
        except FormatError as error:
            reason = f"a plugin gave the job an R that cannot be read: {error}"
            self._hooks.log_error(job, reason)
            self._hold(job, reason)

    def _hold(self, job: ActiveJob, reason: str) -> None:
        if job.is_active:
            hold(self._ledger, self._scheduler, job, reason)
            self.held[job.id] = job
