"""Views of RFC 27 from the scheduler's side: its inventory, its requests and its responses.

Messages about a job before the scheduler's last hello are void.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.jobspecs import ENVIRONMENT, known_by_value, system
from flux_trio.judge.checks.satisfying import Needs, needs_of
from flux_trio.judge.checks.shapes import JOB_ID, PRIORITY, USERID, members, part
from flux_trio.judge.engine.rule import Broken
from flux_trio.judge.engine.selector import (
    BROKER,
    EVENT,
    OWN,
    RECV,
    errnum,
    job_id,
    logged,
    noted,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, Trait, view
from flux_trio.judge.views.acquiring import change_of
from flux_trio.judge.views.jobs import LIFE
from flux_trio.judge.views.resource_sets import carried, is_part, resources_in
from flux_trio.judge.views.resources import AS_RECEIVED, as_received
from flux_trio.judge.views.scheduling import FINAL, LINK, Link, link_of, refusal_of
from flux_trio.judge.views.traits import CARRIES_R
from flux_trio.messages import Request, topics
from flux_trio.trace import Kind, Record

STATE: Final[str] = Kind.STATE.value

# --- the scheduler's inventory


class Inventory(Live, frozen=True, gc=False):
    """The resources that a scheduler has acquired."""

    ncores: int = 0
    """The number of all cores that it ever had."""
    expiration: float = 0.0
    """The end of the instance in seconds since the Unix epoch; 0.0 if it has none."""
    lessened: Place = 0
    """The record at which the scheduler last received a shrink, or another end of the instance."""


def _fold_inventory(had: Inventory | None, _part: None, record: Record, _seen: Seen) -> Inventory:
    had = had or Inventory()
    if topic_of(record) == topics.SCHED_HELLO:
        return had
    change = change_of(payload(record))
    resources = resources_in(change.resources)
    expiration = change.expiration
    if resources is not None:
        had, expiration = had.but(ncores=had.ncores + resources.ncores), resources.expiration
    is_same = expiration is None or expiration == had.expiration
    if change.shrunk or not is_same:
        had = had.but(lessened=record.n)
    return had if is_same else had.but(expiration=expiration)


INVENTORY: Final = view(
    "inventory",
    received("response", topics.RESOURCE_ACQUIRE),
    key=lambda record: record.party,
    fold=_fold_inventory,
)
"""The `Inventory` of each peer that acquires: a scheduler does so before its first hello."""


def inventory_of(seen: Seen) -> Inventory:
    """Return what was acquired for the scheduler that is there."""
    found: Inventory | None = seen.states[INVENTORY].get(seen.facts.acquirer)
    return found or Inventory()


# --- requests to the scheduler, and its responses


class SchedJob(Live, frozen=True, gc=False):
    """A job as the scheduler knows it. The fields with places are record numbers, 0 for what has
    not happened.
    """

    alloc: Place = 0
    """The record at which the scheduler received the open sched.alloc; 0 once its final answer was
    sent."""
    cores_min: int = 0
    """The minimum number of cores that the job requests."""
    environment: bool = True
    """Whether the jobspec in the request has the job's environment."""
    needs: Needs | None = None
    """What the job needs at least; None if its request cannot be read: it may be denied."""
    is_simple: bool = False
    """Whether the job requests one slot of one core without constraints: it fits anywhere."""
    cancel: Place = 0
    """The record at which the scheduler received a sched.cancel of the open request."""
    idle_cancel: Place = 0
    """The record at which it received a sched.cancel when no request was open."""
    ended: Place = 0
    """The record of the last final answer; `how` has its type."""
    how: int = -1
    canceled: Place = 0
    """The record of the sched.cancel that the last CANCEL has answered."""
    was_asked: Place = 0
    """The record of the sched.alloc that the last CANCEL has answered."""
    held: Place = 0
    """The record since which the job has resources: of SUCCESS, or of the response to hello that
    names the job. It is 0 again when its free was answered or, in the current edition, its final
    free received."""
    free: Place = 0
    """The record at which the scheduler received a sched.free that it has not answered; the current
    edition has no answer."""


UNKNOWN: Final = SchedJob()


def _fold_sched_job(
    known: SchedJob | None, _part: None, record: Record, seen: Seen
) -> SchedJob | None:
    known = _not_void(known or UNKNOWN, link_of(seen))
    if record.kind == EVENT:
        return known if known.alloc or known.held or known.free else None
    if record.kind == RECV:
        return _after_request(known, record, link_of(seen))
    if errnum(record) or record.party != seen.facts.scheduler:
        return known
    if topic_of(record) == topics.SCHED_FREE:
        over = seen.at(LIFE, job_id(record)) is None
        return None if over else known.but(free=0, held=0)
    return _after_answer(known, record, seen)


