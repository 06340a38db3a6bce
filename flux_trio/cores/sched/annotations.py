"""Annotations of jobs that wait: why they wait and when they may start (RFC 27, Alloc Annotate).

Estimates change with every job that starts or ends, and most are out of date before a user looks.
So annotations are sent at most once in ANNOTATE_DELAY_S, and only those that have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType

from flux_trio.cores.sched.context import Context
from flux_trio.cores.state import Part
from flux_trio.editions.rfc27 import SchedAnnotations
from flux_trio.formats.meanings import JobId, Time
from flux_trio.policies import Job, Shape

ANNOTATE_DELAY_S: Final = 0.1
"""Seconds from a change to its annotation. A job that starts sooner needs no annotation."""

NO_ROOM: Final = "insufficient resources"
NO_NODES: Final = "insufficient resources: nodes that would do are offline"


class Told(NamedTuple):
    """The annotations of one job: why it waits, and when it may start."""

    reason: str | None = None
    start: Time | None = None


NOTHING: Final = Told()


class Annotator(Part):
    """Keeps, for each job that waits, the annotations that were sent and those that hold now."""

    _told: dict[JobId, Told]
    _waiting: dict[JobId, tuple[Shape, Time | None]]

    def __init__(self, context: Context) -> None:
        self._context = context
        self._told = {}
        self._waiting = {}

    def look(self, waiting: Mapping[Job, float | None]) -> bool:
        """Take from a policy when each job may start; return whether annotations have changed."""
        self._waiting = {job.id: (job.shape, start) for job, start in waiting.items()}
        if not waiting and not self._told:
            return False
        return self._wanted() != self._told

    def changes(self) -> list[tuple[int, SchedAnnotations]]:
        """Return the annotations to send, by job id."""
        wanted = self._wanted()
        told, self._told = self._told, wanted
        pairs = [(jobid, told.get(jobid, NOTHING), now) for jobid, now in wanted.items()]
        pairs += [(jobid, told[jobid], NOTHING) for jobid in told if jobid not in wanted]
        return [(jobid, difference(old, new)) for jobid, old, new in pairs if old != new]

    def forget(self, jobid: int) -> Told:
        """Forget a job that waits no longer; return its annotations, which are out of date."""
        self._waiting.pop(jobid, None)
        return self._told.pop(jobid, NOTHING)

    def forget_all(self) -> None:
        """Forget all jobs: a new job manager knows no annotations."""
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


def difference(told: Told, now: Told, summary: str | UnsetType = UNSET) -> SchedAnnotations:
    """Return the annotations that change `told` into `now`; `summary` names granted resources."""
    return SchedAnnotations(
        resource_summary=summary,
        reason_pending=UNSET if now.reason == told.reason else now.reason,
        t_estimate=UNSET if now.start == told.start else now.start,
    )
