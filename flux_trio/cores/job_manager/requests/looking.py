"""What the job manager itself knows of jobs: job-manager.list and job-manager.getattr.

flux-core's tests and tools ask these when job-list may not know yet. Left out: the attribute
`eventlog`, since an eventlog is not kept in memory.
"""

from __future__ import annotations

from typing import Any, Final

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.requests.waitable import Waitable
from flux_trio.cores.state import Part
from flux_trio.editions import job_requests
from flux_trio.editions.codec import as_payload
from flux_trio.messages import Errno, FluxError, Request, check_user, respond
from flux_trio.protocols import JobState

LISTED_MAX: Final = 10_000
"""So many jobs an answer has at most: a tenth of a second of this service's time."""


class Looking(Part):
    """Answers requests that look at jobs."""

    def __init__(self, ledger: Ledger, waitable: Waitable) -> None:
        self._ledger = ledger
        self._waitable = waitable

    def list_jobs(self, request: Request) -> None:
        """job-manager.list: the jobs that wait for resources, the next one first; then the others.

        The last are jobs that have ended and can still be waited for.
        """
        asked = job_requests.LIST.read(request)
        active = self._ledger.active()
        pending = [job for job in active if job.state is JobState.SCHED]
        pending.sort(key=lambda job: (-job.priority, job.t_submit, job.id))
        others = [job for job in active if job.state is not JobState.SCHED]
        ended = [self._ledger.get(jobid) for jobid in self._waitable.results]
        jobs = [*pending, *others, *(job for job in ended if job is not None)]
        count = min(asked.max_entries or LISTED_MAX, LISTED_MAX)
        listed = job_requests.Listed([_row(job) for job in jobs[:count]])
        self._ledger.answer_at_once(respond(request, as_payload(listed)))

    def getattr(self, request: Request) -> None:
        """job-manager.getattr: `jobspec` and `R` as the job manager has them, by name."""
        asked = job_requests.GETATTR.read(request)
        job = self._ledger.get(asked.id)
        if job is None:
            raise FluxError(Errno.EINVAL, "unknown job")
        check_user(request, job.userid, "guests can only access their own jobs")
        self._ledger.answer_at_once(
            respond(request, {key: _value(job, key) for key in asked.attrs})
        )


def _row(job: ActiveJob) -> job_requests.ListedJob:
    return job_requests.ListedJob(
        job.id,
        job.userid,
        job.urgency,
        job.priority,
        job.t_submit,
        job.state,
        job.annotations or None,
        sorted(job.dependencies) if job.dependencies else None,
    )


def _value(job: ActiveJob, key: str) -> dict[str, Any]:
    if key == "jobspec":
        return job.snapshot().current_jobspec()
    if key == "R":
        if (found := job.snapshot().resource_set()) is not None:
            return found
        raise FluxError(Errno.ENOENT, "R is NULL")
    raise FluxError(Errno.ENOENT, f"unknown attr {key}")
