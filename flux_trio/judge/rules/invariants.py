"""Invariants of every instance that no single clause states: resources, requests, events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flux_trio.formats import ResourceSet
from flux_trio.judge.checks.shapes import arrays
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ANY_TOPIC,
    job_id,
    logged,
    noted,
    payload,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.durable import DURABLE, is_durable
from flux_trio.judge.views.eventlogs import LOG, LOGGING, Logging, broken_event, log_of
from flux_trio.judge.views.granting import FREED_JUST_NOW, SCHED_JOBS, SchedJob, sched_job
from flux_trio.judge.views.holding import (
    CLAIMS,
    OVERLAPS,
    WRITTEN,
    Claim,
    Written,
    grant_in,
    overlaps,
)
from flux_trio.judge.views.jobs import CLEANUP, DEPEND, LIFE, NEW, PRIORITY, RUN, SCHED, Life
from flux_trio.judge.views.raising import RAISED
from flux_trio.judge.views.resource_sets import resources_in
from flux_trio.judge.views.resources import as_received
from flux_trio.judge.views.scheduling import (
    ASKED,
    DENIES,
    LINK,
    REQUESTING,
    SUCCESS,
    SUCCESSES,
    Requesting,
    asked_of,
    is_freeing,
    link_of,
)
from flux_trio.judge.views.serving import SERVING, denied_though_served
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

RULES: Final = Rules()

ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE


def _granted_unfreed(seen: Seen) -> Iterable[Broken]:
    """Yield the jobs whose sched.free is due since their resources are another's."""
    claims: Mapping[Any, Claim] = seen.all(CLAIMS)
    for jobid, claim in claims.items():
        text = f"job {jobid}: free event and no sched.free, and job {claim.jobid} has its resources"
        yield Broken(text, (claim.freed, claim.n), party=seen.facts.manager, job=jobid)


@RULES.judge(
    "invariant.no-double-allocation",
    SUCCESSES,
    while_live(CLAIMS, sent("request", FREE)),
    views=(*OVERLAPS, CLAIMS),
    debts=_granted_unfreed,
)
def no_resource_is_in_two_allocations(record: Record, seen: Seen) -> Finding:
    """No core or gpu is in two allocations at once. An allocation lasts from the scheduler's
    SUCCESS until it receives the free.
    """
    jobid = job_id(record)
    if topic_of(record) == FREE:
        claim: Claim | None = seen.at(CLAIMS, jobid)
        if claim is None:
            return None
        text = f"job {claim.jobid}: was granted what job {jobid} had until its sched.free"
        return Broken(text, (claim.n,), party=seen.facts.scheduler, job=claim.jobid)
    if jobid is None or payload(record).get("type") != SUCCESS:
        return None
    for other, grant in overlaps(record, seen):
        text = f"job {jobid}: is granted cores or gpus that job {other} has"
        return Broken(text, (grant.since,), party=record.party)
    return grant_in(record, seen) is not None


@RULES.by(
    REQUESTING, "invariant.freed-once", logged("free"), sent("request", FREE), views=[LIFE, ASKED]
)
def an_allocation_is_freed_once(
    requesting: Requesting | None, record: Record, seen: Seen
) -> Finding:
    """An allocation is freed once. A grant that came too late for its job is freed too, without an
    event.
    """
    if requesting is not None and requesting.is_held:
        return True
    jobid = job_id(record)
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or life.held or asked_of(seen, jobid).granted:
        return life is not None
    what = topic_of(record) or "free event"
    return Broken(f"job {jobid}: {what}, and it holds no resources", party=record.party)


@RULES.by(LOGGING, "invariant.prolog-ends-first", logged("free", "clean"), views=[LOG])
def a_prolog_ends_before_its_job(logging: Logging, record: Record, seen: Seen) -> Finding:
    """The resources of a job are not freed, and the job does not end, while its prolog runs."""
    log = log_of(record, seen)
    if log is None or not logging.state:
        return None
    if not log.prologs:
        return True
    (description, n), *_ = log.prologs
    text = f"expected after the prolog-finish event of {description!r}"
    return broken_event(record, text, n)


