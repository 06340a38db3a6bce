"""Requests about jobs: exceptions (also cancel), urgency and memos; and the statistics.

The texts of refusals are flux-core's, where it has one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.job_manager.calls import Absent, LastStored
from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.user_jobs import event_bytes
from flux_trio.cores.job_manager.requests.user_limits import UserLimits, check_note
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.job_manager.waiting import AnswerOfMany
from flux_trio.cores.kvs_calls import page_in
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import last_job_in, read_last_jobs
from flux_trio.editions import job_requests, rfc21, submission
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    check_user,
    respond,
    respond_error,
)
from flux_trio.protocols import URGENCY_DEFAULT, URGENCY_MAX, URGENCY_MIN, JobEvent, JobState


class Memos(Part):
    """Answers job-manager.memo, and job-manager.post-event.post."""

    def __init__(self, ledger: Ledger, limits: UserLimits) -> None:
        self._ledger = ledger
        self._limits = limits

    def memo(self, request: Request) -> None:
        """Log the memo of an active job, by its user or the owner."""
        payload = job_requests.MEMO.read(request)
        denied = "guests can only add a memo to their own jobs"
        job = self._ledger.asked_about(request, payload.id, denied)
        if job is None:
            return
        self._ledger.check_room()
        size = self._limits.check_memo(job, payload.memo)
        if payload.volatile:
            self._ledger.remember(job, payload.memo)
            self._ledger.send(respond(request))
            return
        self._limits.check_event(request, job, event_bytes(payload.memo))
        self._ledger.memo_bytes.put(job.userid, job.id, size)
        self._ledger.log(job, JobEvent.MEMO, payload.memo, respond(request))

    def post_event(self, request: Request) -> None:
        """Log an event that nobody but its reader knows; one of RFC 21 has a request of its own."""
        wanted = job_requests.POST_EVENT.read(request)
        if wanted.name in _KNOWN_EVENTS:
            text = f"{wanted.name}: expected a name that no event of a job has"
            raise FluxError(Errno.EINVAL, text)
        job = self._ledger.asked_about(request, wanted.id, "only the owner may post events")
        if job is None:
            return
        self._ledger.check_room()
        if wanted.context is not None:
            self._limits.check_event(request, job, event_bytes(wanted.context))
        self._ledger.log(job, wanted.name, wanted.context, respond(request))


_KNOWN_EVENTS: Final = frozenset(each.value for each in JobEvent)
RAISE_DENIED: Final = "guests can only raise exceptions on their own jobs"

_EXCEPTION: Final = JobEvent.EXCEPTION  # looked up once: a request may be about many jobs


class _ExceptionContext:
    """The context of an exception event that `userid` raises, the same for all jobs it is for."""

    def __init__(
        self,
        asked: job_requests.Raise | job_requests.RaiseAll,
        userid: int,
        wait_status: int | None = None,
    ) -> None:
        status = msgspec.UNSET if wait_status is None else wait_status
        raised = rfc21.Exceptional(asked.type, asked.severity, asked.note, wait_status=status)
        self.size = event_bytes(rfc21.write(raised))
        self.context = rfc21.write(msgspec.structs.replace(raised, userid=userid))
        self.is_fatal = rfc21.is_fatal(_EXCEPTION, self.context)


class Control(Part):
    """Answers requests for exceptions, urgency, information and statistics."""

    def __init__(
        self, ledger: Ledger, scheduler: SchedulerSide, execution: ExecSide, limits: UserLimits
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._scheduler = scheduler
        self._exec = execution

    def raise_one(self, request: Request) -> None:
        """job-manager.raise: raise an exception on a job, for its user or the owner."""
        payload = job_requests.RAISE.read(request)
        _check_exception(payload)
        wait_status = payload.wait_status
        if not self._ledger.edition.exceptions_have_wait_status:
            wait_status = None
        elif wait_status is not None and payload.type != rfc21.EXEC:
            text = (
                f"wait_status is of exceptions of the type {rfc21.EXEC} alone, got {payload.type}"
            )
            raise FluxError(Errno.EINVAL, text)
        self._ledger.check_room()
        job = self._ledger.asked_about(request, payload.id, RAISE_DENIED)
        if job is None:
            return
        raised = _ExceptionContext(payload, request.userid, wait_status)
        self._limits.check_event(request, job, raised.size, is_fatal=raised.is_fatal)
        self._ledger.log(job, _EXCEPTION, raised.context, respond(request))

    def raise_all(self, request: Request) -> None:
        """job-manager.raiseall: raise an exception on every job of a user in some states."""
        payload = job_requests.RAISE_ALL.read(request)
        _check_exception(payload)
        check_user(request, payload.userid, RAISE_DENIED)
        jobs = self._ledger.active_of(payload.userid)
        chosen = able = [job for job in jobs if job.state & payload.states]
        raised = _ExceptionContext(payload, request.userid)
        if not payload.dry_run:
            self._ledger.check_room()
            able = [job for job in chosen if self._has_room(request, job, raised)]
        answer = AnswerOfMany(request, len(able), errors=len(chosen) - len(able))
        if payload.dry_run or not able:
            answer.count = len(able)
            self._ledger.send(answer.response())
            return
        for job in able:
            self._ledger.log(job, _EXCEPTION, raised.context, answer)

    def _has_room(self, request: Request, job: ActiveJob, raised: _ExceptionContext) -> bool:
        """Count an exception of the job, if its eventlog has room for it."""
        try:
            self._limits.check_event(request, job, raised.size, is_fatal=raised.is_fatal)
        except FluxError:
            return False
        return True

    def urgency(self, request: Request) -> None:
        """job-manager.urgency: change the urgency of a job without resources."""
        payload = job_requests.URGENCY.read(request)
        if not URGENCY_MIN <= payload.urgency <= URGENCY_MAX:
            raise FluxError(Errno.EINVAL, "urgency value is out of range")
        denied = "guests can only reprioritize their own jobs"
        absent = Absent(payload.id, text="unknown job")
        job = self._ledger.asked_about(request, payload.id, denied, absent)
        if job is None:
            return
        if not request.is_owner and payload.urgency > max(URGENCY_DEFAULT, job.urgency):
            raise FluxError(Errno.EINVAL, "guests can only adjust urgency <= default")
        if job.state in (JobState.RUN, JobState.CLEANUP):
            text = "urgency cannot be changed once resources are allocated"
            raise FluxError(Errno.EINVAL, text)
        old = job.urgency
        told = job_requests.OLD_URGENCY.write(job_requests.OldUrgency(old))
        answer = respond(request, told)
        if payload.urgency == old:
            self._ledger.send(answer)
            return
        self._ledger.check_room()
        context = rfc21.write(rfc21.UrgencyContext(request.userid, payload.urgency))
        self._limits.check_event(request, job, event_bytes(context))
        self._ledger.log(job, JobEvent.URGENCY, context, answer)

    def getinfo(self, request: Request) -> None:
        """job-manager.getinfo: the greatest job id so far; ids continue after it.

        An earlier job-ingest may have stored jobs that it has not submitted: the stored jobs are
        asked for.
        """
        self._ledger.ask_kvs(read_last_jobs(), LastStored(request))

    def last_stored(self, request: Request, response: Response) -> None:
        """Answer getinfo: the last job directories were read."""
        try:
            last = last_job_in(page_in(response).keys)
        except FluxError as error:
            self._ledger.answer_at_once(respond_error(request, error.errnum, error.text))
            return
        info = submission.Info(max(self._ledger.max_jobid, last or 0))
        self._ledger.answer_at_once(respond(request, submission.INFO.write(info)))

    def alloc_query(self, request: Request) -> None:
        """job-manager.alloc-query: the numbers of jobs before, at and after the scheduler."""
        tally = self._ledger.tally
        counts = job_requests.AllocCounts(
            self._scheduler.waiting(),
            self._scheduler.outstanding(),
            tally.jobs(JobState.RUN) + tally.jobs(JobState.CLEANUP),
        )
        self._ledger.answer_at_once(respond(request, job_requests.ALLOC_COUNTS.write(counts)))

    def stats(self) -> job_requests.Stats:
        """job-manager.stats-get: the number of jobs in each state, and at the scheduler."""
        tally = self._ledger.tally
        counts = {state.name.lower(): tally.jobs(state) for state in JobState}
        counts["inactive"] += self._ledger.ninactive
        sched = job_requests.SchedStats(
            self._scheduler.link.name.lower(),
            self._scheduler.waiting(),
            self._scheduler.outstanding(),
        )
        execution = job_requests.ExecStats(self._exec.service)
        return job_requests.Stats(
            counts,
            tally.by_queue(),
            sched,
            execution,
            self._ledger.ninactive,
            self._scheduler.latency.histogram(),
            self._scheduler.housekeeping.stats(),
        )


def _check_exception(asked: job_requests.Raise | job_requests.RaiseAll) -> None:
    kind = asked.type
    if not rfc21.SEVERITY_FATAL <= asked.severity <= rfc21.SEVERITY_MAX:
        raise FluxError(Errno.EINVAL, "invalid exception severity")
    check_note(kind, asked.note)
    if not kind or any(char.isspace() for char in kind):
        raise FluxError(Errno.EINVAL, "invalid exception type")
