"""Views of RFC 27's order and limits: jobs that wait for sched.alloc, and recent requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from flux_trio.judge.engine.rule import Broken
from flux_trio.judge.engine.selector import (
    ERROR,
    EVENT,
    OWN,
    errnum,
    job_id,
    logged,
    message,
    no_key,
    payload,
    received,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.durable import DURABLE, Durable
from flux_trio.judge.views.granting import SCHED_JOBS
from flux_trio.judge.views.hook_answers import HOOK_ANSWERS, is_held
from flux_trio.judge.views.jobs import LIFE, SCHED, Life
from flux_trio.judge.views.queues import JOB_QUEUES, QUEUES, Queues, queue_of, queue_of_job, stop_of
from flux_trio.judge.views.scheduling import (
    ASKED,
    FINAL,
    LINK,
    asked_of,
    has_denial,
    is_eligible,
    is_pending,
    link_of,
)
from flux_trio.judge.views.suspending import SUSPENDING, may_be_suspended
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

LATE_S: Final = 1.0
"""Seconds. A job that has waited this long was surely known to the job manager when it sent the
request of a less urgent job. With a shorter wait the request may have been decided before the job
came, and sent later since it waited for a commit."""

SENDS_MAX: Final = 16


def _fold_outstanding(count: int | None, _part: None, record: Record, seen: Seen) -> int | None:
    found = message(record)
    if errnum(record):
        return None  # a fatality
    if isinstance(found, Request):
        if found.topic == topics.SCHED_ALLOC:
            return (count or 0) + 1
        gone = found.topic == topics.SCHED_HELLO or found.sender == seen.facts.scheduler
        return None if gone else count
    is_final = payload(record).get("type") in FINAL
    if count and is_final and is_pending(asked_of(seen, job_id(record)), seen):
        return count - 1
    return count


OUTSTANDING: Final = view(
    "outstanding",
    sent("request", topics.SCHED_ALLOC),
    received("response", topics.SCHED_ALLOC),
    received("response", topics.SCHED_FREE, mark=ERROR),
    received("request", topics.SCHED_HELLO, topics.JOB_MANAGER_DISCONNECT),
    key=no_key,
    fold=_fold_outstanding,
    reads=(ASKED, LINK),
)
"""A single number: the open sched.alloc requests of all jobs."""


ROOM: Final = view(
    "room",
    received("response", topics.SCHED_ALLOC),
    key=no_key,
    fold=lambda n, _part, record, _seen: record.n if payload(record).get("type") in FINAL else n,
    state=Place,
)
"""A single state: the record of the last final response, which makes room for another request."""


def _fold_newest(newest: int | None, _part: None, record: Record, seen: Seen) -> Place | None:
    asked = asked_of(seen, job_id(record))
    if not is_pending(asked, seen) or payload(record).get("type") not in FINAL:
        return newest
    return max(newest or 0, asked.alloc)


NEWEST_ANSWERED: Final = view(
    "newest answered",
    received("response", topics.SCHED_ALLOC),
    key=no_key,
    fold=_fold_newest,
    reads=(ASKED, LINK),
)
"""A single state: the record of the latest sched.alloc request that has its final response."""


def _fold_overtaken(_was: bool | None, _part: None, record: Record, seen: Seen) -> bool | None:
    if record.kind == EVENT or payload(record).get("type") != 0:
        return None
    asked = asked_of(seen, job_id(record))
    newest: int | None = seen.at(NEWEST_ANSWERED)
    return True if is_pending(asked, seen) and asked.alloc < (newest or 0) else None


OVERTAKEN: Final = view(
    "overtaken",
    received("response", topics.SCHED_ALLOC),
    while_live(OWN, logged("alloc", "clean")),
    key=job_id,
    fold=_fold_overtaken,
    reads=(ASKED, LINK, NEWEST_ANSWERED),
)
"""The jobs whose SUCCESS came after the response to a later request, by job id."""


Rank = tuple[int, float]
"""The place of a job in the order of requests: minus its priority, then the time of its submission.
Less is earlier."""


class Sending(NamedTuple):
    """A sched.alloc request that was sent."""

    n: Place
    decided: Place
    """The earliest record at which the job manager may have decided to send it; it may have waited
    for a commit since."""
    t: float
    rank: Rank
    jobid: int
    queue: str
    """The queue that its jobspec names; the job may have been moved since."""


def rank_of(life: Life) -> Rank:
    """Return the rank of a job among the waiting jobs."""
    return (-life.priority, life.t_submit)


def _fold_sendings(
    sendings: tuple[Sending, ...] | None, _part: None, record: Record, seen: Seen
) -> tuple[Sending, ...]:
    jobid = job_id(record)
    life: Life | None = seen.at(LIFE, jobid)
    kept = sendings or ()
    if life is None or jobid is None or not life.t_submit:
        return kept
    said = payload(record).get("priority")  # a newer priority may have been logged meanwhile
    rank = (-said, life.t_submit) if type(said) is int else rank_of(life)
    while kept and kept[-1].rank <= rank:
        kept = kept[:-1]
    durable: Durable | None = seen.at(DURABLE, record.party)
    decided = record.n if durable is None else durable.until
    queue = queue_of(payload(record).get("jobspec"))
    return (*kept, Sending(record.n, decided, record.t, rank, jobid, queue))[-SENDS_MAX:]


SENDINGS: Final = view(
    "sendings",
    sent("request", topics.SCHED_ALLOC),
    key=no_key,
    fold=_fold_sendings,
    reads=(LIFE, DURABLE),
)
"""Requests in the order of their sends, without those that were followed by an equal or worse rank.

