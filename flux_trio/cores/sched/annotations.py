"""What people are told about jobs that wait: RFC 27, Alloc Annotate.

Estimates change with every job that starts or ends, and most are out of date before anyone
looks: so what is new is told once in a while, and only what differs from what was told last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from flux_trio.cores.sched.context import Context
from flux_trio.cores.state import Part
from flux_trio.policies import Job, Shape

ANNOTATE_DELAY_S: Final = 0.1
"""From a change to its annotation: too short to be noticed, and spares jobs that start sooner."""

NO_ROOM: Final = "insufficient resources"
NO_NODES: Final = "insufficient resources: nodes that would do are offline"


class Told(NamedTuple):
    """The annotations of one job as the job manager has them."""

    reason_pending: str | None = None
    t_estimate: float | None = None


class Annotator(Part):
    """Keeps what was told of each job that waits, and what should be."""

    _told: dict[int, Told]
    _waiting: dict[int, tuple[Shape, float | None]]

    def __init__(self, context: Context) -> None:
        self._context = context
        self._told = {}
        self._waiting = {}

    def look(self, waiting: Mapping[Job, float | None]) -> bool:
        """Take what a policy says of those that wait; whether there is something to tell."""
        self._waiting = {job.id: (job.shape, start) for job, start in waiting.items()}
        if not waiting and not self._told:
            return False
        return self._wanted() != self._told

    def changes(self) -> list[tuple[int, dict[str, Any]]]:
        """What to tell: job ids with the `sched` keys that differ; null for one to remove."""
        wanted = self._wanted()
        told, self._told = self._told, wanted
        found = [(jobid, _difference(told.get(jobid), now)) for jobid, now in wanted.items()]
        found += [(jobid, _difference(told[jobid], None)) for jobid in told if jobid not in wanted]
        return [(jobid, keys) for jobid, keys in found if keys]

    def forget(self, jobid: int) -> dict[str, Any]:
        """The job waits no longer: the keys that are out of date, with null as value."""
        self._waiting.pop(jobid, None)
        told = self._told.pop(jobid, None)
        return {} if told is None else _difference(told, None)

    def forget_all(self) -> None:
        """Nobody has been told anything."""
        self._told, self._waiting = {}, {}

    def _wanted(self) -> dict[int, Told]:
        reasons = dict.fromkeys([shape for shape, _ in self._waiting.values()], "")
        pool = self._context.schedule.state.pool
        for shape in reasons:
            fits = pool.room_when_idle(shape, up_only=True) >= shape.count
            reasons[shape] = NO_ROOM if fits else NO_NODES
        return {
            jobid: Told(reasons[shape], start) for jobid, (shape, start) in self._waiting.items()
        }


def _difference(told: Told | None, now: Told | None) -> dict[str, Any]:
    before, after = (one or Told() for one in (told, now))
    return {
        key: new for key, old, new in zip(Told._fields, before, after, strict=True) if old != new
    }
