"""An active job: the state from its eventlog, and what the job manager keeps beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.config import QUEUE_KEY
from flux_trio.cores.job_index import ended_at, mark_of, name_mark
from flux_trio.cores.job_manager.jobs.jobspecs import KeptJobspec
from flux_trio.cores.job_manager.jobs.snapshot import ActiveFacts, JobSnapshot
from flux_trio.cores.job_manager.waiting import Deferred, LogEvent, Proposal, proposed_anew
from flux_trio.editions import rfc21
from flux_trio.editions.journal import Ended
from flux_trio.formats import Event, FormatError, ResourceSet, apply_updates, parse_eventlog
from flux_trio.formats.meanings import Stamp
from flux_trio.protocols import (
    ASKING,
    EXECUTION,
    HOLDING,
    HOOK,
    ExecState,
    Job,
    JobEvent,
    JobState,
    Rare,
)

BEGINNINGS: Final = (JobEvent.ALLOC, JobEvent.START)
"""Events from which a time limit counts, if R does not say from when (`ActiveJob.note_begin`)."""

_LEFT_BY_NO_EXCEPTION = (JobState.NEW, JobState.CLEANUP, JobState.INACTIVE)


class ActiveJob(ActiveFacts, Job):
    """An active job, with what the job manager keeps beside its eventlog."""

    __slots__ = (
        "asked",  # the state in which plugins were last asked about it
        "deferred",  # operations that wait for a hook's answer, in order, or None
        "hook",  # its hook state; only `Ledger.step_hook` changes it
        "introduced",  # whether plugins know it and were not notified of its end
        "kept_jobspec",  # without the environment, as submitted
        "question",  # number of the last question about its state; only the answer to it counts
        "stamped",  # timestamp of its last event
        "start",  # its state in RFC 32; only `ExecSide` changes it
        "ticket",  # of its open question to plugins, if there is one
    )

    kept_jobspec: KeptJobspec
    jobspec_updates: dict[str, Any] | None
    stamped: Stamp
    start: ExecState

    began = Rare[Stamp](0.0)
    """When its time limit began, if R does not say: at its event start, before that at alloc."""
    allocating = Rare[int | None](None)
    """The number of the commit of R from a plugin, if one is under way."""
    released_in_answer = Rare(0)
    """The ranks that the service has released in answer to the last start request, as bits."""
    stepped = Rare(0.0)
    """Seconds that the wall clock was set by since the job got resources, or since the start."""
    sent_updates = Rare[dict[str, Any] | None](None)
    """The jobspec_updates of the last sched.alloc."""
    waiting_for = Rare[str | None](None)
    """Why a plugin holds the job in its state, if one does."""

    def __init__(self, job: Job, jobspec: KeptJobspec) -> None:
        """Take over the fields of `job`, which is new or was read back."""
        for name in Job.__slots__:
            setattr(self, name, getattr(job, name))
        self.kept_jobspec = jobspec
        self.asked = self.state
        self.deferred: deque[Deferred] | None = None
        self.hook = HOOK.initial
        self.introduced = False
        self.question = 0
        self.stamped = self.t_submit
        self.start = EXECUTION.initial
        self.ticket = 0

    @property
    def jobspec(self) -> bytes:
        """JSON without the environment, as submitted."""
        return self.kept_jobspec.text

    @property
    def queue(self) -> str | None:
        """Return the job's queue (RFC 33); None is the anonymous queue."""
        updates = self.jobspec_updates
        return self.queue_by(updates) if updates else self.kept_jobspec.queue

    def queue_by(self, updates: dict[str, Any] | None) -> str | None:
        """Return the job's queue with these jobspec-updates."""
        return updates[QUEUE_KEY] if updates and QUEUE_KEY in updates else self.kept_jobspec.queue

    def has_jobspec(self, updates: Mapping[str, Any]) -> bool:
        """Return whether the jobspec already has the values of `updates`."""
        current = self.current_jobspec()
        return apply_updates(current, updates) == current

    def note_begin(self, event: Event, now: float) -> None:
        """Take an event alloc or start (readings: R without starttime).

        An event may be ahead of the clock, which was set back: see `Ledger`.
        """
        if self.granted is not None and not self.granted.starttime:
            self.began = min(event.timestamp, now)

    @property
    def agreed_expiration(self) -> float | None:
        """Return the expiration of the last resource-update; None if the one of R is in force.

        An update to which a scheduler has agreed may wait for the answer of a hook: it counts.
        """
        for each in reversed(self.deferred or ()):
            if isinstance(each, Proposal) and each.expiration is not None:
                return each.expiration
        return self.expiration

    def propose_anew(self) -> None:
        """Have a change that waits for the answer of a hook proposed to another scheduler.

        It is not in force, so that scheduler may refuse it, whoever has agreed before.
        """
        if self.deferred is not None:
            self.deferred = deque(proposed_anew(each) for each in self.deferred)

    def current_resources(self) -> ResourceSet | None:
        """Return R with the expiration of the last resource-update; None if R is not known."""
        if self.granted is None or self.expiration is None:
            return self.granted
        return self.granted.with_times(self.granted.starttime, self.expiration)

    def end_after(self, duration: float) -> float:
        """Return when a job with a known R reaches a time limit, in seconds since the epoch."""
        assert self.granted is not None
        return (self.granted.starttime or self.began) + duration

    def snapshot(self) -> JobSnapshot:
        """Return the job as it is now, for plugins."""
        return JobSnapshot(
            self.id,
            self.userid,
            self.urgency,
            self.priority,
            self.state,
            self.t_submit,
            self.flags,
            self.status,
            self.posted,
            self.annotations,
            self.jobspec_updates,
            self.kept_jobspec,
            self.rare and self.rare.copy(),
            self.start,
            tuple(self.queued()) if self.deferred else (),
        )

    def snapshot_with(self, updates: dict[str, Any]) -> JobSnapshot:
        """Return the job as it would be with these jobspec-updates, for plugins."""
        merged = (self.jobspec_updates or {}) | updates
        return msgspec.structs.replace(self.snapshot(), jobspec_updates=merged)

    def queued(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the events that wait for the answer of a hook, oldest first."""
        waiting = [each for each in self.deferred or () if isinstance(each, LogEvent)]
        return [(each.name, each.context or {}) for each in waiting]

    @property
    def is_asked(self) -> bool:
        """Return whether a hook is under way: events of the job wait for its answer."""
        return self.hook in ASKING

    @property
    def is_held(self) -> bool:
        """Return whether plugins hold the job in its state, for the reason in `waiting_for`."""
        return self.hook in HOLDING


def is_over(eventlog: str | None) -> bool:
    """Return whether a stored eventlog is that of a finished job; False for an absent one."""
    try:
        events = parse_eventlog(eventlog or "")
    except FormatError:
        return True  # a job with an invalid eventlog cannot be active
    return bool(events) and events[-1].name == JobEvent.CLEAN


def ended(job: ActiveJob, t_inactive: float, nbytes: int) -> Ended:
    """Return the index entry of a job; `t_inactive` is in seconds since the Unix epoch."""
    result = job.result
    assert result is not None, f"{job} is active"
    updated = job.jobspec_updates
    name = name_mark(job.current_jobspec_bytes()) if updated else job.kept_jobspec.name
    usec = ended_at(t_inactive)
    return Ended(job.id, usec, job.userid, int(result), name, mark_of(job.queue), nbytes)


def ends_wait(job: ActiveJob, name: str, context: dict[str, Any] | None) -> bool:
    """Return whether the event is an exception that ends `job` also while a hook is under way."""
    return rfc21.is_fatal(name, context) and job.state not in _LEFT_BY_NO_EXCEPTION
