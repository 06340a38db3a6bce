"""Submission: jobs that ingest has stored become active, or are refused with a reason.

Ingest has written the jobspec and the submit event by the time a job comes here (RFC 16); a job
that is refused leaves no trace in its eventlog, and ingest removes what it stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.hooks.introduction import Introduction
from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.cores.job_manager.requests.entrance import Admission, Entrance
from flux_trio.cores.job_manager.requests.user_limits import UserLimits
from flux_trio.messages import FluxError, Request, expect_payload, respond, topics
from flux_trio.protocols import (
    DESTROY,
    URGENCY_MAX,
    URGENCY_MIN,
    JobEvent,
    JobState,
    submit_event,
)


class NewJob(msgspec.Struct, gc=False):
    """One entry of a job-manager.submit request; `t_submit` in seconds since the Unix epoch."""

    id: int
    userid: int
    urgency: Annotated[int, msgspec.Meta(ge=URGENCY_MIN, le=URGENCY_MAX)]
    t_submit: float
    flags: int
    jobspec: dict[str, Any]


class Submit(msgspec.Struct):
    """The job-manager.submit request."""

    jobs: list[NewJob]


class SubmitRoom(msgspec.Struct):
    """The job-manager.submit-room request: a user, and the bytes of jobspecs to be submitted."""

    userid: int
    sizes: list[int]


class _Batch:
    """One submit request, until each of its jobs has been validated."""

    def __init__(self, request: Request, jobs: int) -> None:
        self.request = request
        self.open = jobs
        self.errors: list[tuple[int, str]] = []
        self.full: set[int] = set()  # users who have met a limit


class Submission:
    """Takes in new jobs."""

    def __init__(
        self,
        ledger: Ledger,
        hooks: Hooks,
        entrance: Entrance,
        introduction: Introduction,
        limits: UserLimits,
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._hooks = hooks
        self._entrance = entrance
        self._introduction = introduction

    def submit(self, request: Request) -> None:
        """job-manager.submit: answered with [id, reason] of those refused, when all are decided."""
        jobs = expect_payload(request, Submit).jobs
        batch = _Batch(request, len(jobs))
        for new in jobs:
            system = system_of(new.jobspec)
            self._entrance.decide(new.userid, system, partial(self._admit, new, batch))
        if not jobs:
            self._ledger.send(respond(request, {"errors": []}))

    def room(self, request: Request) -> None:
        """job-manager.submit-room: {"refusals"}, for each jobspec the reason or null for room."""
        asked = expect_payload(request, SubmitRoom)
        refusals = self._limits.refusals(asked.userid, asked.sizes)
        self._ledger.answer_at_once(respond(request, {"refusals": refusals}))

    def revalidate(self, job: ActiveJob) -> None:
        """A job that was stored but not acknowledged when the job manager stopped."""
        system = system_of(job.kept_jobspec.json)
        self._entrance.decide(job.userid, system, partial(self._readmit, job))

    def _readmit(self, job: ActiveJob, admission: Admission) -> None:
        if job.state != JobState.NEW:
            return  # it was canceled while the user database was asked

        def decided(refusal: str | None) -> None:
            if refusal is None:
                self._accept(job)
            else:
                self._refuse(job)
                self._ledger.remove(job)

        if admission.refusal is not None:
            decided(admission.refusal)
            return
        self._update(job, admission.updates)
        self._introduction.admit(job, decided)

    def _update(self, job: ActiveJob, updates: dict[str, Any]) -> None:
        """What its queue adds to the jobspec, before plugins see it (33.assignment.3)."""
        if updates and updates != job.jobspec_updates:
            self._ledger.log_now(job, JobEvent.JOBSPEC_UPDATE, updates)

    def _admit(self, new: NewJob, batch: _Batch, admission: Admission) -> None:
        if self._ledger.was_used(new.id):
            self._decided(batch, (new.id, f"job id {new.id} is already in use"))
            return
        jobspec = redacted(new.jobspec)
        refusal = self._limits.refusal(new.userid, len(jobspec))
        if refusal is not None:
            batch.full.add(new.userid)
            self._decided(batch, (new.id, refusal))
            return
        job = ActiveJob(new.id, self._ledger.jobspecs.keep(new.userid, jobspec))
        event = submit_event(new.t_submit, new.userid, new.urgency, new.flags)
        self._ledger.admit(job, event)
        if admission.refusal is not None:
            self._ledger.discard(job)
            self._decided(batch, (new.id, admission.refusal))
            return
        self._update(job, admission.updates)

        def decided(refusal: str | None) -> None:
            if refusal is None:
                self._accept(job)
                self._decided(batch)
            else:
                self._refuse(job)
                self._decided(batch, (job.id, refusal))

        self._introduction.admit(job, decided)

    def _decided(self, batch: _Batch, error: tuple[int, str] | None = None) -> None:
        batch.open -= 1
        if error is not None:
            batch.errors.append(error)
        if batch.open == 0:
            errors = [list(each) for each in batch.errors]
            payload: dict[str, Any] = {"errors": errors}
            if batch.full:
                payload["full"] = sorted(batch.full)
            self._ledger.send(respond(batch.request, payload))

    def _accept(self, job: ActiveJob) -> None:
        self._ledger.log_now(job, JobEvent.VALIDATE)

    def _refuse(self, job: ActiveJob) -> None:
        self._ledger.discard(job)
        self._hooks.tell(DESTROY, job)


def system_of(jobspec: dict[str, Any]) -> dict[str, Any]:
    """`attributes.system`, empty for what is no jobspec: ingest lets none pass."""
    attributes = jobspec.get("attributes")
    system = attributes.get("system") if isinstance(attributes, dict) else None
    return system if isinstance(system, dict) else {}


def redacted(jobspec: dict[str, Any]) -> bytes:
    """A jobspec as JSON, without the environment that only the shells need (RFC 27, Alloc)."""
    system = system_of(jobspec)
    if "environment" in system:
        rest = {key: value for key, value in system.items() if key != "environment"}
        jobspec = jobspec | {"attributes": jobspec["attributes"] | {"system": rest}}
    return msgspec.json.encode(jobspec)


def redacted_bytes(jobspec: bytes) -> bytes:
    """The same for a jobspec that is JSON already."""
    return redacted(msgspec.json.decode(jobspec))


class _Id(msgspec.Struct):
    id: int


class _Ids(msgspec.Struct):
    jobs: list[_Id]


def submitted_in(messages: Iterable[Any]) -> set[int]:
    """The jobs that these messages submit; what is wrong with one is told when it is taken up."""
    jobids: set[int] = set()
    for message in messages:
        if isinstance(message, Request) and message.topic == topics.JOB_SUBMIT:
            with suppress(FluxError):
                jobids |= {job.id for job in expect_payload(message, _Ids).jobs}
    return jobids
