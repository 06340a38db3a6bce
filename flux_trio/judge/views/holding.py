"""Views of the scheduler's grants: R of each job, and the resources in use.

R is read from the scheduler's commits to the KVS and, in the current edition, from SUCCESS; a trace
without both has no grants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from flux_trio.formats import ResourceSet
from flux_trio.judge.checks.shapes import idset_of
from flux_trio.judge.engine.selector import (
    EVENT,
    OWN,
    SEND,
    errnum,
    job_id,
    logged,
    message,
    no_key,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, View, seen_once, view
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.jobs import LIFE
from flux_trio.judge.views.resource_sets import ALLOCATING, booked_in, carried, committed, is_part
from flux_trio.judge.views.scheduling import LINK, link_of, scheduler_lost
from flux_trio.judge.views.traits import CARRIES_R, WITH_R, says
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Record

Rpc = tuple[str, str, int]
"""Client, topic and matchtag."""


def _rpc(record: Record) -> Rpc:
    found = message(record)
    assert isinstance(found, (Request, Response))
    return (record.party, found.topic, found.matchtag)


class Written(NamedTuple):
    """The R of a job as it was put into the KVS."""

    n: Place
    """The record of the commit that has it."""
    rpc: Rpc
    resources: ResourceSet | None
    """The resource set; None if the value is not an R."""
    stored: ResourceSet | None
    """The resource set that is in the KVS, which may differ from that of SUCCESS."""


def _is_schedulers(record: Record, seen: Seen) -> bool:
    """Whether a commit of R is the scheduler's: the job manager writes what plugins allocate.

    When the job manager has gone, nobody is its scheduler, which may not have heard of that yet.
    """
    scheduler = seen.facts.scheduler
    return record.party == scheduler or (not scheduler and record.party != seen.facts.manager)


def _is_for_scheduler(record: Record, jobid: int, seen: Seen) -> bool:
    """Whether R may be stored for the scheduler: by itself, or as it has to decide about the job.

    It may have another connection for that.
    """
    if _is_schedulers(record, seen):
        return True
    return record.party != seen.facts.manager and sched_job(seen, jobid).alloc > 0


def _written(record: Record, seen: Seen) -> Iterable[tuple[int, Any]]:
    if topic_of(record) in topics.COMMITS:
        return [
            (jobid, None if r is None else r.value)
            for jobid, r in committed(record)
            if _is_for_scheduler(record, jobid, seen)
        ]
    found = job_id(record)
    if found is None:
        return []
    is_grant = topic_of(record) == topics.SCHED_ALLOC
    return [(found, carried(record) if is_grant else None)]


def _fold_written(before: Written | None, r: Any, record: Record, seen: Seen) -> Written | None:
    if r is not None:
        found = booked_in(r)
        stored = found if before is None or topic_of(record) in topics.COMMITS else before.stored
        return Written(record.n, _rpc(record), found, stored)
    if topic_of(record) == topics.SCHED_FREE:
        is_over = seen.at(LIFE, job_id(record)) is None and not is_part(record)
        return None if is_over else before
    job = sched_job(seen, job_id(record))
    is_needed = record.kind == EVENT and (job.held or job.alloc)  # its free is on the way
    return before if is_needed else None


WRITTEN: Final = view(
    "written",
    ALLOCATING,
    sent("response", topics.SCHED_FREE),
    received("request", topics.SCHED_FREE, mark=CARRIES_R),
    logged("clean"),
    parts=_written,
    fold=_fold_written,
    reads=(LIFE, LINK, SCHED_JOBS),
)
"""By job id: R that the scheduler wrote, until the job is inactive and its R is freed."""


def _commits(record: Record, seen: Seen) -> Iterable[tuple[Rpc, None]]:
    """A commit, or the answer to one that the view knows."""
    rpc = _rpc(record)
    if record.kind != SEND:
        return [(rpc, None)]
    is_its = any(_is_for_scheduler(record, jobid, seen) for jobid, _ in committed(record))
    return [(rpc, None)] if is_its else []


class Commit(Live, frozen=True, gc=False):
    """A commit of an R whose answer has not come, or that was refused."""

    n: Place
    is_refused: bool = False


def _fold_commits(had: Commit | None, _part: None, record: Record, _seen: Seen) -> Commit | None:
    if record.kind == SEND:
        return Commit(record.n)
    return Commit(had.n, is_refused=True) if had is not None and errnum(record) else None


COMMITS: Final = view(
    "commits",
    sent("request", *topics.COMMITS, mark=WITH_R),
    while_live(OWN, received("response", *topics.COMMITS)),
    parts=_commits,
    fold=_fold_commits,
    reads=(LINK, SCHED_JOBS),
)
"""By RPC: the open and the refused commits (`Commit`) that write an R for the scheduler."""


class Grant(Live, frozen=True, gc=False):
    since: Place
    """The record of the SUCCESS, or of the response to hello, that granted it."""
    resources: ResourceSet


def _granted(record: Record, seen: Seen) -> Iterable[tuple[int, None]]:
    """SUCCESS and hello add grants, a received sched.free removes one, ENODATA filters them."""
    topic, jobid = topic_of(record), job_id(record)
    if errnum(record):
        return [(each, None) for each in seen.all(GRANTS)] if topic == topics.SCHED_HELLO else []
    is_other = topic == topics.SCHED_ALLOC and payload(record).get("type") != 0
    return [] if jobid is None or is_other else [(jobid, None)]


def _fold_grant(grant: Grant | None, _part: None, record: Record, seen: Seen) -> Grant | None:
    if topic_of(record) == topics.SCHED_HELLO and errnum(record):
        return grant if grant is not None and grant.since > link_of(seen).hello_sent else None
    return _next_grant(grant, record, seen)


def _next_grant(grant: Grant | None, record: Record, seen: Seen) -> Grant | None:
    """Return a job's grant after a SUCCESS, a hello response or a sched.free."""
    if topic_of(record) != topics.SCHED_FREE:
        return grant_in(record, seen)
    freed = booked_in(carried(record)) if is_part(record) else None
    if grant is None or freed is None:
        return None
    left = grant.resources.difference(freed)
    return grant.but(resources=left) if left else None


