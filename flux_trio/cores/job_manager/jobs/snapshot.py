"""A job as plugins see it: a frozen copy from one moment.

The job manager makes one for each question about a job, so it has to be cheap: it holds the fields
of the job as they are, and everything else is computed when a plugin reads it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flux_trio.cores.job_manager.jobs.jobspecs import KeptJobspec
from flux_trio.formats import ResourceSet, apply_updates
from flux_trio.formats.meanings import JobId, Stamp
from flux_trio.protocols import ExecState, JobEvent, JobFacts, JobState, Rare

UPDATED_MAX: Final = 64
"""Updated jobspecs that are kept as JSON for a while: plugins look at one several times."""


class ActiveFacts(JobFacts):
    """Facts that are computed from the fields that the job manager keeps of a job."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def kept_jobspec(self) -> KeptJobspec:
            """Without the environment, as submitted."""

        @property
        def jobspec_updates(self) -> dict[str, Any] | None:
            """By key path, of all jobspec-update events."""

        @property
        def start(self) -> ExecState:
            """Where the job stands with the execution service."""

    granted = Rare[ResourceSet | None](None)
    """R of the accepted grant; None without a grant, or if R cannot be read."""

    @property
    def start_requested(self) -> bool:
        """Return whether the service was asked to start the job, or one has started it."""
        return self.started or self.start not in (ExecState.IDLE, ExecState.ABANDONED)

    def current_jobspec(self) -> dict[str, Any]:
        """Return the jobspec with every jobspec-update applied (RFC 33, Note); do not modify it.

        Jobs share parts of it.
        """
        return _updated(self.kept_jobspec, self.jobspec_updates or {})

    def current_jobspec_bytes(self) -> bytes:
        """Return the updated jobspec as JSON."""
        if not self.jobspec_updates:
            return self.kept_jobspec.text
        return _updated_text(self.kept_jobspec, msgspec.json.encode(self.jobspec_updates))

    def submitted_jobspec_bytes(self) -> bytes:
        """Return the jobspec as JSON, as it was submitted."""
        return self.kept_jobspec.text

    def resource_set(self) -> dict[str, Any] | None:
        """Return R without its scheduling key; None before RUN."""
        if self.granted is None or not self.was_posted(JobEvent.ALLOC):
            return None
        granted = self.granted.with_scheduling(None)
        if self.expiration is not None:
            granted = replace(granted, expiration=self.expiration)
        return granted.to_json()


class JobSnapshot(ActiveFacts, msgspec.Struct, frozen=True, gc=False):
    """`JobView` as a value; the fields are those of `ActiveJob`."""

    id: JobId
    userid: int
    urgency: int
    priority: int
    state: JobState
    t_submit: Stamp
    flags: int
    status: int | None
    posted: int
    annotations: dict[str, Any] | None
    jobspec_updates: dict[str, Any] | None
    kept_jobspec: KeptJobspec
    rare: dict[str, Any] | None
    start: ExecState
    waiting: tuple[tuple[str, dict[str, Any]], ...]  # `queued`

    def queued(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return the events that waited for the answer of a hook, oldest first."""
        return self.waiting


def _updated(jobspec: KeptJobspec, updates: dict[str, Any]) -> dict[str, Any]:
    return apply_updates(jobspec.json, updates) if updates else jobspec.json


@lru_cache(maxsize=UPDATED_MAX)
def _updated_text(jobspec: KeptJobspec, updates: bytes) -> bytes:
    return msgspec.json.encode(_updated(jobspec, msgspec.json.decode(updates)))
