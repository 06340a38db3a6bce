"""The expirations of jobs: what R and resource-update events say, and what the execution service
can know of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.jobspecs import system
from flux_trio.judge.engine.selector import (
    OWN,
    RECV,
    job_id,
    logged,
    name_of,
    no_key,
    noted,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.calls import client_of
from flux_trio.judge.views.execution import START, STARTS, Start, data_of
from flux_trio.judge.views.jobs import context_of
from flux_trio.judge.views.resource_sets import ALLOCATING, allocated, execution, number_of
from flux_trio.judge.views.traits import says
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

End = tuple[Any, Any, Place, Place]


def _ends(record: Record, _seen: Seen) -> Iterable[tuple[int, Any]]:
    if record.message is not None:
        return [(r.jobid, r.value) for r in allocated(record) if r.jobid is not None]
    found = job_id(record)
    return [] if found is None else [(found, None)]


def _fold_end(had: End | None, r: Any, record: Record, _seen: Seen) -> End | None:
    """As R has it, None for an absent key; as it is now; where that was said; where R was."""
    if r is not None:
        end = number_of(r, "expiration") if "expiration" in execution(r) else None
        return (end, end, record.n, record.n)
    match name_of(record):
        case "resource-update" if had is not None:
            return (had[0], context_of(record).get("expiration", had[1]), record.n, had[3])
        case "clean":
            return None
    return had


END: Final = view(
    "expiration", ALLOCATING, logged("resource-update", "clean"), parts=_ends, fold=_fold_end
)
"""By job id: the expiration in its R, the expiration now, the record that said so, and the record
that has R."""

ROUNDING_S: Final = 1.0
"""Seconds by which an end may be later than the duration says: it may be given in whole seconds."""


class TimeLimit(Live, frozen=True, gc=False):
    """When a job began, and how long it may run; 0.0 if that is not known, or there is no limit."""

    starttime: float = 0.0
    """As its R has it, in seconds since the Unix epoch."""
    duration: float = 0.0
    """The longest that its jobspec has had, in seconds: the scheduler may still agree to an end
    that goes by a duration of before, when the duration is updated again. A request that waited for
    a commit may have the duration of before an update.
    """


def _limits(record: Record, _seen: Seen) -> Iterable[tuple[int, Any]]:
    return [(r.jobid, r.value) for r in allocated(record) if r.jobid is not None]


def _fold_limit(had: TimeLimit | None, r: Any, record: Record, _seen: Seen) -> TimeLimit | None:
    if r is not None:
        return (had or TimeLimit()).but(starttime=_seconds(number_of(r, "starttime")))
    if topic_of(record) == topics.SCHED_ALLOC:
        said = system(payload(record).get("jobspec")).get("duration")
    elif name_of(record) == "clean":
        return None
    elif _DURATION in context_of(record):
        said = context_of(record)[_DURATION]
    else:
        return had
    duration = _seconds(said)
    if had is None:
        return TimeLimit(duration=duration)
    has_limit = duration and had.duration
    return had.but(duration=max(duration, had.duration) if has_limit else 0.0)


_DURATION: Final = "attributes.system.duration"


def _seconds(value: Any) -> float:
    return float(value) if type(value) in (int, float) else 0.0


TIME_LIMITS: Final = view(
    "time limits",
    sent("request", topics.SCHED_ALLOC),
    logged("jobspec-update", "clean"),
    key=job_id,
    parts=_limits,
    many=ALLOCATING,
    fold=_fold_limit,
)
"""The `TimeLimit` of each job, by job id."""

_STEPS_MAX: Final = 64  # of the clock, that a job is judged by


def _fold_step(
    had: tuple[tuple[Place, float], ...] | None, _part: None, record: Record, _seen: Seen
) -> tuple[tuple[Place, float], ...]:
    by = (record.data or {}).get("by")
    step = by if isinstance(by, (int, float)) else 0.0
    return (*(had or ()), (record.n, step))[-_STEPS_MAX:]


CLOCK: Final = view("clock", noted(Kind.CLOCK), key=no_key, fold=_fold_step)
"""The steps of the wall clock, by record and in seconds; a step does not change a duration."""


def stepped(seen: Seen, since: int) -> float:
    """By how many seconds the wall clock was set since record `since`."""
    steps: tuple[tuple[int, float], ...] = seen.at(CLOCK, ()) or ()
    return sum(by for n, by in steps if n > since)


# --- what the execution service can know (readings: How exec learns of cancels)


def _fold_follower(_n: int | None, _part: None, record: Record, _seen: Seen) -> Place:
    return record.n if record.kind == RECV else 0


FOLLOWERS: Final = view(
    "journal followers",
    sent("request", topics.JOB_JOURNAL, topics.JOB_EVENTS),
    received("request", topics.JOB_JOURNAL, topics.JOB_EVENTS),
    key=client_of,
    fold=_fold_follower,
)
"""By client: the record at which the job manager received its request for the journal, by which
alone it learns of updates; 0 while that is on its way. What was logged before is not in it."""


class Updates(Live, frozen=True, gc=False):
    """How far the execution service knows of the resource-update events of a job."""

    npending: int
    """The number of events that the execution service has not received in the journal."""
    received: Place = 0
    """The record at which it received the last one."""


def _updated(record: Record, seen: Seen) -> Iterable[tuple[int, None]]:
    if record.message is None:
        found = job_id(record)
        return [] if found is None else [(found, None)]
    if record.party != seen.facts.exec_peer:
        return []
    events = payload(record).get("events")
    return [
        (each[0], None)
        for each in (events if isinstance(events, list) else ())
        if isinstance(each, list | tuple)
        and len(each) > 1
        and isinstance(each[0], int)
        and isinstance(each[-1], dict)
        and each[-1].get("name") == "resource-update"
    ]


def _fold_updates(had: Updates | None, _part: None, record: Record, _seen: Seen) -> Updates | None:
    if record.message is not None:
        return None if had is None else Updates(max(had.npending - 1, 0), record.n)
    if name_of(record) == "clean":
        return None
    return Updates(1) if had is None else Updates(had.npending + 1, had.received)


UPDATES: Final = view(
    "updates",
    logged("resource-update"),
    while_live(OWN, logged("clean"), received("response", topics.JOB_JOURNAL, topics.JOB_EVENTS)),
    parts=_updated,
    fold=_fold_updates,
)
"""The `Updates` of each job, by job id."""


class Raising(Live, frozen=True, gc=False):
    """The last exception that the execution service has sent about a job."""

    n: Place
    taken: Place
    """The record at which the service received the start request. It knows of no earlier change of
    the clock."""
    answered: Place
    """The record at which the service first answered the start. The service notices by itself when
    the clock is set, which may be before that is recorded: so a change before this record may have
    been made before the start."""
    is_uninformed: bool
    """Whether the service had not received the last resource-update event of the job."""
    is_timeout: bool = False


def _fold_raising(had: Raising | None, _part: None, record: Record, seen: Seen) -> Raising | None:
    if record.message is None:
        return None
    is_timeout = data_of(record).get("type") == "timeout"
    if had is not None and had.is_timeout and is_timeout:
        return had  # the answers to a repeated start tell the same again
    start: Start | None = seen.at(STARTS, job_id(record))
    taken = 0 if start is None else start.taken
    answered = record.n if start is None or not start.said else start.said[0][1]
    updates: Updates | None = seen.at(UPDATES, job_id(record))
    if updates is None or seen.at(FOLLOWERS, record.party) is None:
        return Raising(record.n, taken, answered, is_uninformed=False, is_timeout=is_timeout)
    # A time limit that comes while the start is not told yet is told right behind it.
    may_be_held = updates.received < answered and not seen.is_old(answered)
    is_informed = not (updates.npending or may_be_held) and seen.knew(
        record.party, updates.received
    )
    return Raising(record.n, taken, answered, is_uninformed=not is_informed, is_timeout=is_timeout)


RAISING: Final = view(
    "raising",
    sent("response", START, mark=says("exception")),
    while_live(OWN, logged("clean")),
    key=job_id,
    fold=_fold_raising,
    reads=(UPDATES, FOLLOWERS, STARTS),
)
"""The last exception (`Raising`) of each job's execution service, by job id; of several timeouts
the first one."""


def raised_by(seen: Seen, jobid: int | None) -> Raising:
    """Return the last exception of the job's execution service."""
    raising: Raising | None = seen.at(RAISING, jobid)
    return raising or Raising(0, 0, 0, is_uninformed=False)


def has_crossed(seen: Seen, jobid: int | None, said: int) -> bool:
    """Whether the execution service sent the last exception before it knew of the expiration in
    record `said`.
    """
    raising = raised_by(seen, jobid)
    return 0 < raising.n < said or raising.is_uninformed
