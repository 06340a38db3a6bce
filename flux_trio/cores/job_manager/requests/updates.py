"""Updates of a job's jobspec: all of the keys asked for, or nothing.

job.update.KEY plugins say which keys may be updated by whom; a key that none knows is refused. What
they have not validated goes through job.validate with the jobspec as it would be. A pending job
then gets its `jobspec-update`, and is prioritized and requested again. When the duration of a
running one changes, the scheduler is asked first whether the new expiration will do (RFC 27,
Expiration); ENOSYS means that it does not care, and so does its absence. Refusals are in
flux-core's words. Left out: feasibility.check; the scheduler denies what can never run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.ledger import Absent, ActiveJob, Ledger
from flux_trio.cores.job_manager.requests.user_limits import UserLimits, check_update_keys
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.formats import FormatError
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    expect_payload,
    respond,
    respond_error,
)
from flux_trio.protocols import (
    UPDATE_PREFIX,
    VALIDATE,
    HookAnswer,
    JobEvent,
    JobState,
    UpdateAsked,
    check_updated,
    check_updates,
)

DURATION: Final = "attributes.system.duration"

_OVER = (JobState.CLEANUP, JobState.INACTIVE)


class Update(msgspec.Struct):
    """The job-manager.update request: values by jobspec key path."""

    id: int
    updates: dict[str, Any]


class _Asked:
    """One request, while it is being decided."""

    def __init__(self, request: Request, job: ActiveJob, updates: dict[str, Any]) -> None:
        self.request = request
        self.job = job
        self.updates = updates
        self.keys: Iterator[str] = iter(list(updates))
        self.further: dict[str, Any] = {}  # what plugins want updated as well
        self.is_validated = True


class Updates:
    """Answers job-manager.update."""

    def __init__(
        self, ledger: Ledger, hooks: Hooks, scheduler: SchedulerSide, limits: UserLimits
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._hooks = hooks
        self._scheduler = scheduler

    def update(self, request: Request) -> None:
        """job-manager.update: by the owner, or for a job of theirs by its user."""
        payload = expect_payload(request, Update)
        job = self._ledger.jobs.get(payload.id)
        if job is None:
            self._ledger.refuse(request, Absent(payload.id, inactive_errnum=Errno.EINVAL))
            return
        _check_user(job, request)
        check_update_keys(payload.updates)
        self._limits.check_event(request, job, JobEvent.JOBSPEC_UPDATE, payload.updates)
        try:
            check_updates(payload.updates, job.current_jobspec_bytes())
        except FormatError as error:
            text = f"one or more jobspec updates are invalid: {error}"
            raise FluxError(Errno.EINVAL, text) from None
        self._ledger.check_room()
        asked = _Asked(request, job, payload.updates)
        self._hooks.when_free(job, partial(self._ask_next, asked))

    # --- what plugins say

    def _ask_next(self, asked: _Asked) -> None:
        key = next(asked.keys, None)
        if asked.job.state in _OVER:
            self._refuse(asked, "job is ending")
        elif key is None:
            self._ask_validate(asked)
        else:
            request = asked.request
            args = UpdateAsked(key, asked.updates[key], request.userid, request.is_owner)
            then = partial(self._heard, asked, key)
            self._hooks.ask(asked.job, UPDATE_PREFIX + key, then, args)

    def _heard(self, asked: _Asked, key: str, answer: HookAnswer) -> None:
        refusal = answer.reject or answer.error
        if refusal is None and not answer.handled:
            refusal = f"update of {key} not supported"
        if refusal is not None:
            self._refuse(asked, refusal)
            return
        asked.further |= answer.updates or {}
        asked.is_validated &= answer.validated
        self._ask_next(asked)

    def _ask_validate(self, asked: _Asked) -> None:
        asked.updates = asked.updates | asked.further
        try:
            check_updated(asked.updates, asked.job.current_jobspec_bytes())
        except FormatError as error:
            self._refuse(asked, str(error))
            return
        if asked.is_validated:
            self._check_expiration(asked)
            return
        view = asked.job.with_updates(asked.updates)
        then = partial(self._validated, asked)
        self._hooks.ask(asked.job, VALIDATE, then, view=view)

    def _validated(self, asked: _Asked, answer: HookAnswer) -> None:
        refusal = answer.reject or answer.error
        if refusal is not None:
            self._refuse(asked, refusal)
        else:
            self._check_expiration(asked)

    # --- what the scheduler says

    def _check_expiration(self, asked: _Asked) -> None:
        """A running job's scheduler is asked whether the new end of its resources will do."""
        job = asked.job
        if job.state != JobState.RUN or DURATION not in asked.updates:
            self._apply(asked, None)
            return
        if job.granted is None:
            self._refuse(asked, "unable to get job starttime")
            return
        duration = float(asked.updates[DURATION])
        # whole seconds on this message, so that all three parties go by the same number
        expiration = math.ceil(job.granted.starttime + duration) if duration else 0
        if duration and expiration + job.stepped <= self._ledger.now:
            self._refuse(asked, "requested duration places job expiration in the past")
            return
        then = partial(self._expiration_answered, asked, expiration)
        self._scheduler.propose_expiration(job, expiration, then)

    def _expiration_answered(self, asked: _Asked, expiration: int, accepted: bool) -> None:
        if accepted:
            self._hooks.when_free(asked.job, partial(self._apply, asked, expiration))
        else:
            self._refuse(asked, "scheduler refused expiration update")

    # --- the end

    def _apply(self, asked: _Asked, expiration: int | None) -> None:
        job, request = asked.job, asked.request
        if job.state in _OVER:
            self._refuse(asked, "job has ended meanwhile")
            return
        if job.state == JobState.RUN and DURATION in asked.updates and expiration is None:
            self._check_expiration(asked)  # it has started meanwhile
            return
        if asked.is_validated and request.is_owner and request.userid != job.userid:
            # or its user could go on from what no plugin has validated
            self._ledger.log(job, JobEvent.SET_FLAGS, {"flags": ["immutable"]})
        self._ledger.log(job, JobEvent.JOBSPEC_UPDATE, asked.updates)
        self._scheduler.jobspec_changed(job)
        if expiration is not None and job.state == JobState.RUN:
            self._ledger.log(job, JobEvent.RESOURCE_UPDATE, {"expiration": expiration})
        self._ledger.send(respond(request))

    def _refuse(self, asked: _Asked, text: str) -> None:
        self._ledger.send(respond_error(asked.request, Errno.EINVAL, text))


def _check_user(job: ActiveJob, request: Request) -> None:
    """Raise FluxError(EPERM) unless the sender may update this job."""
    if not request.is_owner and request.userid != job.userid:
        raise FluxError(Errno.EPERM, "guests may only update their own jobs")
    if not request.is_owner and job.immutable:
        text = "job is immutable due to previous instance owner update"
        raise FluxError(Errno.EPERM, text)
