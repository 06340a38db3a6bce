"""Submission: jobs that ingest has stored become active, or are refused with a reason.

Ingest has stored the jobspec and the submit event before it sends a job here (RFC 16). A refused
job gets no further event, and its values are removed before anyone is told. If the job manager has
ended before its answer, ingest submits the jobs again. By then the others have been read back, and
may have gone on.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeAlias, assert_never

import msgspec

from flux_trio.cores.job_manager.calls import UserFound
from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.hooks.presenting import JobPresentation
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.jobspecs import redacted, system_of
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.requests.admissions import Admission, Admissions
from flux_trio.cores.job_manager.requests.user_limits import UserLimits
from flux_trio.cores.job_manager.waiting import Admit, Readmit
from flux_trio.cores.state import Part
from flux_trio.editions import submission as payloads
from flux_trio.editions.submission import NewJob
from flux_trio.formats import costs_of
from flux_trio.formats.meanings import JobId
from flux_trio.messages import FluxError, Request, respond, topics, unanswered
from flux_trio.protocols import DESTROY, JobEvent, JobState, submit_event


class Batch(msgspec.Struct):
    """A submit request, until each of its jobs is validated."""

    request: Request
    open: int  # jobs without a decision
    errors: list[tuple[JobId, str]] = []
    full: set[int] = set()  # users who have met a limit


class New(msgspec.Struct, frozen=True):
    """A job of the submit request `batch`."""

    job: NewJob
    batch: int


class Unacknowledged(msgspec.Struct, frozen=True):
    """A job whose submission was not acknowledged when the job manager stopped."""

    jobid: JobId


Candidate: TypeAlias = New | Unacknowledged


class Submission(Part):
    """Accepts or refuses new jobs."""

    batches: dict[int, Batch]
    last_batch: int
    again: dict[JobId, list[int]]  # jobs that are validated again: the batches that they are in
    refused: dict[JobId, str]  # jobs that were refused when they were validated again, and why

    def __init__(
        self,
        ledger: Ledger,
        hooks: Hooks,
        admissions: Admissions[Candidate],
        presentation: JobPresentation,
        limits: UserLimits,
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._hooks = hooks
        self._admissions = admissions
        self._presentation = presentation
        self.batches = {}
        self.last_batch = 0
        self.again = {}
        self.refused = {}

    def submit(self, request: Request) -> None:
        """job-manager.submit: answered with [id, reason] of refused jobs, when all are decided."""
        jobs = payloads.NEW_JOBS.read(request).jobs
        if not jobs:
            self._ledger.send(respond(request, payloads.REFUSALS.write(payloads.Refusals([]))))
            return
        self.last_batch += 1
        batch = self.last_batch
        self.batches[batch] = Batch(request, len(jobs))
        for new in jobs:
            self._decide(New(new, batch), new.userid, new.jobspec)

    def forget(self, sender: str) -> None:
        """Do not answer a job-ingest that is gone; its jobs are decided (6.disconnect.2)."""
        for batch in self.batches.values():
            batch.request = unanswered(batch.request, sender)

    def found(self, message: UserFound) -> None:
        """Take the answer of the user database: go on with the jobs of this user."""
        for candidate, admission in self._admissions.found(message):
            self._go_on(candidate, admission)

    def room(self, request: Request) -> None:
        """job-manager.submit-room: for each jobspec why there is no room, null if there is."""
        asked = payloads.ROOM_WANTED.read(request)
        refusals = self._limits.refusals(asked.userid, asked.jobspecs)
        self._ledger.answer_at_once(
            respond(request, payloads.ROOM.write(payloads.SubmitRoom(refusals)))
        )

    def revalidate(self, job: ActiveJob, refusal: str | None) -> None:
        """Validate a job again, or refuse it, if there is a reason already.

        Its submission was not answered when the job manager stopped.
        """
        if refusal is None:
            self._decide(Unacknowledged(job.id), job.userid, job.kept_jobspec.json)
        else:
            self.decided_again(job, refusal)

    def _decide(self, candidate: Candidate, userid: int, jobspec: dict[str, Any]) -> None:
        admission = self._admissions.decide(candidate, userid, system_of(jobspec))
        if admission is not None:
            self._go_on(candidate, admission)

    def _go_on(self, candidate: Candidate, admission: Admission) -> None:
        match candidate:
            case New(job, batch):
                self._admit(job, batch, admission)
            case Unacknowledged(jobid):
                self._readmit(jobid, admission)
            case _:
                assert_never(candidate)

    def _readmit(self, jobid: int, admission: Admission) -> None:
        job = self._ledger.jobs.get(jobid)
        if job is None or job.state != JobState.NEW:
            self._answer_again(jobid)  # it was canceled meanwhile
            return
        if admission.refusal is not None:
            self.decided_again(job, admission.refusal)
            return
        if not job.jobspec_updates:  # otherwise it has its queue, with what that required then
            self._update(job, admission.updates)
        self._presentation.admit(job, Readmit())

    def decided_again(self, job: ActiveJob, refusal: str | None) -> None:
        """Accept a job from before this start, or refuse it and remove its values."""
        if refusal is None:
            self._accept(job)
        else:
            self.refused[job.id] = refusal
            self._refuse(job)
        self._answer_again(job.id)

    def _answer_again(self, jobid: int) -> None:
        """Answer the submissions of a job that came while it was validated again."""
        for batch in self.again.pop(jobid, ()):
            self._admit_again(jobid, batch)

    def _admit_again(self, jobid: int, batch: int) -> None:
        """Answer for a submitted job from before this start; its decision may be lost."""
        job = self._ledger.get(jobid)
        if jobid in self.refused:
            self._count(batch, (jobid, self.refused[jobid]))
        elif job is None:
            self._ledger.look_for(jobid, batch)
        elif job.state == JobState.NEW:
            self.again.setdefault(jobid, []).append(batch)
        else:
            self._count(batch)

    def looked_for(self, jobid: int, batch: int, *, was_over: bool) -> None:
        """Answer for a submitted job that `was_over`, or that was refused or purged."""
        if was_over:
            self._count(batch)
        else:
            self._ledger.unstore(jobid)
            self._count(batch, (jobid, _was_used(jobid)))

    def _update(self, job: ActiveJob, updates: dict[str, Any]) -> None:
        """Log what the queue adds to the jobspec, before plugins see it (33.assignment.3)."""
        if updates:
            self._ledger.log_now(job, JobEvent.JOBSPEC_UPDATE, updates)

    def _admit(self, new: NewJob, batch: int, admission: Admission) -> None:
        if self._ledger.is_from_before(new.id):
            self._admit_again(new.id, batch)
            return
        if self._ledger.was_used(new.id):
            self._count(batch, (new.id, _in_use(new.id)))
            return
        jobspec, system = redacted(new.jobspec), system_of(new.jobspec)
        is_owners = new.userid == self._ledger.owner
        stored = 0 if is_owners else len(msgspec.json.encode(new.jobspec))
        demand = payloads.Demand(len(jobspec), stored, costs_of(system))
        refusal = self._limits.refusal(new.userid, demand)
        if refusal is not None:
            self.batches[batch].full.add(new.userid)
            self._ledger.unstore(new.id)
            self._count(batch, (new.id, refusal))
            return
        event = submit_event(new.t_submit, new.userid, new.urgency, new.flags)
        kept = self._ledger.jobspecs.keep(new.userid, jobspec)
        job = ActiveJob(self._ledger.begun(new.id, event), kept)
        self._ledger.admit(job, event, stored)
        if admission.refusal is not None:
            self._ledger.discard(job)
            self._count(batch, (new.id, admission.refusal))
            return
        self._update(job, admission.updates)
        self._presentation.admit(job, Admit(batch))

    def decided(self, job: ActiveJob, batch: int, refusal: str | None) -> None:
        """Accept a new job, or refuse it."""
        if refusal is None:
            self._accept(job)
            self._count(batch)
        else:
            self._refuse(job)
            self._count(batch, (job.id, refusal))

    def _count(self, number: int, error: tuple[int, str] | None = None) -> None:
        """Count a decision on a job of a batch; answer the request after the last."""
        batch = self.batches[number]
        batch.open -= 1
        if error is not None:
            batch.errors.append(error)
        if batch.open == 0:
            del self.batches[number]
            refusals = payloads.Refusals(batch.errors, sorted(batch.full) or None)
            self._ledger.send(respond(batch.request, payloads.REFUSALS.write(refusals)))

    def _accept(self, job: ActiveJob) -> None:
        self._ledger.log_now(job, JobEvent.VALIDATE)

    def _refuse(self, job: ActiveJob) -> None:
        self._ledger.discard(job)
        self._hooks.notify(DESTROY, job)


def _in_use(jobid: int) -> str:
    return f"job id {jobid} is already in use"


def _was_used(jobid: int) -> str:
    """Return the error for a job that an earlier job manager has removed; why is not known."""
    return f"job id {jobid} was used before, by a job that was refused or purged"


def submitted_in(messages: Iterable[Any]) -> set[int]:
    """Return the jobs that these messages submit; errors in a message are found later."""
    jobids: set[int] = set()
    for message in messages:
        if isinstance(message, Request) and message.topic == topics.JOB_SUBMIT:
            with suppress(FluxError):
                jobids |= payloads.jobids_in(message)
    return jobids
