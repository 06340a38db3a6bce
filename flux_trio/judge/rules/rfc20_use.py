"""RFC 20 for users of R: allocations are in the inventory, and unusual but valid R is accepted.

A consumer that cannot read an R leaves: the clause is judged when a scheduler that got such an R
sends hello, or crashes before. Left out: the consumer's internal use of R (the order of entries,
the meaning of `writer`), which no message shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from flux_trio.formats import Idset
from flux_trio.judge.checks.jobspecs import system
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    OWN,
    SEND,
    job_id,
    logged,
    noted,
    payload,
    received,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Seen, view
from flux_trio.judge.views.expiring import CLOCK, END, RAISING, has_crossed, raised_by, stepped
from flux_trio.judge.views.jobs import LIFE, context_of
from flux_trio.judge.views.kvs import commit_ops
from flux_trio.judge.views.resource_sets import (
    ALLOCATING,
    Piece,
    allocated,
    inventory_in,
    number_of,
    pieces_of,
    targets_of,
)
from flux_trio.judge.views.resources import AS_RECEIVED, as_received
from flux_trio.judge.views.traits import WITH_R
from flux_trio.messages import topics
from flux_trio.trace import KILLED, Kind, Record
from flux_trio.trace.kvs import job_with

RULES: Final = Rules()

COMMITS: Final = sent("request", *topics.COMMITS, mark=WITH_R)
ENDED: Final = ("crashed", "returned")  # of a module, without having been removed


# --- allocations against the inventory


def _missing(piece: Piece, inventory: Iterable[Piece]) -> Idset:
    """Return the targets of a piece that lack one of its cores or gpus in the inventory."""
    ranks = piece.ranks
    for offered in inventory:
        if piece.cores <= offered.cores and piece.gpus <= offered.gpus:
            ranks -= offered.ranks
    return ranks


@RULES.judge("20.overview.3", ALLOCATING, views=[AS_RECEIVED])
def what_is_allocated_was_acquired(record: Record, seen: Seen) -> Finding:
    had = as_received(seen, record.party)
    found = allocated(record)
    if had is None or not found:
        return None
    for r in found:
        for piece in pieces_of(r.value):
            if ranks := _missing(piece, had.pieces):
                what = f"target {ranks} core {piece.cores}"
                what += f" gpu {piece.gpus}" if piece.gpus else ""
                return Broken(f"{r.what}: {what} was never acquired", (had.changed,))
    return True


@RULES.judge("20.goals.3", COMMITS, views=[LIFE])
def r_stays_when_the_job_ends(record: Record, seen: Seen) -> Finding:
    """The stored R is not removed when its job ends. It is judged from the job's alloc event on; a
    job that is removed as a whole may take its R with it.
    """
    kept = None
    for op, key, _ in commit_ops(record):
        jobid = job_with(key, "R")
        life = None if jobid is None else seen.at(LIFE, jobid)
        if op == "unlink" and life is not None and life.held:
            return Broken(f"{key}: R of job {jobid} was removed", (life.held,), party=record.party)
        kept = kept or (jobid is not None and op == "put")
    return kept


@RULES.judge("20.expiration.2", ALLOCATING, views=[AS_RECEIVED])
def nothing_is_allocated_beyond_the_inventory(record: Record, seen: Seen) -> Finding:
    had = as_received(seen, record.party)
    found = allocated(record)
    if had is None or not had.expiration or not found:
        return None
    for r in found:
        end = number_of(r.value, "expiration")
        if not end or end > had.expiration or record.t >= had.expiration:
            return Broken(
                f"{r.what}: expiration {end or 'unset'} at time {record.t}, but the "
                f"inventory expires at {had.expiration}",
                (had.changed,),
                party=record.party,
            )
    return True


# --- properties with a suffix


def _names_asked(jobspec: Any) -> tuple[str, ...]:
    """Return the properties with @ of a constraint {"properties": [...]}; () for any other."""
    found = system(jobspec).get("constraints")
    names = found.get("properties") if isinstance(found, dict) and len(found) == 1 else None
    texts = [name for name in (names if isinstance(names, list) else ()) if isinstance(name, str)]
    return tuple(name for name in texts if "@" in name and not name.startswith("^"))


SUFFIXED: Final = view(
    "suffixed properties",
    received("request", topics.SCHED_ALLOC),
    while_live(OWN, received("request", topics.SCHED_FREE), logged("clean")),
    key=job_id,
    fold=lambda _old, _part, record, _seen: _names_asked(payload(record).get("jobspec")) or None,
)
"""The properties with a suffix that a job requests, by job id."""


@RULES.judge("20.properties.6", ALLOCATING, views=[SUFFIXED, AS_RECEIVED])
def the_literal_property_applies(record: Record, seen: Seen) -> Finding:
    kept = None
    had = as_received(seen, record.party)
    for r in allocated(record) if had else ():
        for name in seen.at(SUFFIXED, r.jobid) or ():
            targets = dict(had.properties if had else ()).get(name, Idset())
            got = targets_of(r.value)
            if not (got or Idset()) <= targets:
                text = f"{r.what}, which asks for {name}: expected targets of {targets}"
                return Broken(f"{text}, got {got}", (had.changed if had else 0,))
            kept = True
    return kept


# --- unusual R that must be accepted


def accepts(clause: str, trait: str) -> None:
    """Register `clause`: a scheduler does not fail on an R with this `trait`. If the first grow
    that it received has the trait, it goes on to send hello.
    """

    @RULES.judge(
        clause, sent("request", topics.SCHED_HELLO), noted(Kind.MODULE), views=[AS_RECEIVED]
    )
    def judge(record: Record, seen: Seen) -> Finding:
        if record.kind == SEND:
            had = as_received(seen, record.party)
            return had is not None and trait in had.traits
        content = payload(record)
        had = seen.at(AS_RECEIVED, content.get("module"))
        if had is None or content.get("what") not in ENDED or had.said_hello or not had.grown:
            return None
        reason = str(content.get("reason", ""))
        if trait not in had.traits or KILLED in reason:
            return None
        text = f"{content['module']} left ({reason}) when it was given a valid R"
        return Broken(f"{text}: {trait}", (had.grown,), party=str(content["module"]))


accepts("20.format.5", "out of order")
accepts("20.nodelist.4", "lengths differ")
accepts("20.properties.3", "overlap")
accepts("20.properties.8", "suffixed and bare")
accepts("20.starttime.2", "starttime 0")
accepts("20.starttime.4", "no starttime")
accepts("20.goals.5", "scheduling keys")
accepts("20.scheduling.5", "scheduling")


# --- scheduling rides along


def _opaque(r: Any) -> str | None:
    found = r.get("scheduling") if isinstance(r, dict) else None
    return None if found is None else json.dumps(found, sort_keys=True)


_ACQUIRED: Final = sent("response", topics.RESOURCE_ACQUIRE)

SCHEDULING: Final = view(
    "scheduling",
    _ACQUIRED,
    parts=lambda record, _seen: [((), _opaque(inventory_in(record)))],
    fold=lambda old, text, _record, _seen: text or old,
)
"""A single state: the scheduling key of the inventory's R in RFC 28, as JSON text."""


