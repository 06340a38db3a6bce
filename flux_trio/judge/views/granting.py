"""Views of RFC 27 from the scheduler's side: its inventory, its requests and its responses.

Messages about a job before the scheduler's last hello are void.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.jobspecs import known_by_value
from flux_trio.judge.engine.leg import (
    EVENT,
    RECV,
    errnum,
    job_id,
    logged,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.place import Place
from flux_trio.judge.engine.view import Live, Seen, view
from flux_trio.judge.views.jobs import LIFE
from flux_trio.judge.views.resource_sets import resources_in
from flux_trio.judge.views.scheduling import FINAL, LINK, Link, link_of
from flux_trio.messages import topics
from flux_trio.trace import Record

# --- the scheduler's inventory


class Inventory(Live, frozen=True, gc=False):
    """The resources that a scheduler has acquired."""

    ncores: int = 0
    """All that it ever had."""
    expiration: float = 0.0
    """Of the instance; 0.0 for none."""
    shrunk: Place = 0
    """The record at which it last received a shrink."""


def _fold_inventory(had: Inventory | None, _part: None, record: Record, _seen: Seen) -> Inventory:
    had = had or Inventory()
    if topic_of(record) == topics.SCHED_HELLO:
        return had
    told = payload(record)
    if told.get("type") == "shrink":
        return had.but(shrunk=record.n)
    resources = resources_in(told.get("resources"))
    if resources is None:
        return had
    ncores = had.ncores + resources.ncores
    return had.but(ncores=ncores, expiration=resources.expiration)


def _to_scheduler(record: Record, seen: Seen) -> Iterable[tuple[tuple[()], None]]:
    """Other peers may acquire too; the scheduler does so before its first hello."""
    known = seen.facts.scheduler
    return [((), None)] if not known or record.party == known else []


INVENTORY: Final = view(
    "inventory",
    received("response", topics.RESOURCE_ACQUIRE),
    parts=_to_scheduler,
    fold=_fold_inventory,
)
"""One state."""

# --- requests to the scheduler, and its responses


class Told(Live, frozen=True, gc=False):
    """A job as the scheduler knows it; record numbers, 0 for no record."""

    alloc: Place = 0
    """sched.alloc was taken up; no final answer was sent."""
    cores_min: int = 0
    """The minimum that it requests."""
    environment: bool = True
    """The request has the job's environment."""
    cancel: Place = 0
    """sched.cancel was taken up since, the request being open."""
    idle_cancel: Place = 0
    """sched.cancel was taken up and no request was open."""
    ended: Place = 0
    """The last final answer, and its type."""
    how: int = -1
    canceled: Place = 0
    """The last CANCEL."""
    held: Place = 0
    """It has resources: SUCCESS was sent or hello told of it, and no free was answered."""
    free: Place = 0
    """sched.free was taken up and not answered."""


UNKNOWN: Final = Told()


def _fold_told(told: Told | None, _part: None, record: Record, seen: Seen) -> Told | None:
    told = _not_void(told or UNKNOWN, link_of(seen))
    if record.kind == EVENT:
        return told if told.alloc or told.held or told.free else None
    if record.kind == RECV:
        return _after_request(told, record)
    if errnum(record) or record.party != seen.facts.scheduler:
        return told
    if topic_of(record) == topics.SCHED_FREE:
        over = seen.at(LIFE, job_id(record)) is None
        return None if over else told.but(free=0, held=0)
    return _after_answer(told, record, seen)


def _after_request(told: Told, record: Record) -> Told:
    n = record.n
    match topic_of(record):
        case topics.SCHED_HELLO:
            return told if errnum(record) else told.but(held=n)
        case topics.SCHED_ALLOC:
            jobspec = payload(record).get("jobspec")
            jobspec = jobspec if isinstance(jobspec, dict) else {}
            return told.but(
                alloc=n,
                cancel=0,
                idle_cancel=0,
                cores_min=cores_min(jobspec.get("resources")),
                environment=_has_environment(jobspec),
            )
        case topics.SCHED_CANCEL if told.alloc:
            return told.but(cancel=n)
        case topics.SCHED_CANCEL:
            return told.but(idle_cancel=n)
    return told.but(free=n)


def _after_answer(told: Told, record: Record, seen: Seen) -> Told | None:
    how = payload(record).get("type")
    if how not in FINAL:
        return told
    if seen.at(LIFE, job_id(record)) is None and how:
        return None
    n = record.n
    return told.but(
        alloc=0,
        cancel=0,
        ended=n,
        how=how,
        canceled=n if how == 3 else told.canceled,
        held=n if how == 0 else told.held,
    )


def _not_void(told: Told, link: Link) -> Told:
    """Drop the requests to an earlier scheduler, or over an earlier link."""
    since = link.hello_sent
    if max(told.alloc, told.ended, told.held, told.free, told.idle_cancel) > since:
        is_void = 0 < told.canceled <= since
        return told.but(canceled=0) if is_void else told
    return UNKNOWN


TOLD: Final = view(
    "told",
    received("request", topics.SCHED_ALLOC, topics.SCHED_CANCEL, topics.SCHED_FREE),
    received("response", topics.SCHED_HELLO),
    sent("response", topics.SCHED_ALLOC, topics.SCHED_FREE),
    logged("clean"),
    key=job_id,
    fold=_fold_told,
    reads=(LINK, LIFE),
)
"""By job id."""


def told_of(seen: Seen, jobid: Any) -> Told:
    """Return the state of TOLD for a job."""
    told: Told | None = seen.at(TOLD, jobid)
    return UNKNOWN if told is None else _not_void(told, link_of(seen))


@known_by_value
def cores_min(vertices: object) -> int:
    """Return the minimum number of cores of a jobspec's resources (RFC 14)."""
    return _cores_min(vertices)


def _cores_min(vertices: object) -> int:
    if not isinstance(vertices, list):
        return 0
    return sum(_vertex_cores_min(vertex) for vertex in vertices if isinstance(vertex, dict))


def _vertex_cores_min(vertex: dict[str, Any]) -> int:
    count = vertex.get("count")
    if isinstance(count, dict):
        count = count.get("min")
    count = count if type(count) is int else 1
    return count * (1 if vertex.get("type") == "core" else _cores_min(vertex.get("with")))


def _has_environment(jobspec: dict[str, Any]) -> bool:
    attributes = jobspec.get("attributes")
    system = attributes.get("system") if isinstance(attributes, dict) else None
    return isinstance(system, dict) and "environment" in system
