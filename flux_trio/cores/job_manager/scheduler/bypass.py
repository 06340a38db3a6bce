"""Resources that a plugin gives a job in job.state.sched: no scheduler is asked, or told.

R is committed, then alloc is logged with {"bypass": true}, by which a later life of the job manager
knows that no scheduler has to free it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.formats import ResourceSet, job_key
from flux_trio.messages import Request, Response, topics
from flux_trio.protocols import JobEvent, JobState


class Bypass:
    """Runs jobs on what plugins say."""

    def __init__(self, ledger: Ledger, hooks: Hooks, scheduler: SchedulerSide) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._scheduler = scheduler

    def allocate(self, job: ActiveJob, resource_set: dict[str, Any]) -> None:
        """Run `job` on `resource_set`. Raises FormatError when that is no R (RFC 20)."""
        resources = ResourceSet.parse(resource_set)
        self._scheduler.withdraw(job)
        job.allocating = commit = object()
        text = msgspec.json.encode(resource_set).decode()
        ops = [["put", job_key(job.id, "R"), text]]
        stored = partial(self._stored, job, commit, resources)
        self._ledger.send(Request(topics.KVS_COMMIT, {"ops": ops}, self._ledger.calls.open(stored)))

    def _stored(
        self, job: ActiveJob, commit: object, resources: ResourceSet, response: Response
    ) -> list[Any]:
        if response.errnum and job.allocating is commit:
            note = f"failed to commit R to kvs: {response.error_text}"
            self._ledger.raise_exception(job, "alloc", 0, note)
        else:
            self._hooks.when_free(job, partial(self._allocated, job, commit, resources))
        return []

    def _allocated(self, job: ActiveJob, commit: object, resources: ResourceSet) -> None:
        if job.allocating is commit and job.state == JobState.SCHED:
            job.granted = resources
            self._ledger.log_now(job, JobEvent.ALLOC, {"bypass": True})