def _after_request(known: SchedJob, record: Record, link: Link) -> SchedJob:
    n = record.n
    if topic_of(record) == topics.SCHED_HELLO:
        return known if errnum(record) else known.but(held=n)
    if link.hello_sent > link.hello or (record.ref or n) < link.hello:
        return known  # it was meant for the scheduler before this one
    match topic_of(record):
        case topics.SCHED_ALLOC:
            jobspec = part(payload(record), "jobspec", dict)
            return known.but(
                alloc=n,
                cancel=0,
                idle_cancel=0,
                cores_min=cores_min(jobspec.get("resources")),
                needs=needs_of(jobspec) if _is_in_form(payload(record)) else None,
                environment=ENVIRONMENT in system(jobspec),
                is_simple=_is_simple(jobspec),
            )
        case topics.SCHED_CANCEL if known.alloc:
            return known.but(cancel=n)
        case topics.SCHED_CANCEL:
            return known.but(idle_cancel=n)
    if carried(record) is None:
        is_answered = isinstance(record.message, Request) and record.message.wants_response
        return known.but(free=n) if is_answered else known
    return known if is_part(record) else known.but(held=0)


def _is_in_form(asked: dict[str, Any]) -> bool:
    """Whether id, priority and owner in a sched.alloc are as RFC 27 wants them."""
    shapes = {"id": JOB_ID, "priority": PRIORITY, "userid": USERID}
    return all(shape.fits(asked.get(key)) for key, shape in shapes.items())


def _after_answer(known: SchedJob, record: Record, seen: Seen) -> SchedJob | None:
    how = payload(record).get("type")
    if how not in FINAL:
        return known
    if seen.at(LIFE, job_id(record)) is None and how:
        return None
    n = record.n
    return known.but(
        alloc=0,
        cancel=0,
        ended=n,
        how=how,
        canceled=known.cancel or n if how == 3 else known.canceled,
        was_asked=known.alloc if how == 3 else known.was_asked,
        held=n if how == 0 else known.held,
    )


def _not_void(known: SchedJob, link: Link) -> SchedJob:
    """Drop the requests to an earlier scheduler, or over an earlier link."""
    since = link.hello_sent
    is_of_now = known.alloc > since or known.held > since or known.ended > since
    if is_of_now or known.free > since or known.idle_cancel > since:
        is_void = 0 < known.canceled <= since
        return known.but(canceled=0) if is_void else known
    return UNKNOWN


SCHED_JOBS: Final = view(
    "jobs of the scheduler",
    received("request", topics.SCHED_ALLOC, topics.SCHED_CANCEL, topics.SCHED_FREE),
    received("response", topics.SCHED_HELLO),
    sent("response", topics.SCHED_ALLOC, topics.SCHED_FREE),
    logged("clean"),
    key=job_id,
    fold=_fold_sched_job,
    reads=(LINK, LIFE),
)
"""A `SchedJob` for each job that the scheduler knows, by job id."""


def sched_job(seen: Seen, jobid: Any) -> SchedJob:
    """Return the state of SCHED_JOBS for a job."""
    known: SchedJob | None = seen.at(SCHED_JOBS, jobid)
    return UNKNOWN if known is None else _not_void(known, link_of(seen))


def _freed_just_now(record: Record, seen: Seen) -> Iterable[tuple[Any, Any]]:
    if record.kind == STATE:
        is_its = record.party == seen.facts.scheduler
        return [(jobid, None) for jobid in seen.all(FREED_JUST_NOW)] if is_its else []
    is_last = carried(record) is not None and not is_part(record)
    return [(job_id(record), record.n)] if is_last else []


FREED_JUST_NOW: Final = view(
    "freed just now",
    received("request", topics.SCHED_FREE, mark=CARRIES_R),
    while_live(OWN, noted(Kind.STATE)),
    parts=_freed_just_now,
    fold=lambda _had, n, _record, _seen: n,
    state=Place,
)
"""By job id: the last free, which has no answer, that the scheduler has received since it told its
state. It may tell the state first, and then handle the free."""


