"""Updates of a job: for now its duration, before it runs and while it does.

A pending job gets a `jobspec-update` and is prioritized and requested again. For a running one the
scheduler is asked first whether the new expiration will do (RFC 27, Expiration); ENOSYS means that
it does not care, and so does its absence. Left out: other keys, which plugins will decide on; an
unknown one is refused.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import msgspec

from flux_trio.formats import FormatError, ResourceSet, format_fluid
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    expect_payload,
    respond,
    respond_error,
    topics,
)
from flux_trio.protocols import JobEvent, JobState, LinkState
from flux_trio.services.job_manager.ledger import ActiveJob, Ledger
from flux_trio.services.job_manager.scheduler_side import SchedulerSide

DURATION: Final = "attributes.system.duration"


class Update(msgspec.Struct):
    """The job-manager.update request: values by jobspec key path."""

    id: int
    updates: dict[str, Any]


class Updates:
    """Answers job-manager.update."""

    def __init__(self, ledger: Ledger, scheduler: SchedulerSide) -> None:
        self._ledger = ledger
        self._scheduler = scheduler

    def update(self, request: Request) -> None:
        """job-manager.update: by the owner, or for a pending job by its user."""
        payload = expect_payload(request, Update)
        job = self._find(payload.id, request)
        duration = _duration(payload.updates)
        if job.state == JobState.RUN:
            if not request.is_owner:
                text = "only the instance owner can update the duration of a running job"
                raise FluxError(Errno.EPERM, text)
            key = f"{format_fluid(job.id, 'kvs')}.R"
            found = partial(self._resources_found, request, duration)
            self._call(topics.KVS_LOOKUP, {"key": key}, found)
        elif job.state == JobState.CLEANUP:
            raise FluxError(Errno.EINVAL, "job is ending")
        else:
            self._ledger.log(job, JobEvent.JOBSPEC_UPDATE, {DURATION: duration})
            self._scheduler.jobspec_changed(job)
            self._ledger.send(respond(request))

    def _find(self, jobid: int, request: Request) -> ActiveJob:
        job = self._ledger.jobs.get(jobid)
        if job is None:
            inactive = jobid in self._ledger.inactive
            raise FluxError(
                Errno.EINVAL if inactive else Errno.ENOENT,
                "job is inactive" if inactive else "unknown job id",
            )
        if not request.is_owner and request.userid != job.userid:
            raise FluxError(Errno.EPERM, "guests can only update their own jobs")
        return job

    def _resources_found(self, request: Request, duration: float, response: Response) -> list[Any]:
        """R tells when the job's time began, and so when it is to end."""
        jobid = expect_payload(request, Update).id
        try:
            if response.errnum:
                raise FluxError(response.errnum, f"R of the job: {response.error_text}")
            value = expect_payload(response, _Value).value
            starttime = ResourceSet.parse(value.encode(), "R").starttime
        except (FluxError, FormatError) as error:
            self._ledger.send(respond_error(request, Errno.EINVAL, str(error)))
            return []
        # whole seconds on this message, so that all three parties go by the same number
        expiration = math.ceil(starttime + duration) if duration else 0
        answered = partial(self._expiration_answered, request, duration, expiration)
        if self._scheduler.link != LinkState.READY:
            # nothing may be sent to a scheduler that is lost (27.impl.14, 27.finalization.4)
            return answered(Response(topics.SCHED_EXPIRATION, errnum=Errno.ENOSYS))
        proposed = {"id": jobid, "expiration": expiration}
        self._call(topics.SCHED_EXPIRATION, proposed, answered)
        return []

    def _expiration_answered(
        self, request: Request, duration: float, expiration: int, response: Response
    ) -> list[Any]:
        job = self._ledger.jobs.get(expect_payload(request, Update).id)
        if response.errnum not in (0, Errno.ENOSYS):
            text = "scheduler refused expiration update"
            self._ledger.send(respond_error(request, Errno.EINVAL, text))
        elif job is None or job.state != JobState.RUN:
            self._ledger.send(respond_error(request, Errno.EINVAL, "job has ended meanwhile"))
        else:
            self._ledger.log(job, JobEvent.JOBSPEC_UPDATE, {DURATION: duration})
            self._ledger.log(job, JobEvent.RESOURCE_UPDATE, {"expiration": expiration})
            self._ledger.send(respond(request))
        return []

    def _call(self, topic: str, payload: dict[str, Any], then: Any) -> None:
        self._ledger.send(Request(topic, payload, self._ledger.calls.open(then)))


class _Value(msgspec.Struct):
    value: str


def _duration(updates: dict[str, Any]) -> float:
    """The new duration in seconds, 0 for none. Raises FluxError(EINVAL)."""
    for key in updates:
        if key != DURATION:
            raise FluxError(Errno.EINVAL, f"update of {key} is not supported")
    value = updates.get(DURATION)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        text = f"{DURATION}: expected a number of seconds from 0, got {value!r}"
        raise FluxError(Errno.EINVAL, text)
    return float(value)
