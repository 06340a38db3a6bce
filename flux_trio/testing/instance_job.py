"""A job of an instance under test: what became of it, and what its owner can do with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flux_trio.editions import flux_kvs
from flux_trio.editions.kvs import Lookup
from flux_trio.formats import EVENTLOG, Event, Jobspec, format_fluid, job_key, parse_eventlog
from flux_trio.messages import topics
from flux_trio.protocols import Job, JobState, replay


def plain_jobspec(
    jobspec: Jobspec | Mapping[str, Any] | None,
    attributes: Mapping[str, Any] | None,
    shape: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the RFC 14 object; without a jobspec, that of `true` with the attributes and shape.

    Raises TypeError for anything else, and for attributes or a shape beside a jobspec.
    """
    if jobspec is None:
        made = Jobspec.from_command(["true"], cwd="/", attributes=dict(attributes or {}), **shape)
        return made.to_json()
    if attributes or shape:
        names = ", ".join([*(["attributes"] if attributes else []), *shape])
        raise TypeError(f"expected a jobspec, or {names} for the default one, got both")
    if isinstance(jobspec, Jobspec):
        return jobspec.to_json()
    if isinstance(jobspec, Mapping):
        return dict(jobspec)
    raise TypeError(
        f"expected a Jobspec or an RFC 14 object, got {jobspec!r}; "
        "Jobspec.from_command makes one from a command"
    )


class Requests(Protocol):
    """Sends requests for a test."""

    def request(
        self, topic: str, payload: Mapping[str, Any] | None = None, *, userid: int | None = None
    ) -> dict[str, Any]:
        """Send a request as the owner or as `userid`; return the payload. Raises FluxError."""


class InstanceJob:
    """One job. Each call returns when nothing more happens by itself."""

    def __init__(self, requests: Requests, jobid: int) -> None:
        self._requests = requests
        self.id: int = jobid
        """The job id."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {format_fluid(self.id, 'f58')} {self.state.name}>"

    # --- its state

    @property
    def events(self) -> list[Event]:
        """The eventlog so far (RFC 21)."""
        asked = flux_kvs.look_up(Lookup(job_key(self.id, EVENTLOG)))
        found = self._requests.request(topics.KVS_LOOKUP, asked)
        return parse_eventlog(flux_kvs.value_of(found))

    @property
    def names(self) -> list[str]:
        """The names of the events so far."""
        return [event.name for event in self.events]

    def context(self, name: str) -> dict[str, Any]:
        """Return the context of the last event `name`."""
        return dict([event for event in self.events if event.name == name][-1].context or {})

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self._folded.state

    @property
    def priority(self) -> int:
        """The last assigned priority, 0 before the first."""
        return self._folded.priority

    @property
    def dependencies(self) -> set[str]:
        """The descriptions of the open dependencies."""
        return set(self._folded.dependencies or ())

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations of scheduler (RFC 27, Alloc Annotate) and plugins."""
        payload = {"id": self.id, "attrs": ["annotations"]}
        job = self._requests.request(topics.LIST_ID, payload)["job"]
        return dict(job.get("annotations", {}))

    # --- what users do

    def cancel(self, note: str = "") -> None:
        """Cancel the job as the owner."""
        self.raise_exception("cancel", 0, note)

    def raise_exception(self, kind: str, severity: int = 0, note: str = "") -> None:
        """Raise an exception as the owner; severity 0 ends the job."""
        payload = {"id": self.id, "type": kind, "severity": severity, "note": note}
        self._requests.request(topics.JOB_RAISE, payload)

    def set_urgency(self, urgency: int) -> None:
        """Change the urgency, 0 to 31, as the owner."""
        self._requests.request(topics.JOB_URGENCY, {"id": self.id, "urgency": urgency})

    def update(self, values: Mapping[str, Any], *, userid: int | None = None) -> None:
        """Change the jobspec by key, as the owner or `userid`. Raises FluxError."""
        payload = {"id": self.id, "updates": dict(values)}
        self._requests.request(topics.JOB_UPDATE, payload, userid=userid)

    @property
    def _folded(self) -> Job:
        return replay(self.id, self.events)


def check_job(instance: Requests, job: InstanceJob) -> None:
    """Raise TypeError for what is no job, as an id, and ValueError for one of another instance."""
    if not isinstance(job, InstanceJob):
        raise TypeError(
            f"expected an InstanceJob, as `submit` of the instance returns, got {job!r}"
        )
    if job._requests is not instance:
        raise ValueError(f"expected a job of this instance, got {job} of another one")
