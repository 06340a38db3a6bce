"""Updates of a job's jobspec: all keys of the request, or no key.

Plugins with a hook job.update.KEY decide who may update that key; a key without such a plugin is
refused. Unless they have validated it, the updated jobspec goes through job.validate. A pending job
then gets its `jobspec-update`, a new priority and a new request to the scheduler. If the duration
of a running job changes, the scheduler must first accept the new expiration (RFC 27, Expiration);
it accepts by ENOSYS, too, and a missing scheduler does not object. The texts of refusals are
flux-core's. Left out: feasibility.check; the scheduler denies jobs that can never run.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from flux_trio.config import DURATION_KEY
from flux_trio.cores.job_manager.calls import Absent
from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.user_jobs import event_bytes
from flux_trio.cores.job_manager.requests.user_limits import UserLimits, check_update_keys
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.job_manager.waiting import (
    AskUpdate,
    KeyAnswered,
    UpdateProposed,
    UpdateValidated,
    Updating,
)
from flux_trio.cores.state import Part
from flux_trio.editions import job_requests, rfc21
from flux_trio.formats import FormatError
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error, unanswered
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

ENDED_MEANWHILE: Final = "job has ended meanwhile"

_OVER = (JobState.CLEANUP, JobState.INACTIVE)


class Updates(Part):
    """Answers job-manager.update."""

    requests: dict[int, Request]  # those that are not answered, by the number of the update
    last_number: int

    def __init__(
        self, ledger: Ledger, hooks: Hooks, scheduler: SchedulerSide, limits: UserLimits
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._hooks = hooks
        self._scheduler = scheduler
        self.requests = {}
        self.last_number = 0

    def update(self, request: Request) -> None:
        """job-manager.update: update a job, for its user or the owner."""
        payload = job_requests.UPDATE.read(request)
        denied = "guests may only update their own jobs"
        absent = Absent(payload.id, inactive_errnum=Errno.EINVAL)
        job = self._ledger.asked_about(request, payload.id, denied, absent)
        if job is None:
            return
        if not request.is_owner and job.immutable:
            text = "job is immutable due to previous instance owner update"
            raise FluxError(Errno.EPERM, text)
        if not payload.updates:  # readings: Empty update
            raise FluxError(Errno.EINVAL, "expected at least one key with its value, got no update")
        check_update_keys(payload.updates)
        self._limits.check_event(request, job, event_bytes(payload.updates))
        try:
            check_updates(payload.updates, job.current_jobspec_bytes())
        except FormatError as error:
            text = f"one or more jobspec updates are invalid: {error}"
            raise FluxError(Errno.EINVAL, text) from None
        self._ledger.check_room()
        self.last_number += 1
        self.requests[self.last_number] = request
        updating = Updating(self.last_number, job.id, payload.updates, tuple(payload.updates))
        self._hooks.when_free(job, AskUpdate(updating))

    def forget(self, sender: str) -> None:
        """Do not answer a peer that is gone; its updates still go on (6.disconnect.2)."""
        self.requests = {
            number: unanswered(request, sender) for number, request in self.requests.items()
        }

    # --- plugins

    def ask(self, job: ActiveJob, updating: Updating) -> None:
        """Ask about one key after another, as long as plugins answer at once."""
        following: Updating | None = updating
        while following is not None:
            following = self._ask_next(job, following)

    def key_answered(self, job: ActiveJob, updating: Updating, answer: HookAnswer) -> None:
        """Take the answer of the plugins on one key."""
        following = self._follow_answer(updating, answer)
        if following is not None:
            self.ask(job, following)

    def _ask_next(self, job: ActiveJob, updating: Updating) -> Updating | None:
        if job.state in _OVER:
            self._refuse(updating, "job is ending")
            return None
        if updating.place == len(updating.keys):
            self._ask_validate(job, updating)
            return None
        key, request = updating.keys[updating.place], self.requests[updating.number]
        args = UpdateAsked(key, updating.updates[key], request.userid, request.is_owner)
        answer = self._hooks.ask(job, UPDATE_PREFIX + key, KeyAnswered(updating), args)
        return None if answer is None else self._follow_answer(updating, answer)

    def _follow_answer(self, updating: Updating, answer: HookAnswer) -> Updating | None:
        """Return the request at its next key; None if it is refused."""
        refusal = answer.reject or answer.error
        if refusal is None and not answer.handled:
            refusal = f"update of {updating.keys[updating.place]} not supported"
        if refusal is not None:
            self._refuse(updating, refusal)
            return None
        return msgspec.structs.replace(
            updating,
            place=updating.place + 1,
            further=updating.further | answer.updates if answer.updates else updating.further,
            is_validated=updating.is_validated and answer.validated,
        )

    def _ask_validate(self, job: ActiveJob, updating: Updating) -> None:
        updating = msgspec.structs.replace(updating, updates=updating.updates | updating.further)
        try:
            check_updated(updating.updates, job.current_jobspec_bytes())
        except FormatError as error:
            self._refuse(updating, str(error))
            return
        if updating.is_validated:
            self._check_expiration(job, updating)
            return
        view = job.snapshot_with(updating.updates)
        answer = self._hooks.ask(job, VALIDATE, UpdateValidated(updating), view=view)
        if answer is not None:
            self.validated(job, updating, answer)

    def validated(self, job: ActiveJob, updating: Updating, answer: HookAnswer) -> None:
        """Take the answer to job.validate."""
        refusal = answer.reject or answer.error
        if refusal is not None:
            self._refuse(updating, refusal)
        else:
            self._check_expiration(job, updating)

    # --- the scheduler

    def _check_expiration(self, job: ActiveJob, updating: Updating) -> None:
        """Ask the scheduler whether a running job may keep its resources until the new end."""
        if job.state != JobState.RUN or DURATION_KEY not in updating.updates:
            self.apply(job, updating, None)
            return
        if job.granted is None:
            self._refuse(updating, "unable to get job starttime: R cannot be read")
            return
        duration = updating.updates[DURATION_KEY]
        assert isinstance(duration, (int, float))  # the jobspec with it is valid
        # whole seconds, so that all three parties use the same number
        expiration = math.ceil(job.end_after(duration)) if duration else 0
        if duration and expiration + job.stepped <= self._ledger.now:
            self._refuse(updating, "requested duration places job expiration in the past")
            return
        proposal = UpdateProposed(updating, expiration)
        if not self._scheduler.propose_expiration(job, expiration, proposal):
            self.expiration_answered(proposal, accepted=True)

    def expiration_answered(self, proposal: UpdateProposed, *, accepted: bool) -> None:
        """Take the answer of the scheduler on the new expiration."""
        job = self._ledger.jobs.get(proposal.updating.jobid)
        if not accepted:
            self._refuse(proposal.updating, "scheduler refused expiration update")
        elif job is None:
            self._refuse(proposal.updating, ENDED_MEANWHILE)
        else:
            self._hooks.when_free(job, proposal)

    # --- the end

    def apply(self, job: ActiveJob, updating: Updating, expiration: int | None) -> None:
        """Log the updates, with the expiration that the scheduler has accepted."""
        if job.state in _OVER:
            self._refuse(updating, ENDED_MEANWHILE)
            return
        if job.state == JobState.RUN and DURATION_KEY in updating.updates and expiration is None:
            self._check_expiration(job, updating)  # the job has started meanwhile
            return
        request = self.requests.pop(updating.number)
        if updating.is_validated and request.is_owner and request.userid != job.userid:
            # otherwise the user could update a jobspec that no plugin has validated
            self._ledger.log(job, JobEvent.SET_FLAGS, rfc21.write(rfc21.SetFlags(["immutable"])))
        self._ledger.log(job, JobEvent.JOBSPEC_UPDATE, updating.updates)
        self._scheduler.jobspec_changed(job)
        if expiration is not None and job.state == JobState.RUN:
            context = rfc21.ResourceUpdate(expiration)
            self._ledger.log(job, JobEvent.RESOURCE_UPDATE, rfc21.write(context))
        self._ledger.send(respond(request))

    def _refuse(self, updating: Updating, text: str) -> None:
        request = self.requests.pop(updating.number)
        self._ledger.send(respond_error(request, Errno.EINVAL, text))
