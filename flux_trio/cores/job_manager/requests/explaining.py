"""Why a job waits, as far as the job manager knows: sentences for its user. Pure.

Each sentence names one thing that has to happen before the job goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.hindrances import Hindrances
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.state import Part
from flux_trio.messages import Errno, FluxError, Request, check_job_access
from flux_trio.protocols import PRIORITY_MIN, URGENCY_HOLD, AllocState, JobState, LinkState

NO_SCHEDULER: Final = "no scheduler is there"


class Waiting(NamedTuple):
    """Why a job waits; `is_requested`: the scheduler has a request for it."""

    job: ActiveJob
    reasons: list[str]
    is_requested: bool


class Explaining(Part):
    """Looks at the parts of the job manager; keeps nothing."""

    def __init__(
        self,
        ledger: Ledger,
        queues: Queues,
        scheduler: SchedulerSide,
        execution: ExecSide,
        hindrances: Hindrances,
    ) -> None:
        self._ledger = ledger
        self._queues = queues
        self._scheduler = scheduler
        self._execution = execution
        self._hindrances = hindrances

    def look(self, request: Request, jobid: int) -> Waiting:
        """Return why an active job waits. Raises FluxError(ENOENT, EPERM)."""
        job = self._ledger.jobs.get(jobid)
        if job is None:
            raise FluxError(Errno.ENOENT, "unknown or inactive job")
        check_job_access(request, job.userid)
        is_requested = self._scheduler.requests.allocs.of(jobid) == AllocState.PENDING
        return Waiting(job, list(self._reasons(job)), is_requested)

    def is_of(self, jobid: int, userid: int) -> bool:
        """Return whether an active job is of this user."""
        job = self._ledger.jobs.get(jobid)
        return job is not None and job.userid == userid

    def _reasons(self, job: ActiveJob) -> Iterator[str]:
        if job.is_asked:
            yield "a plugin has not answered yet"
        if job.is_held and job.waiting_for is not None:
            yield job.waiting_for
        match job.state:
            case JobState.NEW:
                yield "it is not validated yet"
            case JobState.DEPEND:
                yield from (f"dependency {text}" for text in sorted(job.dependencies or ()))
            case JobState.SCHED:
                yield from self._unscheduled(job)
            case JobState.RUN:
                yield from self._not_started(job)
            case JobState.CLEANUP:
                yield from (f"epilog {text} runs" for text in sorted(job.epilogs or ()))
        yield from self._hindrances.texts

    def _unscheduled(self, job: ActiveJob) -> Iterator[str]:
        """Yield why the scheduler has no request for a job in SCHED."""
        requests, link = self._scheduler.requests, self._scheduler.link
        if job.urgency == URGENCY_HOLD:
            yield "it is held: its urgency is 0"
        elif job.priority == PRIORITY_MIN:
            yield "it is held: plugins gave it priority 0"
        if not self._queues.schedules(job.queue):
            yield self._stopped(job.queue)
        if link != LinkState.READY:
            yield NO_SCHEDULER
        elif requests.allocs.of(job.id) == AllocState.CANCELING:
            yield "the scheduler has not answered a cancel of its request yet"
        elif job.id in requests.queued and self._scheduler.limit is not None:
            yield (
                f"the scheduler takes {self._scheduler.limit} requests at a time: "
                f"{requests.queued.place(job.id)} of {len(requests.queued)} that wait to be sent"
            )

    def _stopped(self, name: str | None) -> str:
        queue = self._queues.by_name.get(name)
        if queue is None:
            return f"its queue {name} is not configured"
        queue = self._queues.stopped_by(queue) or queue
        which = "the queue is stopped" if name is None else f"queue {queue.name} is stopped"
        return which if queue.stop_reason is None else f"{which}: {queue.stop_reason}"

    def _not_started(self, job: ActiveJob) -> Iterator[str]:
        yield from (f"prolog {text} runs" for text in sorted(job.prologs or ()))
        if not job.prologs and not self._execution.service:
            yield "no execution service is there"