@RULES.by(REQUESTING, "invariant.one-in-flight", sent("request", ALLOC, FREE), views=[ASKED])
def a_job_has_one_request_in_flight(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    if not requesting.is_pending and not requesting.is_freeing:
        return True
    asked = asked_of(seen, job_id(record))
    is_alloc = requesting.is_pending
    topic, n = ("sched.alloc", asked.alloc) if is_alloc else ("sched.free", asked.free)
    text = f"job {job_id(record)}: {topic_of(record)} while its {topic} is open"
    return Broken(text, (n,), party=record.party)


@RULES.by(REQUESTING, "invariant.held-job-waits", sent("request", ALLOC), views=[LIFE, DURABLE])
def a_held_job_waits(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    """No resources are requested for a job of priority 0; urgency 0 gives this priority."""
    if requesting.state != SCHED:
        return None
    life: Life = seen.states[LIFE][job_id(record)]
    if life.priority or not is_durable(seen, record.party, life.prioritized):
        return True
    text = f"job {job_id(record)}: has priority 0: expected no sched.alloc while it is held"
    return Broken(text, (life.prioritized,), party=record.party)


@RULES.judge("invariant.denied-although-satisfiable", DENIES, views=SERVING)
def what_the_inventory_can_serve_is_not_denied(record: Record, seen: Seen) -> Finding:
    """No request is denied that the scheduler can meet when all that it has acquired is free."""
    jobid, had = job_id(record), as_received(seen, record.party)
    said = denied_though_served(record, seen)
    if had is None or not said:
        return None if said is None else True
    known = sched_job(seen, jobid)
    down = f" when targets {had.offline} are back" if had.offline else ""
    text = f"job {jobid}: is denied, though the inventory can serve it{down}"
    return Broken(text, (known.alloc, had.changed), party=record.party)


# RFC 21: events of certain states; the others may come at any time before INACTIVE.
BELONGS: Final[dict[str, tuple[str, ...]]] = {
    "validate": (NEW,),
    "depend": (DEPEND,),
    "priority": (PRIORITY, SCHED),
    "alloc": (SCHED,),
    "start": (RUN, CLEANUP),
    "finish": (RUN, CLEANUP),
    "release": (RUN, CLEANUP),
    "free": (CLEANUP,),
    "clean": (CLEANUP,),
}
NEEDS_RESOURCES: Final = ("start", "finish", "release", "free", "resource-update")


@RULES.by(LOGGING, "invariant.event-order", logged(ANY_TOPIC), views=[LIFE])
def events_come_in_the_order_of_states(logging: Logging, record: Record, seen: Seen) -> Finding:
    name, state = logging.name, logging.state
    if not state:
        return None
    text = ""
    if name == "submit" and logging.is_owned:
        text = "a second submit event"
    elif state not in BELONGS.get(name, (state,)):
        text = f"{name} event in {state}"
    elif name in NEEDS_RESOURCES and not logging.is_held:
        text = f"{name} event without resources"
    if not text:
        return True
    jobid = job_id(record)
    return Broken(f"job {jobid}: {text}", (seen.at(LIFE, jobid).since,), party=record.party)


def _holders(seen: Seen) -> set[Any]:
    """Return the jobs that hold resources by the eventlogs and whose sched.free was not sent."""
    return {
        jobid
        for jobid, life in seen.all(LIFE).items()
        if life.held and not is_freeing(asked_of(seen, jobid), seen)
    }


def _scheduler_holders(seen: Seen) -> dict[Any, bool]:
    """Return the jobs that hold resources by the messages that the scheduler sent and received.

    The value is False if the scheduler may not hold them: it has received the free and may have
    handled it, or it may have refused the job.
    """
    held = [jobid for jobid, job in seen.all(SCHED_JOBS).items() if job.held]
    known = {jobid: sched_job(seen, jobid) for jobid in held}
    return {
        jobid: not job.free and not _may_be_refused(jobid, job, seen)
        for jobid, job in known.items()
        if job.held
    }


def _may_be_refused(jobid: Any, job: SchedJob, seen: Seen) -> bool:
    """Return whether hello told of the job and somebody has raised an exception of it since.

    The scheduler does so if it cannot hold the resources of the job.
    """
    return job.held > job.ended and (seen.at(RAISED, jobid) or 0) > link_of(seen).hello


def _allocated(account: Any) -> dict[int, ResourceSet | None]:
    """Return the resources of each job in the scheduler's `state` record."""
    return {jobid: resources_in(r) for jobid, r in arrays(account, 2) if type(jobid) is int}


@RULES.judge(
    "invariant.scheduler-agrees",
    noted(Kind.STATE),
    views=[LIFE, ASKED, SCHED_JOBS, FREED_JUST_NOW, WRITTEN, LINK, RAISED],
)
def the_scheduler_knows_who_has_what(record: Record, seen: Seen) -> Finding:
    """The jobs that hold resources are the same in the scheduler's `state` record and by its
    messages; checked after each sched-ready and at rest.

    A job whose SUCCESS or free is still on its way is held on one side only.
    """
    state = payload(record)
    if state.get("service") != topics.SCHED or record.party != seen.facts.scheduler:
        return None
    allocated = _allocated(state.get("allocated"))
    known = _scheduler_holders(seen)
    surely = {jobid for jobid in _holders(seen) if known.get(jobid)}
    may_be = known.keys() | seen.all(FREED_JUST_NOW).keys()
    wrong = sorted(allocated.keys() - may_be) + sorted(surely - allocated.keys())
    if wrong:
        text = f"allocated to {sorted(allocated)}; by the messages, to {sorted(known)}"
        text = f"the scheduler's account is wrong about job {wrong[0]}: {text}"
        return Broken(text, party=record.party)
    for jobid, resources in allocated.items():
        written: Written | None = seen.at(WRITTEN, jobid)
        if written is not None and resources is not None and written.resources != resources:
            text = f"job {jobid}: R in the scheduler's account is not the one it stored"
            return Broken(text, (written.n,), party=record.party)
    return True
