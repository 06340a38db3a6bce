"""Views of jobs: their life by RFC 21, as their eventlogs tell it, and what else is known of it.

Left out: what dependencies, prologs and epilogs wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from flux_trio.judge.checks.shapes import members
from flux_trio.judge.engine.selector import (
    ANY_DISCONNECT,
    BROKER,
    EVENT,
    RECV,
    errnum,
    job_id,
    logged,
    name_of,
    noted,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.commits import Entry
from flux_trio.judge.views.durable import (
    DOUBTS,
    READ,
    READING,
    eventlogs_read,
    events_in,
    is_doubtful,
)
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record


class JobState(StrEnum):
    """The states of RFC 21, Job States."""

    NEW = "NEW"
    DEPEND = "DEPEND"
    PRIORITY = "PRIORITY"
    SCHED = "SCHED"
    RUN = "RUN"
    CLEANUP = "CLEANUP"
    INACTIVE = "INACTIVE"


# For functions: asking an enumeration for a member takes longer than most rules.
NEW, DEPEND, PRIORITY = JobState.NEW, JobState.DEPEND, JobState.PRIORITY
SCHED, RUN, CLEANUP = JobState.SCHED, JobState.RUN, JobState.CLEANUP
INACTIVE = JobState.INACTIVE

# RFC 21: the events that move a job, by the state they move it from.
MOVES: Final[dict[JobState, dict[str, JobState]]] = {
    NEW: {"validate": DEPEND},
    DEPEND: {"depend": PRIORITY},
    PRIORITY: {"priority": SCHED},
    SCHED: {
        "alloc": RUN,
        "urgency": PRIORITY,
        "jobspec-update": PRIORITY,
        "flux-restart": PRIORITY,
    },
    RUN: {"finish": CLEANUP},
    CLEANUP: {"clean": INACTIVE},
    INACTIVE: {},
}


ORDER: Final = (NEW, DEPEND, PRIORITY, SCHED, RUN, CLEANUP)
_NEEDS: Final = {
    "depend": DEPEND,
    "priority": PRIORITY,
    "alloc": SCHED,
    "start": RUN,
    "finish": RUN,
}
"""The state that an event needs at least."""
_AFTER: Final = {"depend": PRIORITY, "priority": SCHED, "alloc": RUN, "finish": CLEANUP}
"""The state after an event, also if the event before it is missing."""


_READ_BACK: Final = {"depend": DEPEND, "priority": PRIORITY, "flux-restart": SCHED}
"""The state in which a job is found that a job manager has read back, by its next event."""


class Life(Live, frozen=True, gc=False):
    """What is known of an active job from its eventlog. Places of records are 0 for what has not
    happened.
    """

    state: JobState
    since: Place
    """The record at which it entered its state."""
    t: float
    """The time at which it entered its state or got its priority, whichever was later; seconds
    since the Unix epoch."""
    t_submit: float
    """The time of its submission, in seconds since the Unix epoch. It is 0 until it is known: a job
    manager that was loaded again has read the job back from the KVS, and acts on it before
    job-ingest submits it."""
    is_logged: bool = True
    """Whether its submit event was logged, or the job was read back; until then only the request to
    submit it is known."""
    userid: int = -1
    priority: int = -1
    """The priority in its last priority event; -1 before the first."""
    prioritized: Place = 0
    held: Place = 0
    """The record of its alloc event; 0 again after its free event."""
    bypassed: bool = False
    """Whether a plugin gave it its resources, so that no scheduler knows of them."""
    fatal: Place = 0
    """The record of its first exception of severity 0."""
    released: Place = 0
    """The record of its final release event."""
    freed: Place = 0
    """The record of its free event."""


def context_of(record: Record) -> dict[str, Any]:
    """Return the context of an eventlog event; {} when it has none."""
    found = payload(record).get("context")
    return found if isinstance(found, dict) else {}


def is_fatal(record: Record) -> bool:
    """Whether an event is an exception of severity 0."""
    return payload(record).get("name") == "exception" and context_of(record).get("severity") == 0


def is_bypass(record: Record) -> bool:
    """Whether an alloc event is about resources that a plugin gave the job, and no scheduler."""
    return context_of(record).get("bypass") is True


def next_state(state: JobState, record: Record) -> JobState:
    """Return the state after an event (RFC 21), also if the event before it is missing."""
    if is_fatal(record) and state != INACTIVE:
        return CLEANUP
    name = name_of(record)
    if name in _AFTER and is_late(state, name):
        return _AFTER[name]
    return MOVES[state].get(name, state)


def is_late(state: JobState, name: str) -> bool:
    """Whether an event comes while the job is in an earlier state than its own: the event between
    them is missing.
    """
    needed = _NEEDS.get(name)
    return needed is not None and ORDER.index(state) < ORDER.index(needed)


_GOODBYE: Final = topics.disconnect_of(topics.JOB_MANAGER)


def _submission(record: Record) -> tuple[str, int]:
    """Return who submits, and the matchtag."""
    found: Any = record.message
    if isinstance(found, Request):
        return found.sender, found.matchtag
    return (record.party if record.kind == RECV else record.peer), found.matchtag


def _submissions(record: Record, seen: Seen) -> Iterable[tuple[tuple[str, int], None]]:
    if topic_of(record) == _GOODBYE:  # nobody is answered any more
        gone = getattr(record.message, "sender", "")
        return [(key, None) for key in seen.all(SUBMISSIONS) if key[0] == gone]
    return [(_submission(record), None)]


def _fold_submission(_old: Any, _part: None, record: Record, _seen: Seen) -> Any:
    if topic_of(record) == topics.JOB_SUBMIT and isinstance(record.message, Request):
        return tuple(job["id"] for job in submitted(record))
    return None


SUBMISSIONS: Final = view(
    "submissions",
    received("request", topics.JOB_SUBMIT),
    received("response", topics.JOB_SUBMIT),
    received("request", _GOODBYE),
    parts=_submissions,
    fold=_fold_submission,
)
"""By peer and matchtag: the ids of the jobs in a job-manager.submit request that was not
answered."""


def _is_stray(record: Record, seen: Seen) -> bool:
    """Whether a response is of a job manager that was replaced: it says late that it has jobs."""
    return record.party != BROKER and seen.facts.manager not in ("", record.party)


def _begun(record: Record, seen: Seen) -> Iterable[tuple[int, None]]:
    if _is_stray(record, seen):
        return []
    return [(jobid, None) for jobid in seen.at(SUBMISSIONS, _submission(record)) or ()]


def _fold_begun(was: Place | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    if record.kind == EVENT:
        return record.n if name_of(record) in ("submit", "validate") else None
    return was if errnum(record) else None


BEGUN: Final = view(
    "begun",
    logged("submit", "validate", "clean", "invalidate"),
    key=job_id,
    parts=_begun,
    many=sent("response", topics.JOB_SUBMIT),
    reads=(SUBMISSIONS,),
    fold=_fold_begun,
)
"""By job id, until its submission is answered: the record of its submit event, or of the validate
event of a job manager that has read it back before it was submitted.

