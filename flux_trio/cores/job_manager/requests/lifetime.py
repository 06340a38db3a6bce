"""When jobs expire: a job ends when its duration is over, and not after the instance.

The event `resource-expiration` of the resource service has the new end of the instance. A waiting
job gets its expiration with its grant, from the duration in sched.alloc. If the duration has
changed since, the job manager proposes the new expiration at once, and once more if the duration
changes while the scheduler answers. Left out: the durations in jobspecs, which do not change.
"""

from __future__ import annotations

import math

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.active_job import BEGINNINGS, ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.job_manager.waiting import LifetimeProposed, ProposeExpiration
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import flux, rfc21
from flux_trio.formats import Event as LoggedEvent
from flux_trio.messages import ROLE_OWNER, Event, FluxError, Level, topics
from flux_trio.protocols import JobEvent, JobState


class Lifetime(Part):
    """Gives running jobs new expirations."""

    def __init__(self, ledger: Ledger, hooks: Hooks, scheduler: SchedulerSide) -> None:
        for name in BEGINNINGS:
            ledger.listen(name, self._began)
        self._ledger = ledger
        self._hooks = hooks
        self._scheduler = scheduler

    def _began(self, job: ActiveJob, event: LoggedEvent) -> None:
        job.note_begin(event, self._ledger.now)

    def event(self, event: Event) -> None:
        """Take resource-expiration; the same event of a guest is ignored."""
        if event.topic != topics.RESOURCE_EXPIRATION_EVENT or not event.rolemask & ROLE_OWNER:
            return
        try:
            end = flux.INSTANCE_END.read(event).expiration
        except FluxError as error:
            self._ledger.send(Log(Level.ERR, error.text))
            return
        for job in list(self._ledger.running.values()):
            if job.state == JobState.RUN:
                self._hooks.when_free(job, ProposeExpiration(end))

    def granted(self, jobid: int) -> None:
        """Propose the end by the job's duration, since its grant may be for an older jobspec."""
        job, inventory = self._ledger.jobs.get(jobid), self._scheduler.grants.inventory
        if job is not None:
            end = 0.0 if inventory is None else inventory.expiration
            self._hooks.when_free(job, ProposeExpiration(end))

    def propose(self, job: ActiveJob, end: float) -> None:
        """Ask the scheduler for the new end of a job, if it has changed."""
        resources = job.granted
        if job.state != JobState.RUN or resources is None:
            return
        agreed = job.agreed_expiration
        before = resources.expiration if agreed is None else agreed
        duration = job.current_jobspec()["attributes"]["system"].get("duration", 0)
        ends = [each for each in (duration and job.end_after(duration), end) if each]
        expiration = math.ceil(min(ends, default=0))
        if expiration != math.ceil(before):
            proposal = LifetimeProposed(job.id, expiration, end)
            if not self._scheduler.propose_expiration(job, expiration, proposal):
                self.answered(proposal, accepted=True)

    def answered(self, proposal: LifetimeProposed, *, accepted: bool) -> None:
        """Take the scheduler's answer."""
        if not accepted:
            text = f"job {proposal.jobid}: scheduler refused expiration {proposal.expiration}"
            self._ledger.send(Log(Level.WARNING, text))
        elif (job := self._ledger.jobs.get(proposal.jobid)) is not None:
            self._hooks.when_free(job, proposal)

    def apply(self, job: ActiveJob, expiration: int, end: float) -> None:
        """Log the new end of a job; propose another one if its duration has changed meanwhile."""
        if job.state == JobState.RUN:
            context = rfc21.ResourceUpdate(expiration)
            self._ledger.log(job, JobEvent.RESOURCE_UPDATE, rfc21.write(context))
            self._hooks.when_free(job, ProposeExpiration(end))