def grant_in(record: Record, seen: Seen) -> Grant | None:
    """Return the grant of a SUCCESS or hello response, if its R is in the trace."""
    resources = booked_in(carried(record))
    if resources is None:
        written: Written | None = seen.states[WRITTEN].get(job_id(record))
        resources = None if written is None else written.resources
    if resources is None:
        return None
    freed = idset_of(payload(record).get("free"))  # in a hello response of the current edition
    return Grant(record.n, resources.without_ranks(freed) if freed else resources)


GIVEN_OR_TAKEN: Final = (
    *sent("response", topics.SCHED_ALLOC, topics.SCHED_HELLO),
    *received("request", topics.SCHED_FREE),
)

GRANTS: Final[View] = view(
    "grants", GIVEN_OR_TAKEN, parts=_granted, fold=_fold_grant, reads=(WRITTEN, LINK)
)
"""By job id: the grants, from the scheduler's SUCCESS until it receives the free.

After the end of hello, only the jobs of its responses are kept.
"""


Taken: TypeAlias = frozenset[tuple[int, int]]
"""A bit set of cores or gpus, with the bit set of the ranks on which jobs have just these."""


class InUse(Live, frozen=True, gc=False):
    """All resources that grants hold, as bit sets, to find at once that one is granted twice."""

    cores: Taken = frozenset()
    gpus: Taken = frozenset()


FREE: Final = InUse()


def _changed(in_use: InUse, resources: ResourceSet, *, given: bool) -> InUse:
    cores, gpus = dict(in_use.cores), dict(in_use.gpus)
    for group in resources.groups:
        for taken, bits in ((cores, group.cores), (gpus, group.gpus)):
            if bits:
                ranks = taken.get(bits, 0)
                taken[bits] = ranks | group.ranks if given else ranks & ~group.ranks
                if not taken[bits]:
                    del taken[bits]
    return InUse(frozenset(cores.items()), frozenset(gpus.items()))