If the answer is an error, since the job manager has ended, the job may be submitted again, when the
next one has read it back.
"""


def _lives(record: Record, seen: Seen) -> Iterable[tuple[int, Any]]:
    """job-manager.submit tells of many when they were submitted.

    If the job manager goes before it has logged their submit events, or before it has answered,
    the submission has failed: who submits takes the jobs back. A job that was submitted before, and
    was refused or is over, has no events any more: it ends with the answer.
    """
    if isinstance(record.message, Response):
        if record.kind == RECV:
            return [each for each in eventlogs_read(record, seen) if _is_doubtful(each[0], seen)]
        if _is_stray(record, seen):
            return []
        jobs = seen.at(SUBMISSIONS, _submission(record)) or ()
        return [(jobid, None) for jobid in jobs if errnum(record) or _is_only_asked(jobid, seen)]
    if seen.facts.is_manager_gone(record):
        lives: Mapping[int, Life] = seen.all(LIFE)
        return [(jobid, None) for jobid, life in lives.items() if not life.is_logged]
    return [(job["id"], job) for job in submitted(record)]


def _is_doubtful(jobid: int, seen: Seen) -> bool:
    """Whether an event of an active job may not be stored."""
    life: Life | None = seen.at(LIFE, jobid)
    if life is None:
        return False
    places = (life.since, life.prioritized, life.held, life.fatal, life.released, life.freed)
    return any(is_doubtful(seen, each) for each in places)


def _is_only_asked(jobid: int, seen: Seen) -> bool:
    life = seen.at(LIFE, jobid)
    return life is not None and life.state == NEW and not life.is_logged


def submitted(record: Record) -> list[dict[str, Any]]:
    """Return the jobs of a request to submit some, each with an integer as `id`."""
    found = members(payload(record).get("jobs"))
    return [job for job in found if type(job.get("id")) is int]


def integer(value: Any) -> int:
    """Return `value` if it is an integer; -1 for any other value."""
    return value if type(value) is int else -1


def number(value: Any, unless: float) -> float:
    """Return `value` if it is a number; `unless` for any other value."""
    return value if type(value) in (int, float) else unless


def _fold_life(life: Life | None, part: Any, record: Record, seen: Seen) -> Life | None:
    if part is not None:
        if isinstance(part, list):
            return life and _read_back(life, part, record)
        if life is None and seen.at(BEGUN, part["id"]) is not None:
            return None  # it was submitted before; what was stored of it since is not known
        return _after_request(life, number(part.get("t_submit"), record.t), record)
    if record.kind != EVENT:
        return None
    name = payload(record).get("name")
    if name == "submit":
        t_submit = 0.0 if life is None else life.t_submit
        # Of a job that has begun, the event is that of an earlier submission, told again.
        if life is None and seen.at(BEGUN, job_id(record)) is None:
            t_submit = number(payload(record).get("timestamp"), record.t)
        userid = integer(context_of(record).get("userid"))
        return Life(NEW, record.n, record.t, t_submit, userid=userid)
    if life is None and name == "validate":
        life = Life(NEW, record.n, record.t, t_submit=0.0)
    elif life is None and name in _READ_BACK and seen.at(BEGUN, job_id(record)) is not None:
        life = Life(_READ_BACK[name], record.n, record.t, t_submit=0.0)
    return None if life is None else _after_event(life, name, record)


def _read_back(life: Life, entries: list[Entry], record: Record) -> Life | None:
    """Return the life that the stored eventlog tells: `life`, unless events of it are not there."""
    found: Life | None = None
    for event in events_in(record, entries):
        name = name_of(event)
        if found is not None:
            found = _after_event(found, name, event)
        elif name == "submit":
            found = Life(NEW, record.n, record.t, life.t_submit, userid=life.userid)
    return life if found is not None and _told_of(found) == _told_of(life) else found


def _told_of(life: Life) -> tuple[Any, ...]:
    """What the eventlog tells of a life, without places and times."""
    have = (life.held, life.fatal, life.released, life.freed)
    return (life.state, life.priority, life.bypassed, *map(bool, have))


def _after_request(life: Life | None, t_submit: float, record: Record) -> Life:
    if life is None:
        return Life(NEW, record.n, record.t, t_submit, is_logged=False)
    return life if life.t_submit else life.but(t_submit=t_submit)


def _after_event(life: Life, name: Any, record: Record) -> Life | None:
    state = next_state(life.state, record)
    if state == INACTIVE or name == "invalidate":
        return None
    if state != life.state:
        life = life.but(state=state, since=record.n, t=record.t)
    match name:
        case "priority":
            priority = integer(context_of(record).get("priority"))
            return life.but(priority=priority, prioritized=record.n, t=record.t)
        case "alloc":
            return life.but(held=record.n, bypassed=is_bypass(record))
        case "release" if context_of(record).get("final") is True:
            return life.but(released=record.n)
        case "free":
            return life.but(held=0, freed=record.n)
        case "exception" if is_fatal(record) and not life.fatal:
            return life.but(fatal=record.n)
    return life


_MOVING: Final = {name for moves in MOVES.values() for name in moves}
_LIVED: Final = sorted({"submit", "release", "free", "exception", "invalidate"} | _MOVING)
"""The events that change a life."""

LIFE: Final = view(
    "life",
    logged(*_LIVED),
    key=job_id,
    parts=_lives,
    many=(
        *received("request", topics.JOB_SUBMIT),
        *sent("request", ANY_DISCONNECT),
        *noted(Kind.MODULE),
        *sent("response", topics.JOB_SUBMIT),
        *READ,
    ),
    reads=(SUBMISSIONS, BEGUN, DOUBTS, READING),
    fold=_fold_life,
)
"""A `Life` for each active job whose first events are in the trace, by job id.

A job manager that reads back a job shows which of the last events of its predecessor are stored.
"""
