"""A job in the plugin harness, and the steps of scheduler and execution service with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from flux_trio.editions.rfc32 import StartType
from flux_trio.testing.instance_job import InstanceJob, Requests
from flux_trio.testing.stage import Stage


class Runs(Requests, Protocol):
    """Runs async functions for a test."""

    def do(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run the function; return when nothing more happens by itself."""


class HarnessJob(InstanceJob):
    """One job. Each call returns when nothing more happens by itself."""

    def __init__(self, runs: Runs, stage: Stage, jobid: int) -> None:
        super().__init__(runs, jobid)
        self._runs = runs
        self._stage = stage

    @property
    def is_offered(self) -> bool:
        """Whether an alloc request for the job is pending."""
        return self.id in self._stage.offered

    @property
    def is_start_requested(self) -> bool:
        """Whether the execution service was asked to start the job, which is not over."""
        return self.id in self._stage.starts

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

    async def _finish(self, status: int) -> None:
        await self._stage.executed(self.id, StartType.FINISH, status=status)
        await self._stage.executed(self.id, StartType.RELEASE)