@RULES.judge("20.scheduling.6", _ACQUIRED, views=[SCHEDULING])
def scheduling_rides_along(record: Record, seen: Seen) -> Finding:
    inventory, before = inventory_in(record), seen.at(SCHEDULING)
    if inventory is None or before is None:
        return None
    now = _opaque(inventory)
    if now == before:
        return True
    return Broken(f"resources: scheduling: expected {before:.80} unchanged, got {now!s:.80}")


# --- R and the end of a job


_ENDINGS: Final = logged("finish", "exception")
_CLOCK_S: Final = 1e-3  # clocks round: 820.999999 is not before 821


def _is_timeout(record: Record) -> bool:
    return context_of(record).get("type") == "timeout"


@RULES.judge("20.overview.5", _ENDINGS, views=[END, CLOCK, RAISING])
def exec_goes_by_the_updated_expiration(record: Record, seen: Seen) -> Finding:
    first, now, n, since = seen.at(END, job_id(record)) or (None, None, 0, 0)
    if first == now or not isinstance(now, (int, float)) or not isinstance(first, (int, float)):
        return None
    # Which steps of the clock the service has counted is known only roughly: a service that was
    # asked again may have counted those since the first time.
    raising = raised_by(seen, job_id(record))
    places = (since, max(since, raising.taken), max(since, raising.answered))
    t = record.t - min([stepped(seen, place) for place in places])
    if _is_timeout(record) and (not now or t < now - _CLOCK_S):
        if has_crossed(seen, job_id(record), n):
            return None
        text = f"job {job_id(record)}: timeout at {record.t}, but its expiration is now {now}"
        return Broken(text, (n,))
    return t > first or None


def _is_not_timed(clause: str, what: str, absent: bool) -> None:
    @RULES.judge(clause, _ENDINGS, views=[END, RAISING])
    def judge(record: Record, seen: Seen) -> Finding:
        end = seen.at(END, job_id(record))
        if end is None or end[1] or (end[1] is None) != absent:
            return None
        if _is_timeout(record):
            if has_crossed(seen, job_id(record), end[2]):
                return None
            return Broken(f"job {job_id(record)}: timeout, but its expiration is {what}", (end[2],))
        return payload(record).get("name") == "finish"


_is_not_timed("20.expiration.3", "0, which means unset", absent=False)
_is_not_timed("20.expiration.6", "unset", absent=True)
