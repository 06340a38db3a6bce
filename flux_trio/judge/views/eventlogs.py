"""Views of eventlogs, beyond the state of a job: open dependencies, prologs and epilogs, and stored
events.

The state of a job by RFC 21 is in `jobs.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from flux_trio.judge.engine.packed import Packing
from flux_trio.judge.engine.rule import Broken
from flux_trio.judge.engine.selector import (
    ANY_TOPIC,
    EVENT,
    MODULE,
    job_id,
    logged,
    name_of,
    noted,
    payload,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Live, Place, Seen, Trait, View, seen_once, view
from flux_trio.judge.views.commits import Entry, stored_events
from flux_trio.judge.views.durable import (
    DOUBTS,
    READ,
    READING,
    eventlogs_read,
    events_in,
    is_doubtful,
)
from flux_trio.judge.views.jobs import LIFE, Life, context_of, is_fatal
from flux_trio.judge.views.resource_sets import SeenR, carried_by, committed, resources_in
from flux_trio.judge.views.traits import CARRIES_R, WITH_EVENTS, WITH_R
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

Open = tuple[tuple[str, Place], ...]
"""Descriptions that were added or started, each with the record of its event."""


class Log(Live, frozen=True, gc=False):
    """What a job's eventlog has had so far, from its submit event on. A record number of 0 means
    that there was no such event.
    """

    submitted: Place
    validated: Place = 0
    started: Place = 0
    finished: Place = 0
    status: int = 0
    """The status in its finish event."""
    released: Place = 0
    """The record of its final release event."""
    freed: Place = 0
    excepted: Place = 0
    """The record of its first exception event, of any severity."""
    fatal: Place = 0
    """The record of its first exception event of severity 0."""
    dependencies: Open = ()
    satisfied: tuple[str, ...] = ()
    """The descriptions of the dependencies that were removed."""
    prologs: Open = ()
    epilogs: Open = ()
    prolog_failed: bool = False
    """Whether the job failed as its prolog did: its first fatal exception is of type prolog, and no
    prolog-finish event after it has status 0."""
    ended: Place = 0
    """The record of its clean event. It is kept, because no event may follow."""


def broken_event(record: Record, text: str, *because: int, is_missing: bool = False) -> Broken:
    """Return a violation by an event; `text` follows the event's name and its job."""
    what = f"{name_of(record)} event of job {job_id(record)}"
    return Broken(f"{what}: {text}", tuple(because), is_missing=is_missing)


_OPENS: Final = {
    "dependency-add": "dependencies",
    "prolog-start": "prologs",
    "epilog-start": "epilogs",
}
_CLOSES: Final = {
    "dependency-remove": "dependencies",
    "prolog-finish": "prologs",
    "epilog-finish": "epilogs",
}


def _fold_log(
    log: Log | None, entries: list[Entry] | None, record: Record, seen: Seen
) -> Log | None:
    if entries is not None:
        return log and _reread(log, entries, record, seen)
    if record.kind != EVENT:
        return log and _read_back(log, payload(record).get("reattach"), seen)
    name, context, n = name_of(record), context_of(record), record.n
    if name == "submit" and (log is None or is_told_again(log, seen)):
        return Log(n)
    if log is None:
        return None
    if name in _OPENS:
        opened = (str(context.get("description")), n)
        return log.but(**{_OPENS[name]: (*getattr(log, _OPENS[name]), opened)})
    if name in _CLOSES:
        is_well = name == "prolog-finish" and context.get("status") == 0
        log = log.but(prolog_failed=False) if is_well else log
        return _closed(log, name, str(context.get("description")))
    return None if name == "invalidate" else _gone_on(log, name, context, record)


def _gone_on(log: Log, name: str, context: dict[str, Any], record: Record) -> Log:
    n = record.n
    match name:
        case "validate":
            return log.but(validated=n)
        case "start":
            return log.but(started=n)
        case "free":
            return log.but(freed=n)
        case "clean":
            return log.but(ended=n)
        case "finish":
            status = context.get("status")
            return log.but(finished=n, status=status if type(status) is int else 0)
        case "release" if context.get("final") is True:
            return log.but(released=n)
        case "exception":
            is_first = is_fatal(record) and not log.fatal
            prolog_failed = log.prolog_failed or (is_first and context.get("type") == "prolog")
            fatal = n if is_first else log.fatal
            return log.but(excepted=log.excepted or n, fatal=fatal, prolog_failed=prolog_failed)
    return log


def is_open_at_its_end(jobid: Any, seen: Seen) -> bool:
    """Whether a prolog or an epilog keeps a job in CLEANUP, and its resources.

    Of a job that was read back, and whose submit event is not in the trace, that is not known.
    """
    log: Log | None = seen.at(LOG, jobid)
    return log is None or bool(log.prologs or log.epilogs)