def _fold_in_use(in_use: InUse | None, _part: None, record: Record, seen: Seen) -> InUse | None:
    in_use = in_use or FREE
    if topic_of(record) == topics.SCHED_HELLO and errnum(record):
        hello = link_of(seen).hello_sent
        in_use = FREE
        for grant in seen.all(GRANTS).values():
            if grant.since > hello:
                in_use = _changed(in_use, grant.resources, given=True)
        return in_use
    for jobid, _ in _granted(record, seen):
        had: Grant | None = seen.at(GRANTS, jobid)
        has = _next_grant(had, record, seen)
        if had is not None:
            in_use = _changed(in_use, had.resources, given=False)
        if has is not None:
            in_use = _changed(in_use, has.resources, given=True)
    return in_use


IN_USE: Final = view(
    "in use", GIVEN_OR_TAKEN, key=no_key, fold=_fold_in_use, reads=(GRANTS, WRITTEN, LINK)
)
"""A single state: the `InUse` of all GRANTS."""


def _is_in_use(in_use: InUse, resources: ResourceSet) -> bool:
    for group in resources.groups:
        for taken, bits in ((in_use.cores, group.cores), (in_use.gpus, group.gpus)):
            if any(has & bits and ranks & group.ranks for has, ranks in taken):
                return True
    return False


def _fold_logged_free(n: Place | None, _part: None, record: Record, seen: Seen) -> Place | None:
    if record.kind == EVENT:
        return record.n if seen.at(GRANTS, job_id(record)) is not None else None
    return n if is_part(record) else None


LOGGED_FREE: Final = view(
    "logged free",
    logged("free"),
    while_live(OWN, sent("request", topics.SCHED_FREE)),
    key=job_id,
    fold=_fold_logged_free,
    state=Place,
    reads=(GRANTS,),
    clears=scheduler_lost,
)
"""By job id: the record of the job's free event, until a sched.free of the job is sent, which may
be much later."""


@seen_once
def _shared(record: Record, seen: Seen) -> list[tuple[int, Grant]]:
    """Return (job id, grant) of other jobs that hold a resource of this SUCCESS."""
    if payload(record).get("type") != 0 or errnum(record):
        return []
    given = grant_in(record, seen)
    if given is None or not _is_in_use(seen.at(IN_USE) or FREE, given.resources):
        return []
    return [
        (jobid, grant)
        for jobid, grant in seen.all(GRANTS).items()
        if jobid != job_id(record) and not grant.resources.is_disjoint(given.resources)
    ]


def overlaps(record: Record, seen: Seen) -> list[tuple[int, Grant]]:
    """Return (job id, grant) of other jobs that hold a resource of this SUCCESS.

    A job whose free event is logged and whose sched.free was not sent is in CLAIMS instead.
    """
    return [each for each in _shared(record, seen) if seen.at(LOGGED_FREE, each[0]) is None]


class Claim(NamedTuple):
    """Resources of a job that were granted to another job after its free event, before its
    sched.free.
    """

    n: Place
    """The record of the SUCCESS of the other job."""
    jobid: int | None
    freed: Place
    """The record of the free event of the first job."""


def _claims(record: Record, seen: Seen) -> Iterable[tuple[Any, Claim | None]]:
    if topic_of(record) == topics.SCHED_FREE:
        return [(job_id(record), None)]
    logged = [(jobid, seen.at(LOGGED_FREE, jobid)) for jobid, _ in _shared(record, seen)]
    return [(jobid, Claim(record.n, job_id(record), n)) for jobid, n in logged if n]


CLAIMS: Final = view(
    "claims",
    sent("response", topics.SCHED_ALLOC, mark=says(0)),
    while_live(OWN, sent("request", topics.SCHED_FREE)),
    parts=_claims,
    fold=lambda had, claim, _record, _seen: claim and (had or claim),
    state=Claim,
    reads=(LOGGED_FREE, GRANTS, IN_USE, WRITTEN, LINK),
    clears=scheduler_lost,
)
"""A `Claim` by the job whose resources were granted to another one, until its sched.free is sent.
If that is sent, the scheduler did not wait for it; if it never is, the job manager owes it."""

OVERLAPS: Final = (WRITTEN, GRANTS, IN_USE, LINK, LOGGED_FREE)
"""The views that `overlaps` reads."""
