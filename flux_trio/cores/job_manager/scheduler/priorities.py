"""Priorities: who sets them, when they are logged, and why a job waits in PRIORITY.

Urgency 0 (held) and 31 (expedited) override plugins. In SCHED an unchanged priority is not logged;
in PRIORITY it is, since the event moves the job on. If the priority of a job is unavailable, the
job waits in PRIORITY until a plugin sets one; a job in SCHED keeps its old priority.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.sweeps import Sweeps
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.job_manager.waiting import AskPriorities, AskPriority, PriorityGot
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import rfc21
from flux_trio.formats import format_fluid
from flux_trio.messages import Level
from flux_trio.protocols import (
    ASKING,
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
"""The reason of a job that waits in PRIORITY for a plugin to set its priority."""

CONTEXTS_MAX: Final = 1024
"""Priorities whose event contexts are kept: many jobs have the same few."""

_RANKED = JobState.PRIORITY | JobState.SCHED

# Looked up once, since many priorities are set at a time.
_PRIORITY: Final = JobEvent.PRIORITY
_IN_PRIORITY: Final = JobState.PRIORITY
_IN_SCHED: Final = JobState.SCHED

PluginPriority = int | Unavailable | None


class Priorities(Part):
    """Sets priorities, and asks plugins for them."""

    is_due: bool  # requested and not begun yet

    def __init__(
        self, ledger: Ledger, hooks: Hooks, scheduler: SchedulerSide, sweeps: Sweeps
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._scheduler = scheduler
        self._sweeps = sweeps
        self.is_due = False

    def set(self, job: ActiveJob, said: PluginPriority) -> None:
        """Take a job's priority from a plugin, None for unavailable; only in PRIORITY and SCHED."""
        if not job.state & _RANKED:
            return
        priority = effective_priority(job, said)
        if priority is None:
            self._miss(job)
        elif priority != job.priority or job.state is _IN_PRIORITY:
            self._ledger.log_now(job, _PRIORITY, _context_of(priority))

    def ask_all(self) -> None:
        """Call job.priority.get for jobs in PRIORITY or SCHED; tell the scheduler all at once."""
        if not self.is_due:
            self.is_due = True
            self._sweeps.begin(AskPriorities())

    def choose(self) -> Iterable[ActiveJob]:
        """Return the jobs to ask about."""
        self.is_due = False
        self._scheduler.requests.holds_prioritize = True
        return self._ledger.active()

    def asked_all(self) -> None:
        """Let the scheduler get the new priorities: all jobs have been asked about."""
        self._scheduler.requests.holds_prioritize = False

    def is_quick(self, job: ActiveJob) -> bool:
        """Return whether `ask_some` calls no handler of a plugin for this job alone.

        A new priority may lead to such a call: plugins may subscribe to the job, and a job that
        waits in PRIORITY moves to SCHED, whose hook is asked about one job.
        """
        interests = self._hooks.interests
        return (
            job.state is _IN_SCHED
            and job.id not in interests.subscribed
            and PRIORITY_GET in interests.of_many
        )

    def ask_some(self, jobs: Iterable[ActiveJob]) -> None:
        """Ask for the priorities of these jobs, of all that have no open question at once."""
        free = []
        for job in jobs:
            if job.hook in ASKING:
                self._hooks.when_free(job, AskPriority())
            elif job.state & _RANKED:
                free.append(job)
        self._hooks.ask_jobs(free, PRIORITY_GET, PriorityGot())

    def ask(self, job: ActiveJob) -> None:
        """Ask for the priority of one job, when no other hook of it is under way."""
        if job.is_asked:
            self._hooks.when_free(job, AskPriority())
        elif job.state & _RANKED:
            answer = self._hooks.ask(job, PRIORITY_GET, PriorityGot())
            if answer is not None:
                self.got(job, answer)

    def got(self, job: ActiveJob, answer: HookAnswer) -> None:
        """Take the answer to job.priority.get."""
        if answer.error is None and answer.priority is not None:
            self.set(job, answer.priority)

    def _miss(self, job: ActiveJob) -> None:
        """Hold a job in PRIORITY without a priority; a job in SCHED keeps its old one."""
        if job.state == JobState.PRIORITY:
            hold(self._ledger, self._scheduler, job, UNAVAILABLE_TEXT)
        else:
            text = f"job {format_fluid(job.id, 'f58')}: {UNAVAILABLE_TEXT}, but it had one: kept"
            self._ledger.send(Log(Level.ERR, text))


@lru_cache(maxsize=CONTEXTS_MAX)
def _context_of(priority: int) -> dict[str, Any]:
    """Return the context of a priority event; events of many jobs share it."""
    return rfc21.write(rfc21.PriorityContext(priority))


def effective_priority(job: ActiveJob, said: PluginPriority) -> int | None:
    """Return the priority to log, None to wait. The plugin host refuses values out of range."""
    if job.urgency == URGENCY_HOLD:
        return PRIORITY_MIN
    if job.urgency == URGENCY_EXPEDITE:
        return PRIORITY_MAX
    return said if isinstance(said, int) else None


def hold(ledger: Ledger, scheduler: SchedulerSide, job: ActiveJob, reason: str) -> None:
    """Hold `job` in its state for `reason`, and cancel its request to the scheduler."""
    if job.state & _RANKED:
        scheduler.withdraw(job)
    ledger.hold(job, reason)