def is_told_again(log: Log, seen: Seen) -> bool:
    """Whether the next job manager may log the submit event of a job a second time.

    Ingest has stored the event. If no later event of the job is known to be stored, the next job
    manager finds the job in NEW, as one that was never submitted to it, and ingest submits it
    again.
    """
    return is_doubtful(seen, log.submitted)


def _logs(record: Record, seen: Seen) -> Iterable[tuple[int, list[Entry]]]:
    logs: Mapping[int, Log] = seen.all(LOG)
    for jobid, entries in eventlogs_read(record, seen):
        log = logs.get(jobid)
        if log is not None and any(is_doubtful(seen, n) for n in _places(log)):
            yield jobid, entries


def _places(log: Log) -> Iterator[Place]:
    yield from (log.submitted, log.ended)
    yield from [getattr(log, name) for name in _FLAGS]
    yield from [n for name in _OPENS.values() for _, n in getattr(log, name)]


def _reread(log: Log, entries: list[Entry], record: Record, seen: Seen) -> Log | None:
    """Return the log as the next job manager reads it: `log`, unless events of it are not there."""
    found: Log | None = None
    for event in events_in(record, entries):
        found = _fold_log(found, None, event, seen)
    return log if found is not None and _told_of(found) == _told_of(log) else found


def _told_of(log: Log) -> tuple[Any, ...]:
    """What a log has, without places."""
    opened = [tuple([each for each, _ in getattr(log, name)]) for name in _OPENS.values()]
    flags = [bool(getattr(log, name)) for name in _FLAGS]
    return (log.status, log.satisfied, bool(log.ended), *opened, *flags)


def _read_back(log: Log, reattach: Any, seen: Seen) -> Log:
    """A start request tells which of the doubtful events the next job manager has not read."""
    if reattach is False and is_doubtful(seen, log.started):
        return log.but(started=0)
    if reattach is True and is_doubtful(seen, log.finished):
        return log.but(finished=0)
    return log


def _closed(log: Log, name: str, description: str) -> Log:
    left: Open = getattr(log, _CLOSES[name])
    first = next((each for each in left if each[0] == description), None)
    closed = log.but(**{_CLOSES[name]: tuple(each for each in left if each is not first)})
    if name != "dependency-remove":
        return closed
    return closed.but(satisfied=(*log.satisfied, description))


_STATUS_BITS: Final = 16
_FLAGS: Final = ("validated", "started", "finished", "released", "freed", "excepted", "fatal")


def _pack_log(log: Log) -> int | None:
    """Of a job that has ended: the place of its clean event, what came before, and its status."""
    if not log.ended or log.status >> _STATUS_BITS:
        return None
    number = log.ended
    for name in _FLAGS:
        number = number << 1 | bool(getattr(log, name))
    return number << _STATUS_BITS | log.status


def _unpack_log(number: int) -> Log:
    """Return the log of a job that has ended; what came before has the place of the clean event."""
    status = number & ((1 << _STATUS_BITS) - 1)
    flags = number >> _STATUS_BITS
    ended = flags >> len(_FLAGS)
    had = {name: ended * (flags >> bit & 1) for bit, name in enumerate(reversed(_FLAGS))}
    return Log(ended, ended=ended, status=status).but(**had)


_EXEC_START: Final = f"<exec>.{topics.START_METHOD}"
_STEPS: Final = ("submit", "validate", "start", "finish", "release", "free", "clean")

LOG: Final = view(
    "log",
    logged(*_STEPS, "exception", "invalidate", *_OPENS, *_CLOSES),
    sent("request", _EXEC_START),
    key=job_id,
    parts=_logs,
    many=READ,
    fold=_fold_log,
    reads=(DOUBTS, READING),
    packing=Packing(_pack_log, _unpack_log),
)
"""A `Log` for each job whose submit event is in the trace, by job id; those of ended jobs are kept.

A job manager that reads a job back from the KVS shows which of its predecessor's last events are
stored.
"""


class Logging(Live, frozen=True, gc=False):
    """The properties of an event when it is logged, and what is known of its job before it. For an
    unknown job all of them are False.
    """

    name: str
    is_managed: bool
    """Whether the trace has shown which party is the job manager."""
    is_managers: bool
    """Whether the job manager logs the event."""
    has_annotations: bool
    """Whether the context of the event has the key `annotations`."""
    state: str = ""
    """The state of the job before the event; "" if it is not active."""
    is_held: bool = False
    """Whether the job holds resources."""
    is_freed: bool = False
    """Whether the job held resources and has freed them."""
    is_prioritized: bool = False
    is_owned: bool = False
    """Whether the user of the job is known."""
    is_fatal: bool = False
    """Whether the job is active and had a fatal exception."""
    has_log: bool = False
    """Whether the submit event of the job came before. Only then are the fields below known."""
    is_waiting: bool = False
    """Whether the job has dependencies that were not removed."""
    has_started: bool = False
    has_finished: bool = False
    has_released: bool = False
    """Whether the job had its final release event."""
    has_excepted: bool = False
    has_failed: bool = False
    """Whether the job had a fatal exception."""
    has_ended: bool = False


