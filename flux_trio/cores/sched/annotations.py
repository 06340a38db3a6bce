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


class Outlook(NamedTuple):
    """The annotations of one job: why it waits, and when it may start."""

    reason: str | None = None
    start: Time | None = None


NO_OUTLOOK: Final = Outlook()


class Annotator(Part):
    """Keeps, for each job that waits, the annotations that were sent and those that hold now."""

    _sent: dict[JobId, Outlook]
    _waiting: dict[JobId, tuple[Shape, Time | None]]

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sent = {}
        self._waiting = {}

    @property
    def estimates(self) -> dict[int, float]:
        """The estimates that were sent and hold for the job manager."""
        return {jobid: sent.start for jobid, sent in self._sent.items() if sent.start is not None}

    def look(self, waiting: Mapping[Job, float | None]) -> bool:
        """Take from a policy when each job may start; return whether annotations have changed."""
        self._waiting = {job.id: (job.shape, start) for job, start in waiting.items()}
        if not waiting and not self._sent:
            return False
        return self._wanted() != self._sent

    def changes(self) -> list[tuple[int, SchedAnnotations]]:
        """Return the annotations to send, by job id."""
        wanted = self._wanted()
        sent, self._sent = self._sent, wanted
        pairs = [(jobid, sent.get(jobid, NO_OUTLOOK), now) for jobid, now in wanted.items()]
        pairs += [(jobid, sent[jobid], NO_OUTLOOK) for jobid in sent if jobid not in wanted]
        return [(jobid, difference(old, new)) for jobid, old, new in pairs if old != new]

    def start_of(self, jobid: int) -> float | None:
        """Return when the policy means to start a job; None without an estimate."""
        return self._waiting[jobid][1] if jobid in self._waiting else None

    def forget(self, jobid: int) -> Outlook:
        """Forget a job that waits no longer; return its annotations, which are out of date."""
        self._waiting.pop(jobid, None)
        return self._sent.pop(jobid, NO_OUTLOOK)

    def waits_again(self, jobid: int, sent: Outlook) -> None:
        """Take up again what `forget` returned: the job waits, and `sent` is still said of it."""
        self._sent[jobid] = sent

    def forget_all(self) -> None:
        """Forget all jobs: a new job manager knows no annotations."""
        self._sent, self._waiting = {}, {}

    def _wanted(self) -> dict[int, Outlook]:
        reasons = dict.fromkeys([shape for shape, _ in self._waiting.values()], "")
        pool = self._context.schedule.state.pool
        for shape in reasons:
            fits = pool.room_when_idle(shape, up_only=True) >= shape.count
            reasons[shape] = NO_ROOM if fits else NO_NODES
        return {
            jobid: Outlook(reasons[shape], start) for jobid, (shape, start) in self._waiting.items()
        }


def difference(sent: Outlook, now: Outlook, summary: str | UnsetType = UNSET) -> SchedAnnotations:
    """Return the annotations that change `sent` into `now`; `summary` names granted resources."""
    return SchedAnnotations(
        resource_summary=summary,
        reason_pending=UNSET if now.reason == sent.reason else now.reason,
        t_estimate=UNSET if now.start == sent.start else now.start,
    )
