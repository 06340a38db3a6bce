"""Resources that a plugin gives a job in job.state.sched, without the scheduler.

R is committed, then alloc is logged with `bypass`. After a restart, `bypass` tells the job manager
that no scheduler has to free the resources.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.job_manager.waiting import AllocateBypass, BypassStored
from flux_trio.cores.kvs_calls import commit_values
from flux_trio.cores.state import Part
from flux_trio.editions import rfc21
from flux_trio.formats import ResourceSet, job_key
from flux_trio.messages import Response
from flux_trio.protocols import JobEvent, JobState


class Bypass(Part):
    """Runs jobs on resources from plugins."""

    last_commit: int  # number of the last commit of R; a job's `allocating` until it runs

    def __init__(self, ledger: Ledger, hooks: Hooks, scheduler: SchedulerSide) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._scheduler = scheduler
        self.last_commit = 0

    def allocate(self, job: ActiveJob, resource_set: dict[str, Any]) -> None:
        """Run `job` on `resource_set`. Raises FormatError unless it is an R (RFC 20)."""
        resources = ResourceSet.parse(resource_set)
        self._scheduler.withdraw(job)
        self.last_commit += 1
        job.allocating = self.last_commit
        text = msgspec.json.encode(resource_set).decode()
        ops = [["put", job_key(job.id, "R"), text]]
        stored = BypassStored(job.id, self.last_commit, resources)
        self._ledger.ask_kvs_when_durable(commit_values(ops), stored)

    def stored(self, stored: BypassStored, response: Response) -> None:
        """Log alloc if R is stored, else an exception."""
        job = self._ledger.jobs.get(stored.jobid)
        if job is None or job.allocating != stored.commit:
            return  # the job has ended, or was given other resources
        if response.errnum:
            note = f"failed to commit R to kvs: {response.error_text}"
            self._ledger.raise_exception(job, "alloc", 0, note)
        else:
            self._hooks.when_free(job, AllocateBypass(stored.commit, stored.resources))

    def allocated(self, job: ActiveJob, commit: int, resources: ResourceSet) -> None:
        """Run `job` on its resources, unless it was given others since."""
        if job.allocating == commit and job.state == JobState.SCHED:
            job.granted = resources
            self._ledger.log_now(job, JobEvent.ALLOC, rfc21.write(rfc21.Alloc(bypass=True)))