def _logging(record: Record, seen: Seen) -> Logging:
    jobid, manager = job_id(record), seen.facts.manager
    has_annotations = "annotations" in context_of(record)
    life: Life | None = seen.states[LIFE].get(jobid)
    log: Log | None = seen.states[LOG].get(jobid)
    of_life = _NOT_ACTIVE
    if life is not None:
        of_life = (
            str(life.state),
            life.held != 0,
            life.freed != 0,
            life.prioritized != 0,
            life.userid != -1,
            life.fatal != 0,
        )
    if log is None:
        is_managers = record.party == manager
        return Logging(name_of(record), manager != "", is_managers, has_annotations, *of_life)
    return Logging(
        name_of(record),
        manager != "",
        record.party == manager,
        has_annotations,
        *of_life,
        True,
        log.dependencies != (),
        log.started != 0,
        log.finished != 0,
        log.released != 0,
        log.excepted != 0,
        log.fatal != 0,
        log.ended != 0,
    )


_NOT_ACTIVE: Final[tuple[str, bool, bool, bool, bool, bool]] = (
    "",
    False,
    False,
    False,
    False,
    False,
)

LOGGING: Final = Trait("logging", tuple(logged(ANY_TOPIC)), _logging, lambda: (LOG, LIFE))


# --- events and resources that are stored


def _unstored_parts(record: Record, seen: Seen) -> Iterable[tuple[int, tuple[str, ...]]]:
    if record.kind != MODULE:
        return [(jobid, names) for jobid, names in stored_events(record).items() if names]
    if not seen.facts.is_manager_gone(record):
        return []
    left: Mapping[int, Unstored] = seen.all(UNSTORED)
    return [(jobid, ()) for jobid in left]


SUBMIT: Final = "submit"
"""The name of the submit event: flux-trio's ingest stores it before the job manager knows of the
job; in flux-core the job manager stores it."""
_NEVER_STORED: Final = "invalidate"

Unstored = tuple[tuple[str, Place], ...]


def _fold_unstored(
    left: Unstored | None, names: tuple[str, ...] | None, record: Record, seen: Seen
) -> Unstored | None:
    left = left or ()
    if record.kind == MODULE:  # a turn that its end has cut short is stored in part, or not at all
        manager = seen.facts.manager
        return tuple([each for each in left if seen.knew(manager, each[1])]) or None
    if names is None:
        name = name_of(record)
        if name == SUBMIT:
            left = ()
        return None if name == _NEVER_STORED else (*left, (name, record.n))
    return to_store(left, names)[len(names) :] or None


def to_store(left: Unstored, names: tuple[str, ...]) -> Unstored:
    """Return the events that are stored next, for a commit that stores `names`."""
    is_stored = left[:1] and left[0][0] == SUBMIT and names[:1] != (SUBMIT,)
    return left[1:] if is_stored else left


UNSTORED: Final[View] = view(
    "unstored",
    logged(ANY_TOPIC),
    key=job_id,
    parts=_unstored_parts,
    many=(*sent("request", *topics.COMMITS, mark=WITH_EVENTS), *noted(Kind.MODULE)),
    fold=_fold_unstored,
)
"""The names of the logged events that are in no commit yet, oldest first, by job id."""


class Resources(NamedTuple):
    """The resources (R) of a job, as the trace shows them."""

    n: Place
    """The record at which R was stored, or sent to the execution service."""
    ranks: int
    """The execution targets of R as a bit set."""


def _resource_parts(record: Record, _seen: Seen) -> Iterable[tuple[int, Any]]:
    if record.kind == EVENT:
        found = job_id(record)
        return [] if found is None else [(found, None)]
    r_sets: Iterable[tuple[int | None, SeenR | None]] = committed(record)
    if topic_of(record) not in topics.COMMITS:
        r_sets = [(r.jobid, r) for r in carried_by(record)]
    return [(jobid, None if r is None else r.value) for jobid, r in r_sets if jobid is not None]


def _fold_resources(
    _old: Resources | None, r: Any, record: Record, _seen: Seen
) -> Resources | None:
    found = resources_in(r)
    return None if found is None else Resources(record.n, found.ranks.bits)


RESOURCES: Final = view(
    "resources",
    sent("request", *topics.COMMITS, mark=WITH_R),
    sent("request", _EXEC_START, mark=CARRIES_R),
    logged("clean"),
    parts=_resource_parts,
    fold=_fold_resources,
)
"""The `Resources` of each active job whose R is in the trace, by job id: in a commit or, in the
current edition, in the start request."""


@seen_once
def log_of(record: Record, seen: Seen) -> Log | None:
    """Return the eventlog of a record's job, or None before its submit event."""
    log: Log | None = seen.states[LOG].get(job_id(record))
    return log