So the first request after some time has the worst rank of all since then.
"""


def waiting(seen: Seen) -> Iterator[tuple[int, Life]]:
    """Yield the jobs that wait in SCHED for a sched.alloc: no request of theirs is open, no plugin
    holds them, and their queue is not stopped.
    """
    for jobid, life in seen.all(LIFE).items():
        if not is_eligible(life) or is_held(jobid, life, seen):
            continue
        asked = asked_of(seen, jobid)
        is_asked = is_pending(asked, seen) or asked.granted or has_denial(asked, seen)
        if not is_asked and stop_of(seen, queue_of_job(seen, jobid)) is None:
            yield jobid, life


def unsent(seen: Seen) -> Iterator[tuple[int, Place]]:
    """Yield the jobs for which a sched.alloc is due at the end of a trace at rest, and since when.

    They are `waiting`, the scheduler is there, and its limit is not reached. A commit that waits
    for its answer may have the request wait, too.
    """
    limit = seen.facts.limit
    full = limit is not None and (seen.at(OUTSTANDING) or 0) >= limit
    if full or not link_of(seen).is_up:
        return
    durable: Durable = seen.at(DURABLE, seen.facts.manager) or Durable()
    for jobid, life in waiting(seen):
        since = ready_since(seen, life)
        if since < durable.settled:
            yield jobid, since
        elif since < durable.until or not durable.commits:
            yield jobid, max(since, durable.known_at)


def ready_since(seen: Seen, life: Life) -> Place:
    """Return what came last: the job's state, room for a request, the scheduler's mode, or the
    start of queues.
    """
    queues: Queues | None = seen.at(QUEUES)
    started = queues.n if queues is not None else 0
    return max(life.since, seen.at(ROOM) or 0, link_of(seen).answered, started)


def not_asked_for(seen: Seen, more: str = "") -> Iterator[Broken]:
    """Yield a violation for each of them; its text ends with `more`."""
    for jobid, since in unsent(seen):
        text = f"job {jobid}: is in SCHED and no sched.alloc is sent{more}"
        yield Broken(text, (since,), job=jobid)


WAITING: Final = (LIFE, ASKED, LINK, QUEUES, JOB_QUEUES, HOOK_ANSWERS)
"""The views that `waiting` reads."""
UNSENT: Final = (*WAITING, OUTSTANDING, ROOM, DURABLE)
"""The views that `unsent` reads."""


def over_limit(record: Record, seen: Seen) -> Broken | None:
    """Return the violation of a sched.alloc that is sent beyond the scheduler's limit, or None."""
    limit, count = seen.facts.limit, seen.at(OUTSTANDING) or 0
    if limit is None or count < limit:
        return None
    text = f"job {job_id(record)}: sched.alloc beyond the limit of {limit}: {count} are open"
    canceled = sum(bool(each.alloc and each.cancel) for each in seen.all(SCHED_JOBS).values())
    text = f"{text}, {canceled} of them canceled"
    text += "" if count - canceled < limit else ", and the others reach it"
    return Broken(text, (link_of(seen).ready,))


OVER_LIMIT: Final = (OUTSTANDING, LINK, SCHED_JOBS)
"""The views that `over_limit` reads."""


def priorities_untold(seen: Seen) -> Iterator[Broken]:
    """Yield a violation for each open alloc request of which the scheduler was not told the job's
    present priority, at the end of a trace at rest.
    """
    if link_of(seen).is_up and not may_be_suspended(seen):
        for jobid in seen.all(LIFE):
            if (broken := priority_untold(jobid, seen)) is not None:
                yield broken


def priority_untold(jobid: Any, seen: Seen) -> Broken | None:
    """Return a violation if the job has an open alloc request, and the scheduler was not told the
    job's present priority.
    """
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or life.state != SCHED:
        return None
    asked = asked_of(seen, jobid)
    if asked.priority == life.priority:
        return None
    if not is_pending(asked, seen) or asked.cancel:
        return None
    text = f"job {jobid}: has priority {life.priority} and the scheduler knows {asked.priority}"
    return Broken(text, (life.prioritized, asked.alloc), job=jobid)


PRIORITIES: Final = (LIFE, *SUSPENDING)
"""The views that `priorities_untold` and `priority_untold` read."""
