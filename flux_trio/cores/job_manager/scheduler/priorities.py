"""Priorities: who says them, when they are logged, and what holds a job in PRIORITY.

Urgency 0 and 31 override any plugin (held, expedited). An equal priority is not logged in SCHED,
but in PRIORITY it is, since the event moves the job on. A job whose priority is unavailable waits
in PRIORITY until a plugin sets one; for one in SCHED that is a plugin's fault: the old one stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.hooks.waiting import AskPriorities, AskPriority, PriorityGot
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.sweeps import Sweeps
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import rfc21
from flux_trio.formats import format_fluid
from flux_trio.messages import Level
from flux_trio.protocols import (
    PRIORITY_GET,
    PRIORITY_MAX,
    PRIORITY_MIN,
    URGENCY_EXPEDITE,
    URGENCY_HOLD,
    HookAnswer,
    JobEvent,
    JobState,
    Unavailable,
)

UNAVAILABLE_TEXT: Final = "priority unavailable"
"""Why a job waits in PRIORITY that no plugin has given a priority."""

_RANKED = JobState.PRIORITY | JobState.SCHED

_PRIORITY: Final = JobEvent.PRIORITY  # looked up once: many are given at a time

Said = int | Unavailable | None


class Priorities(Part):
    """Sets priorities, and asks for them."""

    is_due: bool  # asked for, and not begun

    def __init__(
        self, ledger: Ledger, hooks: Hooks, scheduler: SchedulerSide, sweeps: Sweeps
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._scheduler = scheduler
        self._sweeps = sweeps
        self.is_due = False

    def set(self, job: ActiveJob, said: Said) -> None:
        """A plugin knows a job's priority, or knows it no more (None); elsewhere without effect."""
        if not job.state & _RANKED:
            return
        priority = effective_priority(job, said)
        if priority is None:
            self._miss(job)
        elif priority != job.priority or job.state == JobState.PRIORITY:
            context = rfc21.write(rfc21.PriorityContext(priority))
            self._ledger.log_now(job, _PRIORITY, context)

    def ask_all(self) -> None:
        """job.priority.get of all jobs in PRIORITY or SCHED; the scheduler is told all at once."""
        if not self.is_due:
            self.is_due = True
            self._sweeps.begin(AskPriorities())

    def choose(self) -> Iterable[ActiveJob]:
        """The jobs to ask about, now that their turn has come."""
        self.is_due = False
        self._scheduler.requests.holds_prioritize = True
        return self._ledger.active()

    def asked_all(self) -> None:
        """The scheduler may hear of the new priorities."""
        self._scheduler.requests.holds_prioritize = False

    def ask(self, job: ActiveJob) -> None:
        """Ask for the priority of one job, once no hook of it is being asked."""
        if job.is_asked:
            self._hooks.when_free(job, AskPriority())
        elif job.state & _RANKED:
            answer = self._hooks.ask(job, PRIORITY_GET, PriorityGot())
            if answer is not None:
                self.got(job, answer)

    def got(self, job: ActiveJob, answer: HookAnswer) -> None:
        """The plugins have answered job.priority.get."""
        if answer.error is not None:
            self._hooks.log_error(job, answer)
        elif answer.priority is not None:
            self.set(job, answer.priority)

    def _miss(self, job: ActiveJob) -> None:
        """Nobody has a priority for it."""
        if job.state == JobState.PRIORITY:
            hold(self._ledger, self._scheduler, job, UNAVAILABLE_TEXT)
        else:
            text = f"job {format_fluid(job.id, 'f58')}: {UNAVAILABLE_TEXT}, but it had one: kept"
            self._ledger.send(Log(Level.ERR, text))


def effective_priority(job: ActiveJob, said: Said) -> int | None:
    """The priority to log, or None to wait; a value out of range was refused by the host."""
    if job.urgency == URGENCY_HOLD:
        return PRIORITY_MIN
    if job.urgency == URGENCY_EXPEDITE:
        return PRIORITY_MAX
    return said if isinstance(said, int) else None


def hold(ledger: Ledger, scheduler: SchedulerSide, job: ActiveJob, reason: str) -> None:
    """Keep `job` in its state, and say why; no request of it stays with the scheduler."""
    if job.state & _RANKED:
        scheduler.withdraw(job)
    ledger.hold(job, reason)