class Answering(Live, frozen=True, gc=False):
    """The properties of a response about a job's resources at its send, of the job's request, and
    of the link between the two services.
    """

    topic: str
    type: int
    """The type of a response to sched.alloc; -1 for an error, or for a type that RFC 27 does not
    have."""
    is_error: bool
    has_text: bool
    """Whether the response is an error, or has a note."""
    has_id: bool
    is_of_scheduler: bool
    """Whether the scheduler sends it."""
    is_ready: bool
    """Whether sched-ready of the scheduler was answered."""
    is_departed: bool
    """Whether the scheduler has left, and no other party sends the response in its place."""
    is_refused: bool
    """Whether sched-ready was answered with an error."""
    is_without: bool
    """The resource service has refused what the sender asked."""
    has_offline: bool
    """Whether targets that the sender has acquired are offline."""
    is_open: bool
    """Whether the scheduler has received sched.alloc and has sent no final answer."""
    is_freeing: bool
    """Whether the scheduler has received sched.free and has not answered it."""
    is_canceled: bool
    """Whether the scheduler has received sched.cancel since sched.alloc."""
    is_idle_canceled: bool
    """Whether the scheduler received a sched.cancel when no request was open."""
    was_canceled: bool
    """Whether an earlier request of the job was answered with CANCEL."""
    has_ended: bool
    """Whether a final answer was sent, to this request or to an earlier one."""
    how: int
    """The type of the last final answer; -1 if there was none."""
    has_environment: bool
    """Whether the jobspec in the request has the job's environment."""
    is_too_large: bool
    """Whether the request can never be met by the inventory."""

    @property
    def is_of_job(self) -> bool:
        """Whether the scheduler answers for a job, without an error."""
        return self.is_of_scheduler and not self.is_error and self.has_id


def another_after(final: str, record: Record, seen: Seen) -> Broken:
    """Return the violation of a response after the `final` one of its request."""
    jobid = job_id(record)
    names = {0: "SUCCESS", 1: "ANNOTATE", 2: "DENY", 3: "CANCEL"}
    what = names.get(payload(record).get("type", -1), "response")
    text = f"job {jobid}: another {what} after {final}"
    return Broken(text, (sched_job(seen, jobid).ended,), party=record.party)


def _answering(record: Record, seen: Seen) -> Answering:
    facts, link, jobid, content = seen.facts, link_of(seen), job_id(record), payload(record)
    known: SchedJob = seen.states[SCHED_JOBS].get(jobid) or UNKNOWN
    known, had = _not_void(known, link), as_received(seen, record.party)
    type_, is_error = content.get("type"), errnum(record) != 0
    return Answering(
        topic_of(record),
        type_ if type(type_) is int and 0 <= type_ <= 3 and not is_error else -1,
        is_error,
        is_error or "note" in content,
        jobid is not None,
        record.party == facts.scheduler or _is_of_unseen(record, seen),
        facts.is_ready,
        link.gone > link.hello_sent and facts.scheduler in ("", record.party),
        refusal_of(link, topics.SCHED_READY) > 0,
        had is not None and (had.failed != 0 or had.release_failed != 0),
        had is not None and bool(had.offline),
        known.alloc != 0,
        known.free != 0,
        known.cancel != 0,
        known.idle_cancel != 0,
        known.canceled != 0,
        known.ended != 0,
        known.how,
        known.environment,
        shortfall(known, seen) != "",
    )


def _is_of_unseen(record: Record, seen: Seen) -> bool:
    """Whether a module answers as the scheduler whose hello was before the trace."""
    facts = seen.facts
    is_unseen = not facts.begins and not facts.scheduler and not link_of(seen).gone
    return is_unseen and record.party != BROKER


def shortfall(known: SchedJob, seen: Seen) -> str:
    """Return why an open request can never be met; "" if that is uncertain."""
    inventory = inventory_of(seen)
    if not known.alloc or not inventory.ncores or known.cores_min <= inventory.ncores:
        return ""
    return f"needs {known.cores_min} cores of the {inventory.ncores} that the scheduler has"


ANSWERING: Final = Trait(
    "answering",
    tuple(sent("response", topics.SCHED_ALLOC, topics.SCHED_FREE)),
    _answering,
    lambda: (SCHED_JOBS, LINK, INVENTORY, AS_RECEIVED),
)


@known_by_value
def cores_min(vertices: object) -> int:
    """Return the minimum number of cores of a jobspec's resources (RFC 14)."""
    return _cores_min(vertices)


def _cores_min(vertices: object) -> int:
    return sum(_vertex_cores_min(vertex) for vertex in members(vertices))


def _vertex_cores_min(vertex: dict[str, Any]) -> int:
    count = vertex.get("count")
    if isinstance(count, dict):
        count = count.get("min")
    count = count if type(count) is int else 1
    return count * (1 if vertex.get("type") == "core" else _cores_min(vertex.get("with")))


def _is_simple(jobspec: dict[str, Any]) -> bool:
    slots = part(jobspec, "resources", list)
    return bool(_is_one_core(slots)) and "constraints" not in system(jobspec)


@known_by_value
def _is_one_core(slots: list[Any]) -> bool:
    """Whether a jobspec's resources are one slot of one core."""
    cores = [vertex for slot in members(slots) for vertex in members(slot.get("with"))]
    found = [(vertex.get("type"), vertex.get("count")) for vertex in (*members(slots), *cores)]
    return found == [("slot", 1), ("core", 1)]
