"""What gives the job manager a reason for an exception of a job (RFC 21, RFC 32)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.engine.selector import (
    ERROR,
    EVENT,
    HOOK,
    OWN,
    errnum,
    job_id,
    logged,
    name_of,
    noted,
    payload,
    received,
    while_live,
)
from flux_trio.judge.engine.view import Mark, Place, Seen, Trait, view
from flux_trio.judge.views.execution import START, STARTS, Start, is_open, kind_of_answer
from flux_trio.judge.views.jobs import context_of
from flux_trio.judge.views.traits import says
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

ANY_JOB: Final = "any job"
"""The key of RAISED under which reasons are that are not about one job."""


def _omits(record: Record, seen: Seen) -> bool:
    """Whether an answer to start comes without the one that has to come before it.

    The job manager raises an exception for a finish without start, and for a final release without
    finish or fatal exception (readings: Final release without finish).
    """
    start: Start | None = seen.states[STARTS].get(job_id(record))
    if errnum(record) or start is None or not is_open(start):
        return False
    match kind_of_answer(record):
        case "finish":
            return not start.reattach and not start.place("start", received=True)
        case "final":
            return not any(start.place(each, received=True) for each in ("finish", "fatal"))
    return False


OMITTING: Final = Mark(
    Trait("omitting", tuple(received("response", START)), _omits, lambda: (STARTS,)), bool
)


def _raised(record: Record, _seen: Seen) -> Iterable[tuple[Any, None]]:
    if record.kind == HOOK:
        plugin = payload(record).get("plugin")
        is_builtin = not isinstance(plugin, str) or plugin.startswith(".")
        return [] if is_builtin else [(ANY_JOB, None)]
    found = job_id(record)
    return [(ANY_JOB if found is None else found, None)]


def _fold(n: int | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    if record.kind != EVENT:
        return record.n
    if name_of(record) == "clean":
        return None
    return record.n if context_of(record).get("status") else n


RAISED: Final = view(
    "raised",
    received("request", topics.JOB_RAISE, topics.JOB_RAISEALL),
    received("response", START, mark=says("exception")),
    received("response", START, mark=ERROR),
    received("response", START, mark=OMITTING),
    logged("prolog-finish", "epilog-finish"),
    noted(Kind.HOOK),
    while_live(OWN, logged("clean")),
    parts=_raised,
    fold=_fold,
)
"""By job id: the record at which the job manager last got a reason for an exception of the job.

A reason is a job-manager.raise, an exception of the execution service, an answer that it has left
out, a prolog or epilog that has failed. Reasons that name no job are under ANY_JOB: raiseall,
errors that name no job, and questions to plugins that are not builtin, which may raise what they
like.
"""
