"""Limits of one user: active jobs, bytes and cost of their jobspecs, bytes of events, the disk.

`[job-manager.user-limits]` sets the limits. The instance owner may have any number of jobs, and
twice the bytes of events, so that the owner can still log events of a job whose user is at the
limit. (readings: What a guest stores).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.jobspecs import system_of
from flux_trio.cores.job_manager.jobs.ledger import JOB_BYTES, Ledger
from flux_trio.cores.job_manager.queues.hindrances import Hindrances
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.state import Part
from flux_trio.editions import job_requests
from flux_trio.editions.submission import Demand
from flux_trio.formats import FormatError, check_costs, costs_of
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, FluxError, Request, respond
from flux_trio.protocols import PENDING, JobEvent, JobState

NOTE_BYTES_MAX: Final = 4096  # of the note, or the type, of an exception
UPDATE_KEY_CHARS_MAX: Final = 255  # of a key path, which is part of a hook's topic

OWNER_FACTOR: Final = 2


class UserLimits(Part):
    """Checks requests of users. Every refusal names the limit."""

    def __init__(self, ledger: Ledger, queues: Queues, hindrances: Hindrances) -> None:
        self._ledger = ledger
        self._queues = queues
        self._hindrances = hindrances

    def refusal(self, userid: int, jobspec: Demand) -> str | None:
        """Return why the user may not have one more active job; None if there is room."""
        return self.refusals(userid, [jobspec])[0]

    def refusals(self, userid: int, jobspecs: Iterable[Demand]) -> list[str | None]:
        """Return the same for several jobs; each counts for the jobs after it."""
        ledger = self._ledger
        jobs, size = ledger.users.of(userid)
        is_owner = userid == ledger.owner
        cost = 0 if is_owner else ledger.jobspec_costs.of_user(userid)
        stored = 0 if is_owner else ledger.stored_of_user(userid)
        no_room = None if is_owner else self._no_room()
        refusals = []
        for jobspec in jobspecs:
            refusal = (
                no_room
                or self._refusal(userid, jobs, size, jobspec)
                or self._too_costly(userid, cost, jobspec.costs)
                or self._too_large(userid, stored, jobspec)
            )
            refusals.append(refusal)
            if refusal is None:
                jobs, size = jobs + 1, size + jobspec.size
                cost += sum(jobspec.costs.values())
                stored += jobspec.stored + JOB_BYTES
        return refusals

    def stored(self, request: Request) -> None:
        """job-manager.stored: count what is in the guest namespace of a guest's active job."""
        told = job_requests.STORED.read(request)
        job = self._ledger.jobs.get(told.id)
        if job is not None and job.userid != self._ledger.owner:
            self._ledger.namespace_bytes.put(job.userid, job.id, told.nbytes)
        self._ledger.answer_at_once(respond(request))

    def store_room(self, request: Request) -> None:
        """job-manager.store-room: count what a guest is about to write in a guest namespace.

        Raises FluxError(ENOSPC) if it is too much.
        """
        asked = job_requests.STORE_ROOM.read(request)
        if (no_room := self._no_room()) is not None:
            raise FluxError(Errno.ENOSPC, no_room)
        job = None if asked.id is None else self._ledger.jobs.get(asked.id)
        if job is not None and job.userid != self._ledger.owner:
            counted, before = self._ledger.namespace_bytes, self._ledger.stored_of_user(job.userid)
            more = asked.nbytes - counted.of_job(job.id)
            most = self._queues.config.job_manager.user_limits.stored_bytes
            if most and before + more > most:
                text = (
                    f"job-{job.id}: {before} bytes are stored of the active jobs of user "
                    f"{job.userid}, and with {more} more they exceed user-limits.stored-bytes, "
                    f"{most}"
                )
                raise FluxError(Errno.ENOSPC, text)
            counted.put(job.userid, job.id, asked.nbytes)
        self._ledger.answer_at_once(respond(request))

    def beyond_cost(self, jobs: Iterable[ActiveJob]) -> dict[JobId, str]:
        """Return the jobs that were read back and whose jobspecs cost too much, and why.

        An earlier version, or another configuration, has accepted them. The oldest jobs of a user
        stay, and those that have resources.
        """
        before: dict[int, int] = {}
        found = {}
        for job in jobs:
            if job.kept_jobspec.cost:
                system, cost = system_of(job.kept_jobspec.json), before.get(job.userid, 0)
                reason = _costly_key(system) or self._too_costly(job.userid, cost, costs_of(system))
                if reason is not None and job.state & (JobState.NEW | PENDING):
                    found[job.id] = reason
                else:
                    before[job.userid] = cost + job.kept_jobspec.cost
        return found

    def _refusal(self, userid: int, jobs: int, size: int, jobspec: Demand) -> str | None:
        limits = self._queues.config.job_manager.user_limits
        if limits.jobs and jobs >= limits.jobs:
            return f"user {userid} has {jobs} active jobs, the most that user-limits.jobs allows"
        if limits.jobspec_bytes and size + jobspec.size > limits.jobspec_bytes:
            return (
                f"user {userid} has active jobs with {size} bytes of jobspecs: with this one they "
                f"exceed user-limits.jobspec-bytes, {limits.jobspec_bytes}"
            )
        return None

    def _too_costly(self, userid: int, before: int, costs: Mapping[str, int]) -> str | None:
        most = self._queues.config.job_manager.user_limits.jobspec_cost
        if not most or before + sum(costs.values()) <= most or userid == self._ledger.owner:
            return None
        keys = ", ".join(f"attributes.system.{key} costs {cost}" for key, cost in costs.items())
        return (
            f"{keys}: the jobspecs of the active jobs of user {userid} cost {before}, and with "
            f"this one they exceed user-limits.jobspec-cost, {most}"
        )

    def _too_large(self, userid: int, before: int, jobspec: Demand) -> str | None:
        most = self._queues.config.job_manager.user_limits.stored_bytes
        if not most or userid == self._ledger.owner:
            return None
        if before + jobspec.stored + JOB_BYTES <= most:
            return None
        environment = jobspec.stored - jobspec.size
        return (
            f"the jobspec has {jobspec.stored} bytes, attributes.system.environment {environment} "
            f"of them: {before} bytes are stored of the active jobs of user {userid}, and with "
            f"this one they exceed user-limits.stored-bytes, {most}"
        )

    def _no_room(self) -> str | None:
        """Return why nothing more is stored for guests; None if there is room."""
        most = self._queues.config.job_manager.user_limits.disk_free
        free = self._hindrances.disk_free
        if free is None or free >= most:
            return None
        return f"the disk has {free} bytes free: guests leave user-limits.disk-free, {most}"

    def _check_disk(self, request: Request) -> None:
        """Raise FluxError(ENOSPC) for a guest if nothing more is stored for guests."""
        if not request.is_owner and (no_room := self._no_room()) is not None:
            raise FluxError(Errno.ENOSPC, no_room)

    def check_event(
        self, request: Request, job: ActiveJob, size: int, *, is_fatal: bool = False
    ) -> None:
        """Count an event that a user requests. Raises FluxError(ENOSPC) beyond the limit.

        `size` is the `event_bytes` of its context. The exception that ends a job, which `is_fatal`,
        is always accepted.
        """
        counted = self._ledger.asked_bytes
        before = counted.of_job(job.id)
        if not is_fatal or job.exception is not None:
            self._check_room(request, job, before, size)
        counted.put(job.userid, job.id, before + size)

    def _check_room(self, request: Request, job: ActiveJob, before: int, size: int) -> None:
        """Raise FluxError(ENOSPC) if `size` more bytes go beyond a limit; the job has `before`."""
        self._check_disk(request)
        limits = self._queues.config.job_manager.user_limits
        most, most_of_user = limits.eventlog_bytes, limits.eventlog_bytes_sum
        if most and before + size > most * (OWNER_FACTOR if request.is_owner else 1):
            text = f"the eventlog of the job has {before} bytes of events that users asked for"
            raise FluxError(Errno.ENOSPC, f"{text}: user-limits.eventlog-bytes is {most}")
        of_user = self._ledger.asked_bytes.of_user(job.userid)
        if most_of_user and of_user + size > most_of_user and not request.is_owner:
            text = (
                f"the eventlogs of your active jobs have {of_user} bytes of events that users "
                f"asked for: user-limits.eventlog-bytes-sum is {most_of_user}"
            )
            raise FluxError(Errno.ENOSPC, text)

    def check_memo(self, job: ActiveJob, memo: dict[str, Any]) -> int:
        """Return the bytes of the job's memos with `memo`, and with memos that wait for a hook.

        Raises FluxError(ENOSPC) if they, or all memos of the user, are too large then.
        """
        limits = self._queues.config.job_manager.user_limits
        counted = self._ledger.memo_bytes
        memos = job.memo or {}
        for name, context in job.queued():
            if name == JobEvent.MEMO:
                memos = memos | context
        before, size = counted.of_job(job.id), _size(memos | memo)
        most = limits.memo_bytes
        if most and size > most:
            text = f"the memos of the job would have {size} bytes: user-limits.memo-bytes is {most}"
            raise FluxError(Errno.ENOSPC, text)
        most, of_user = limits.memo_bytes_sum, counted.of_user(job.userid) - before + size
        is_guests = job.userid != self._ledger.owner
        if most and is_guests and size > before and of_user > most:
            text = (
                f"the memos of the active jobs of user {job.userid} would have {of_user} bytes: "
                f"user-limits.memo-bytes-sum is {most}"
            )
            raise FluxError(Errno.ENOSPC, text)
        return size


def _costly_key(system: dict[str, Any]) -> str | None:
    """Return which key costs more than any jobspec may; None if there is no such key."""
    try:
        check_costs(system)
    except FormatError as error:
        return str(error.at("attributes.system"))
    return None


def check_note(kind: str, note: str) -> None:
    """Raise FluxError(EINVAL) for an exception with a type or note that is too long."""
    for what, text in (("type", kind), ("note", note)):
        size = len(text.encode(errors="surrogatepass"))
        if size > NOTE_BYTES_MAX:
            text = f"exception {what}: expected at most {NOTE_BYTES_MAX} bytes, got {size}"
            raise FluxError(Errno.EINVAL, text)


def check_update_keys(updates: dict[str, Any]) -> None:
    """Raise FluxError(EINVAL) for a key path that is too long."""
    longest = max(map(len, updates), default=0)
    if longest > UPDATE_KEY_CHARS_MAX:
        text = f"expected keys of at most {UPDATE_KEY_CHARS_MAX} characters, got one of {longest}"
        raise FluxError(Errno.EINVAL, text)


def _size(context: dict[str, Any]) -> int:
    return len(msgspec.json.encode(context))
