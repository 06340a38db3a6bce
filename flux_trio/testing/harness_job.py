"""A job in the plugin harness: its state, and the steps that a test can take with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import Event, format_fluid, job_key, parse_eventlog
from flux_trio.messages import topics
from flux_trio.protocols import Job, JobState, replay
from flux_trio.testing.stage import Stage


class Runs(Protocol):
    """Runs async functions for a test."""

    def do(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run the function; return when nothing more happens by itself."""


class HarnessJob:
    """One job. Each call returns when nothing more happens by itself."""

    def __init__(self, runs: Runs, stage: Stage, jobid: int) -> None:
        self._runs = runs
        self._stage = stage
        self.id = jobid

    def __repr__(self) -> str:
        return f"<HarnessJob {format_fluid(self.id, 'f58')} {self.state.name}>"

    # --- its state

    @property
    def events(self) -> list[Event]:
        """The eventlog so far (RFC 21)."""
        payload = {"key": job_key(self.id, "eventlog")}
        return parse_eventlog(self._request(topics.KVS_LOOKUP, payload)["value"])

    @property
    def names(self) -> list[str]:
        """The names of the events so far."""
        return [event.name for event in self.events]

    def context(self, name: str) -> dict[str, Any]:
        """Return the context of the last event `name`."""
        return dict([event for event in self.events if event.name == name][-1].context or {})

    @property
    def state(self) -> JobState:
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
    def is_offered(self) -> bool:
        """Whether an alloc request for the job is pending."""
        return self.id in self._stage.offered

    @property
    def is_start_requested(self) -> bool:
        """Whether the execution service was asked to start the job, which is not over."""
        return self.id in self._stage.starts

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations of scheduler (RFC 27, Alloc Annotate) and plugins."""
        payload = {"id": self.id, "attrs": ["annotations"]}
        job = self._request(topics.LIST_ID, payload)["job"]
        return dict(job.get("annotations", {}))

    # --- steps

    def grant(self) -> None:
        """Let the scheduler allocate whole nodes to the job."""
        self._runs.do(self._stage.grant, self.id)

    def deny(self, note: str = "") -> None:
        """Let the scheduler deny the job's request."""
        self._runs.do(self._stage.deny, self.id, note)

    def start(self) -> None:
        """Let the execution service report that the shells have started."""
        self._runs.do(self._stage.executed, self.id, StartType.START)

    def finish(self, status: int = 0) -> None:
        """Let the shells end with a wait status, and release the resources."""
        self._runs.do(self._finish, status)

    def run(self) -> None:
        """Grant, start and finish: from SCHED to the end, unless a plugin holds the job."""
        for step in (self.grant, self.start, self.finish):
            step()

    def cancel(self, note: str = "") -> None:
        self.raise_exception("cancel", 0, note)

    def raise_exception(self, kind: str, severity: int = 0, note: str = "") -> None:
        """Raise an exception as the owner; severity 0 ends the job."""
        payload = {"id": self.id, "type": kind, "severity": severity, "note": note}
        self._request(topics.JOB_RAISE, payload)

    def set_urgency(self, urgency: int) -> None:
        """Change the urgency, 0 to 31, as the owner."""
        self._request(topics.JOB_URGENCY, {"id": self.id, "urgency": urgency})

    def update(self, values: Mapping[str, Any], *, userid: int | None = None) -> None:
        """Change the jobspec by key, as the owner or `userid`. Raises FluxError."""
        payload = {"id": self.id, "updates": dict(values)}
        self._runs.do(self._stage.request, topics.JOB_UPDATE, payload, userid)

    async def _finish(self, status: int) -> None:
        await self._stage.executed(self.id, StartType.FINISH, status=status)
        await self._stage.executed(self.id, StartType.RELEASE)

    @property
    def _folded(self) -> Job:
        return replay(self.id, self.events)

    def _request(self, topic: str, payload: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._runs.do(self._stage.request, topic, payload)
        return answer
