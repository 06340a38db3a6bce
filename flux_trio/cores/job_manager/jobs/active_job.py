"""A job that is not over: what its eventlog tells, and what the job manager keeps beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from flux_trio.config import QUEUE_KEY
from flux_trio.cores.job_index import ended_at, mark_of, name_mark
from flux_trio.cores.job_manager.hooks.waiting import Deferred, LogEvent
from flux_trio.cores.job_manager.jobs.jobspecs import KeptJobspec
from flux_trio.editions import rfc21
from flux_trio.editions.journal import Ended
from flux_trio.formats import (
    FormatError,
    ResourceSet,
    apply_update,
    parse_eventlog,
)
from flux_trio.protocols import (
    ASKING,
    HOLDING,
    HOOK,
    ExecState,
    Job,
    JobEvent,
    JobState,
    Rare,
)

_LEFT_BY_NO_EXCEPTION = (JobState.NEW, JobState.CLEANUP, JobState.INACTIVE)


class ActiveJob(Job):
    """A job that is not over, with what the job manager keeps beside its eventlog."""

    __slots__ = (
        "asked",  # the state that plugins know it to be in
        "deferred",  # what waits for a hook's answer, in order; None: nothing does
        "hook",  # where it stands with plugins; only `Ledger.step_hook` changes it
        "introduced",  # plugins were asked about it in this life, and have not been told of its end
        "kept_jobspec",  # without the environment, as submitted
        "question",  # number of the last question about its state, whose answer alone counts
        "ticket",  # of the last question to plugins
    )

    allocating = Rare[int | None](None)
    """The number of the commit of R that a plugin gave it, None when there is none."""
    granted = Rare[ResourceSet | None](None)
    """R, from the grant that stood on; None when there is none or it cannot be read."""
    stepped = Rare(0.0)
    """Seconds that the wall clock was set by since it got its resources, in this life."""
    sent_updates = Rare[dict[str, Any] | None](None)
    """The jobspec_updates that the last sched.alloc went by."""
    start = Rare(ExecState.IDLE)
    """Where the job stands with the execution service; only `ExecSide` changes it."""
    updated = Rare[tuple[dict[str, Any], bytes] | None](None)
    """`jobspec` with the updates beside it, once it was asked for."""
    waiting_for = Rare[str | None](None)
    """Why a plugin holds the job in its state, None when none does."""

    def __init__(self, jobid: int, jobspec: KeptJobspec) -> None:
        super().__init__(jobid)
        self.kept_jobspec = jobspec
        self.asked = self.state
        self.deferred: deque[Deferred] | None = None
        self.hook = HOOK.initial
        self.introduced = False
        self.question = 0
        self.ticket = 0

    @property
    def jobspec(self) -> bytes:
        """JSON without the environment, as submitted."""
        return self.kept_jobspec.text

    @property
    def queue(self) -> str | None:
        """Its queue (RFC 33); None for the anonymous one."""
        return self.queue_by(self.jobspec_updates)

    def queue_by(self, updates: dict[str, Any] | None) -> str | None:
        """What its queue is with these jobspec-updates."""
        return updates[QUEUE_KEY] if updates and QUEUE_KEY in updates else self.kept_jobspec.queue

    def current_jobspec(self) -> dict[str, Any]:
        """The jobspec object with every jobspec-update applied (RFC 33, Note).

        Not to be changed: jobs have parts of it in common.
        """
        jobspec = self.kept_jobspec.json
        for path, value in (self.jobspec_updates or {}).items():
            jobspec = apply_update(jobspec, path, value)
        return jobspec

    def current_jobspec_bytes(self) -> bytes:
        """The same as JSON."""
        if not self.jobspec_updates:
            return self.jobspec
        if self.updated is None or self.updated[0] is not self.jobspec_updates:
            self.updated = (self.jobspec_updates, msgspec.json.encode(self.current_jobspec()))
        return self.updated[1]

    def has_jobspec(self, updates: Mapping[str, Any]) -> bool:
        """Whether the jobspec is as `updates` would make it."""
        updated = self.current_jobspec()
        for path, value in updates.items():
            updated = apply_update(updated, path, value)
        return updated == self.current_jobspec()

    def with_updates(self, updates: dict[str, Any]) -> ActiveJob:
        """The job as it would be with these jobspec-updates; nobody may change it."""
        copy = ActiveJob.__new__(ActiveJob)
        for name in (*Job.__slots__, *ActiveJob.__slots__):
            setattr(copy, name, getattr(self, name))
        copy.rare = self.rare and dict(self.rare)
        copy.jobspec_updates = (self.jobspec_updates or {}) | updates
        return copy

    def resource_set(self) -> dict[str, Any] | None:
        """R without its scheduling key; None before RUN."""
        if self.granted is None or not self.was_posted(JobEvent.ALLOC):
            return None
        granted = self.granted
        if self.expiration is not None:
            granted = replace(granted, expiration=self.expiration)
        return granted.to_json()

    @property
    def is_asked(self) -> bool:
        """A hook is being asked: what comes for the job waits for the answer."""
        return self.hook in ASKING

    @property
    def is_held(self) -> bool:
        """Plugins hold it in its state, for the reason in `waiting_for`."""
        return self.hook in HOLDING

    @property
    def start_requested(self) -> bool:
        """The service has been asked to start it, or one has started it."""
        return self.started or self.start not in (ExecState.IDLE, ExecState.ABANDONED)

    def queued(self) -> list[tuple[str, dict[str, Any]]]:
        """Events that wait for a hook's answer, oldest first."""
        waiting = [each for each in self.deferred or () if isinstance(each, LogEvent)]
        return [(each.name, each.context or {}) for each in waiting]


def is_over(eventlog: str | None) -> bool:
    """Whether a stored eventlog is that of a finished job; False for one that is not there."""
    try:
        events = parse_eventlog(eventlog or "")
    except FormatError:
        return True  # nothing else can be done with such a job
    return bool(events) and events[-1].name == JobEvent.CLEAN


def revive(job: Job, jobspec: KeptJobspec) -> ActiveJob:
    """The job as the job manager keeps it; what ran before it may run now."""
    active = ActiveJob(job.id, jobspec)
    for name in Job.__slots__:
        setattr(active, name, getattr(job, name))
    active.asked = job.state
    return active


def ended(job: ActiveJob, t_inactive: float) -> Ended:
    """What is kept of a job that became inactive, seconds since the Unix epoch."""
    result = job.result
    assert result is not None, f"{job} is active"
    updated = job.jobspec_updates
    name = name_mark(job.current_jobspec_bytes()) if updated else job.kept_jobspec.name
    usec = ended_at(t_inactive)
    return Ended(job.id, usec, job.userid, int(result), name, mark_of(job.queue))


def ends_wait(job: ActiveJob, name: str, context: dict[str, Any] | None) -> bool:
    """Whether the event is an exception that moves `job`, whatever hook of it is being asked."""
    return rfc21.is_fatal(name, context) and job.state not in _LEFT_BY_NO_EXCEPTION
