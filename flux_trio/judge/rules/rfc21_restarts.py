"""RFC 21, Flux-Restart Event: jobs in SCHED go back to PRIORITY at another job manager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flux_trio.judge.engine.rule import Finding, Rules
from flux_trio.judge.engine.selector import (
    EVENT,
    MODULE,
    OWN,
    job_id,
    logged,
    name_of,
    noted,
    payload,
    received,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.durable import DOUBTS, is_doubtful
from flux_trio.judge.views.eventlogs import broken_event
from flux_trio.judge.views.jobs import LIFE, SCHED, Life
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

RULES: Final = Rules()

SHUTDOWN: Final = f"{topics.JOB_MANAGER}.shutdown"
"""How flux-core's broker tells the module to end."""
FROM_SCHED: Final = ("priority", "alloc", "urgency", "jobspec-update")
"""The events that move a job from SCHED, or get it another priority there."""


def _restarted(record: Record, seen: Seen) -> Iterable[tuple[Any, Place | None]]:
    if record.kind == EVENT:
        return [(job_id(record), None)]
    if record.kind == MODULE and not seen.facts.is_manager_gone(record):
        return []
    lives: Mapping[Any, Life] = seen.all(LIFE)
    return [(job, life.since) for job, life in lives.items() if life.state == SCHED]


def _fold(_had: Place | None, since: Place | None, _record: Record, _seen: Seen) -> Place | None:
    return since


RESTARTED: Final = view(
    "restarted",
    noted(Kind.MODULE),
    received("request", SHUTDOWN),
    while_live(OWN, logged(*FROM_SCHED, "flux-restart", "exception", "clean")),
    parts=_restarted,
    fold=_fold,
    reads=(LIFE,),
)
"""By job id, of jobs whose job manager ended while they were in SCHED: the record since which they
were. A job is left out once the next job manager has logged an event that moves it.
"""


@RULES.judge(
    "21.events.19",
    logged("flux-restart"),
    while_live(RESTARTED, logged(*FROM_SCHED)),
    views=[RESTARTED, LIFE, DOUBTS],
)
def a_job_in_sched_is_restarted(record: Record, seen: Seen) -> Finding:
    if name_of(record) == "flux-restart":
        found = payload(record).get("context")
        return broken_event(record, f"expected no context, got {found!r}") if found else True
    since: Place | None = seen.at(RESTARTED, job_id(record))
    life: Life | None = seen.at(LIFE, job_id(record))
    if since is None or life is None or life.since != since or is_doubtful(seen, since):
        return None
    text = "expected a flux-restart event first, since the job manager has ended"
    return broken_event(record, f"{text} while it was in {life.state}", since)
