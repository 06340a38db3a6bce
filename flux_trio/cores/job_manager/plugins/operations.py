"""The operations of plugins: each is checked against the rules and then performed.

The host has checked an operation at the call, but the job may have moved since then. An operation
that the rules do not allow any more is logged and not performed.

The events and annotations that plugins add to a job are limited, so that a plugin in an endless
loop does not fill the disk. What exceeds the limit is logged and not performed, except an event
that ends a dependency, a prolog or an epilog, and the exception that ends the job.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.orphans import Orphans
from flux_trio.cores.job_manager.jobs.user_jobs import event_bytes
from flux_trio.cores.job_manager.scheduler.priorities import Priorities
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import rfc21
from flux_trio.formats import format_fluid
from flux_trio.messages import Level
from flux_trio.protocols import (
    Annotate,
    InvalidTransition,
    JobEvent,
    JobState,
    Operation,
    PostEvent,
    Reprioritize,
    SetPriority,
    is_done,
    is_repeat,
    refusal,
)

EVENT_BYTES_MAX: Final = 4 << 20  # of the events that plugins post to one job
ANNOTATION_BYTES_MAX: Final = 1 << 16  # of the annotations of one job, as JSON

_ENDINGS: Final = (JobEvent.DEPENDENCY_REMOVE, JobEvent.PROLOG_FINISH, JobEvent.EPILOG_FINISH)


class Operations(Part):
    """Performs operations on jobs that have no open question."""

    def __init__(
        self,
        ledger: Ledger,
        hooks: Hooks,
        scheduler: SchedulerSide,
        priorities: Priorities,
        orphans: Orphans,
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._scheduler = scheduler
        self._priorities = priorities
        self._orphans = orphans

    def do(self, operation: Operation) -> None:
        """Perform the operation, or log why it is refused."""
        if isinstance(operation, Reprioritize):
            self._priorities.ask_all()
            return
        job = self._ledger.jobs.get(operation.id)
        match operation:
            case PostEvent() if is_done(job, operation.name, operation.context):
                pass
            case _ if job is None:
                self._refuse(operation, "expected the id of an active job")
            case PostEvent():
                self._post(job, operation)
            case SetPriority(priority=priority):
                self._priorities.set(job, priority)
            case Annotate():
                self._annotate(job, operation)

    def _annotate(self, job: ActiveJob, operation: Annotate) -> None:
        merged = self._ledger.merged_annotations(job, operation.annotations)
        size = len(msgspec.json.encode(merged)) - self._ledger.memo_bytes.of_job(job.id)
        if size > ANNOTATION_BYTES_MAX:
            self._refuse(operation, f"it would have {size} bytes: at most {ANNOTATION_BYTES_MAX}")
            return
        self._ledger.annotate(job, merged)

    def _post(self, job: ActiveJob, post: PostEvent) -> None:
        if is_repeat(job, post.name, post.context):
            self._orphans.claimed(job, post.name, rfc21.description_in(post.context))
            return
        if (rule := refusal(job, post.name, post.context)) is not None:
            self._refuse(post, rule)
            return
        if post.name == JobEvent.JOBSPEC_UPDATE and job.has_jobspec(post.context):
            return  # else a plugin that posts it in each state would never let the job rest
        if not self._has_room(job, post):
            return
        if post.name == JobEvent.JOBSPEC_UPDATE and job.state is JobState.SCHED:
            self._hooks.sends_back(post.plugin, job)
        try:
            self._ledger.log(job, post.name, post.context)
        except InvalidTransition as error:
            self._refuse(post, str(error))
        if post.name == JobEvent.JOBSPEC_UPDATE:
            self._scheduler.jobspec_changed(job)

    def _has_room(self, job: ActiveJob, post: PostEvent) -> bool:
        """Count the bytes that plugins post to the job; log the first event beyond the bound."""
        posted = self._ledger.posted_bytes
        before, size = posted.of_job(job.id), event_bytes(post.context)
        if before + size <= EVENT_BYTES_MAX:
            posted.put(job.userid, job.id, before + size)
            return True
        if post.name in _ENDINGS or _ends_job(job, post):
            return True
        if before <= EVENT_BYTES_MAX:
            posted.put(job.userid, job.id, EVENT_BYTES_MAX + 1)
            self._refuse(
                post,
                f"plugins have posted {before} bytes of events to it, at most {EVENT_BYTES_MAX}; "
                "further ones are not logged",
            )
        return False

    def _refuse(self, operation: PostEvent | SetPriority | Annotate, why: str) -> None:
        what = operation.name if isinstance(operation, PostEvent) else "priority or annotations"
        who = f"plugin {operation.plugin}: " if operation.plugin else ""
        job = format_fluid(operation.id, "f58")
        self._ledger.send(Log(Level.ERR, f"{who}cannot post {what} to job {job}: {why}"))


def _ends_job(job: ActiveJob, post: PostEvent) -> bool:
    return rfc21.is_fatal(post.name, post.context) and job.exception is None
