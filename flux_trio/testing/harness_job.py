"""A job in the plugin harness: what became of it, and what may happen to it next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from flux_trio.formats import Event, format_fluid, job_key, parse_eventlog
from flux_trio.messages import topics
from flux_trio.protocols import Job, JobState, StartType, replay
from flux_trio.testing.stage import Stage


class Runs(Protocol):
    """Whoever runs async functions for a test."""

    def do(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run it, and all that follows from it."""


class HarnessJob:
    """One job. Each call returns when nothing more happens by itself."""

    def __init__(self, runs: Runs, stage: Stage, jobid: int) -> None:
        self._runs = runs
        self._stage = stage
        self.id = jobid

    def __repr__(self) -> str:
        return f"<HarnessJob {format_fluid(self.id, 'f58')} {self.state.name}>"

    # --- what became of it

    @property
    def events(self) -> list[Event]:
        """Its eventlog so far (RFC 21)."""
        payload = {"key": job_key(self.id, "eventlog")}
        return parse_eventlog(self._request(topics.KVS_LOOKUP, payload)["value"])

    @property
    def names(self) -> list[str]:
        """Its events' names."""
        return [event.name for event in self.events]

    def context(self, name: str) -> dict[str, Any]:
        """The context of its last event `name`."""
        return dict([event for event in self.events if event.name == name][-1].context or {})

    @property
    def state(self) -> JobState:
        """Where it is."""
        return self._folded.state

    @property
    def priority(self) -> int:
        """The last one it was given, 0 before."""
        return self._folded.priority

    @property
    def dependencies(self) -> set[str]:
        """What holds it in DEPEND, by description."""
        return set(self._folded.dependencies or ())

    @property
    def is_offered(self) -> bool:
        """Whether the scheduler has been asked for its resources."""
        return self.id in self._stage.offered

    @property
    def is_start_requested(self) -> bool:
        """Whether the execution service has been asked to start it, and it is not over."""
        return self.id in self._stage.starts

    @property
    def annotations(self) -> dict[str, Any]:
        """RFC 27, Alloc Annotate; plugins' too."""
        payload = {"id": self.id, "attrs": ["annotations"]}
        job = self._request(topics.LIST_ID, payload)["job"]
        return dict(job.get("annotations", {}))

    # --- what happens to it

    def grant(self) -> None:
        """The scheduler gives it whole nodes."""
        self._runs.do(self._stage.grant, self.id)

    def deny(self, note: str = "") -> None:
        """The scheduler says that it will never get any."""
        self._runs.do(self._stage.deny, self.id, note)

    def start(self) -> None:
        """Its shells have started."""
        self._runs.do(self._stage.executed, self.id, StartType.START)

    def finish(self, status: int = 0) -> None:
        """Its shells have ended, with a wait status; its resources are released."""
        self._runs.do(self._finish, status)

    def run(self) -> None:
        """All three: from SCHED to its end, unless a plugin holds it."""
        for step in (self.grant, self.start, self.finish):
            step()

    def cancel(self, note: str = "") -> None:
        """Its user cancels it."""
        self.raise_exception("cancel", 0, note)

    def raise_exception(self, kind: str, severity: int = 0, note: str = "") -> None:
        """An exception; severity 0 ends it."""
        payload = {"id": self.id, "type": kind, "severity": severity, "note": note}
        self._request(topics.JOB_RAISE, payload)

    def set_urgency(self, urgency: int) -> None:
        """The owner changes its urgency, 0 to 31."""
        self._request(topics.JOB_URGENCY, {"id": self.id, "urgency": urgency})

    def update(self, values: Mapping[str, Any], *, userid: int | None = None) -> None:
        """The owner, or `userid`, changes its jobspec by key. Raises FluxError."""
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
