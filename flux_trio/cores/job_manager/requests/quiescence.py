"""Accounts for the trace: the state of the job manager when it has no open call of its own.

An account has {"service", "scheduler": "detached", "greeted" or "ready", "exec": a service's name
or "", "outstanding": open sched.alloc requests, "waiting": eligible jobs without a request, "jobs":
[[id, state, reason], ...]}. The reason is that of a plugin that holds the job, or "".
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Note
from flux_trio.messages import topics
from flux_trio.protocols import HOOK, JobState
from flux_trio.trace import Kind

JOBS_PER_EVENT: Final = 4
"""Active jobs in an account, at most, for each event that was logged since the last account."""

JOBS_MAX: Final = 1000
"""With more active jobs there is no account: it would take too long, and fill the trace."""

_STATES: Final = {state: state.name for state in JobState}  # reading a member's name is slow


class Quiescence(Part):
    """Sends an account if events were logged since the last one, but not too often."""

    nreported: int  # number of events at the last account

    def __init__(self, ledger: Ledger, scheduler: SchedulerSide, execution: ExecSide) -> None:
        self._ledger = ledger
        self._scheduler = scheduler
        self._exec = execution
        self.nreported = 0

    def end_turn(self) -> None:
        """Send an account if one is due, no call is open and the trace has a reader."""
        if not self._ledger.is_noted:
            return
        jobs = self._ledger.jobs
        nevents = self._ledger.nlogged - self.nreported
        due = nevents and len(jobs) <= min(nevents * JOBS_PER_EVENT, JOBS_MAX)
        if not due or self._ledger.outbox.calls:
            return
        self.nreported = self._ledger.nlogged
        account = Note(
            Kind.STATE,
            {
                "service": topics.JOB_MANAGER,
                "scheduler": self._scheduler.link.name.lower(),
                "exec": self._exec.service,
                "outstanding": self._scheduler.outstanding(),
                "waiting": self._scheduler.waiting(),
                "jobs": [
                    [job.id, _STATES[job.state], "" if job.hook is HOOK.initial else _reason(job)]
                    for job in jobs.values()
                ],
            },
        )
        self._ledger.outbox.send(account)


def _reason(job: ActiveJob) -> str:
    """Return why plugins keep the job from moving; "" if they do not."""
    return "a plugin is being asked" if job.is_asked else job.waiting_for or ""
