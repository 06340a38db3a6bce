"""What a simulated run is asked to do, and what both of its depths have in common."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from flux_trio.broker import LogEntry
from flux_trio.config import Config
from flux_trio.formats import ResourceSet
from flux_trio.instance import MODULES
from flux_trio.jobtap import Plugin, PluginError
from flux_trio.messages import FluxError
from flux_trio.sim.log_rows import WorkloadJob
from flux_trio.sim.metrics import JobFacts
from flux_trio.sim.replay import Progress
from flux_trio.trace import Kind, Sink, Trace

Depth: TypeAlias = Literal["cores", "stack"]
"""What runs: the pure cores in one loop, or the services of an instance under Trio."""

USERID: Final = 1000  # a fixed owner: traces are the same on every machine

# job-list is not used here, and would take a tenth of the time.
SIMULATED: Final = tuple(name for name in MODULES if name != "job-list")

Ran: TypeAlias = tuple[list[JobFacts], dict[str, float]]
"""The jobs in the order they were submitted, and each user's share (see `SimulationResult`)."""


@dataclass(frozen=True)
class SimulatedRun:
    """A run; `jobs` are in the order of submission, `userids` are those of their users."""

    jobs: Sequence[WorkloadJob]
    machine: ResourceSet
    config: Config
    userids: Mapping[str, int]
    plugins: Sequence[Plugin]
    sinks: Sequence[Sink]
    log_sinks: Sequence[Callable[[LogEntry], None]]
    seed: int
    progress: Progress | None

    @property
    def epoch(self) -> float:
        """When the instance starts, in seconds since the Unix epoch."""
        return self.jobs[0].submit_s if self.jobs else 0.0

    async def first_shares(
        self, names: Iterable[str], query: Callable[[str], Awaitable[Mapping[str, Any]]]
    ) -> dict[str, float]:
        """Return the shares of the first of these plugins whose query has them, by user name."""
        for name in names:
            try:
                queried = await query(name)
            except (FluxError, PluginError):
                continue  # its query fails
            if (shares := self._shares_in(queried)) is not None:
                return shares
        return {}

    def _shares_in(self, queried: Mapping[str, Any]) -> dict[str, float] | None:
        """Return the `shares` that a plugin's query has, by user name; None if it has none."""
        shares = queried.get("shares")
        if not isinstance(shares, dict):
            return None
        return {user: _share(shares.get(str(userid))) for user, userid in self.userids.items()}


def note_depth(trace: Trace, depth: Depth) -> None:
    """Say in the trace what runs."""
    trace.note(Kind.INSTANCE, "simulation", {"what": "simulated", "depth": depth})


def _share(value: object) -> float:
    """Return a user's share; 0.0 if a plugin's value is not a finite number from 0."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < math.inf else 0.0
