"""RFC 28 for the scheduler: the targets that it may allocate, and the jobs on lost targets.

A scheduler is judged by the messages that it must have handled when it acted (`Seen.knew`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from flux_trio.formats import Idset
from flux_trio.judge.checks.shapes import part
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    BROKER,
    EVENT,
    OWN,
    RECV,
    SEND,
    errnum,
    job_id,
    logged,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, Selector, view
from flux_trio.judge.views.acquiring import NONE
from flux_trio.judge.views.granting import ANSWERING, SCHED_JOBS, Answering, cores_min, sched_job
from flux_trio.judge.views.jobs import LIFE
from flux_trio.judge.views.resource_sets import SeenR, allocated, carried, targets_of
from flux_trio.judge.views.resources import (
    AS_RECEIVED,
    HELD,
    Acquired,
    as_received,
    knew_change,
    surely_took_change,
)
from flux_trio.judge.views.scheduling import DENIES, DENY, LINK, SUCCESS, SUCCESSES, link_of
from flux_trio.judge.views.serving import SERVING, denied_though_served
from flux_trio.judge.views.traits import WITH_R
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

RULES: Final = Rules()

COMMITS: Final = sent("request", *topics.COMMITS, mark=WITH_R)
ALLOC_ANSWER: Final = sent("response", topics.SCHED_ALLOC)
RELEASE: Final = sent("request", topics.RESOURCE_RELEASE)
FREE: Final = received("request", topics.SCHED_FREE)


# --- before anything was acquired


@RULES.judge("28.impl.1", SUCCESSES, views=[AS_RECEIVED])
def acquire_comes_before_allocations(record: Record, seen: Seen) -> Finding:
    """A scheduler acquires resources before it allocates any. It is judged of a scheduler whose
    hello is in the trace, so that its acquire would be, too.
    """
    if payload(record).get("type") != SUCCESS or record.party != seen.facts.scheduler:
        return None
    had = as_received(seen, record.party)
    if had is None:
        return Broken(f"{record.party} allocates, but has not sent resource.acquire")
    is_shown = had.first.matchtag != 0  # else the trace has no flags
    if is_shown and not had.is_streaming:
        return Broken("resource.acquire has no streaming flag", (had.n,))
    return True


@RULES.judge("28.grow.7", DENIES, views=[AS_RECEIVED])
def nothing_is_denied_before_the_first_grow(record: Record, seen: Seen) -> Finding:
    if record.party != seen.facts.scheduler or payload(record).get("type") != DENY:
        return None
    had = as_received(seen, record.party)
    if had is None or had.grown:
        return had is not None
    text = f"job {job_id(record)} is denied, but {record.party} has not heard of any resources"
    return Broken(text, (had.n,))


# --- what is not to be allocated


def _granted_after(n: int, record: Record, seen: Seen) -> list[SeenR]:
    """Return those R in a commit that the scheduler has granted after it must have handled the
    message that it received at record `n`.

    These are all R if there is a proof that it has handled the message by now, or if it took the
    message a second ago; else those of jobs whose alloc requests it received after the message.
    """
    if surely_took_change(seen, record.party, n):
        return allocated(record)
    return [r for r in allocated(record) if sched_job(seen, r.jobid).alloc > n]


def require_avoided(
    rules: Rules,
    clause: str,
    granting: Iterable[Selector],
    which: Callable[[Acquired], Idset],
    what: str,
) -> None:
    """Register `clause`: no R that is granted has one of these targets. `what` says what they are,
    such as offline.
    """

    @rules.judge(clause, granting, views=[AS_RECEIVED, SCHED_JOBS])
    def judge(record: Record, seen: Seen) -> Finding:
        had = as_received(seen, record.party)
        if had is None or not which(had):
            return None
        found = _granted_after(had.lessened, record, seen)
        for r in found:
            if both := (targets_of(r.value) or NONE) & which(had):
                return Broken(f"{r.what}: targets {both} are {what}", (had.lessened,))
        return bool(found) or None


require_avoided(
    RULES, "28.shrink.3", COMMITS, lambda had: had.taken, "shrunk and were not grown again"
)
require_avoided(RULES, "28.offline.3", COMMITS, lambda had: had.offline, "offline")


# --- jobs that hold what was shrunk or is offline


def _holding_shrunk(seen: Seen) -> list[Broken]:
    had = as_received(seen, seen.facts.scheduler)
    if had is None or not had.taken:
        return []
    return [
        Broken(
            f"job {jobid} holds targets {held.targets & had.taken}, which were shrunk, and got no "
            "exception",
            (had.shrunk, held.n),
            job=jobid,
        )
        for jobid, held in seen.all(HELD).items()
        if held.targets & had.taken and (life := seen.at(LIFE, jobid)) and not life.fatal
    ]


def _fold_raising(_n: int | None, _part: None, record: Record, seen: Seen) -> Place | None:
    is_of_scheduler = record.kind == SEND and record.party == seen.facts.scheduler
    return record.n if is_of_scheduler else None


RAISING: Final = view(
    "raised by the scheduler",
    sent("request", topics.JOB_RAISE),
    received("request", topics.JOB_RAISE),
    key=job_id,
    fold=_fold_raising,
)
"""By job id: the record of an exception that the scheduler raises, until the job manager receives
it."""


class Freeing(Live, frozen=True, gc=False):
    """A sched.free of a job on shrunk targets, which the scheduler has received and not
    answered.
    """

    n: Place
    held: Place
    """The record at which the job's R was written, or sent in a response to hello."""
    shrunk: Place
    """The record of the last shrink that the scheduler had received."""
    targets: Idset
    """The shrunk targets that the job held."""
    is_raised: bool
    """Whether the scheduler has raised an exception of the job since that shrink."""


def _fold_freeing(was: Freeing | None, _part: None, record: Record, seen: Seen) -> Freeing | None:
    if not isinstance(record.message, Request):
        return None
    if topic_of(record) == topics.JOB_RAISE:
        is_of_scheduler = record.party == seen.facts.scheduler
        return was.but(is_raised=True) if was is not None and is_of_scheduler else was
    had, held = as_received(seen, record.party), seen.at(HELD, job_id(record))
    if had is None or held is None or not held.targets & had.taken:
        return None
    if carried(record) is not None:
        return None  # in the current edition it has no answer
    is_raised = (seen.at(RAISING, job_id(record)) or 0) > had.shrunk
    return Freeing(record.n, held.n, had.shrunk, held.targets & had.taken, is_raised)


FREEING: Final = view(
    "freeing what was shrunk",
    FREE,
    while_live(OWN, sent("response", topics.SCHED_FREE), sent("request", topics.JOB_RAISE)),
    key=job_id,
    fold=_fold_freeing,
    reads=(AS_RECEIVED, HELD, RAISING),
)
"""The open frees of shrunk targets (`Freeing`), by job id."""


@RULES.judge(
    "28.shrink.4",
    logged("exception"),
    while_live(FREEING, sent("response", topics.SCHED_FREE)),
    views=[AS_RECEIVED, HELD, LIFE, FREEING],
    debts=_holding_shrunk,
)
def holders_of_shrunk_targets_get_an_exception(record: Record, seen: Seen) -> Finding:
    """The scheduler raises an exception of each job on shrunk targets, unless the job was ending
    already.

    It may raise it in the turn in which it receives the free, so it is judged when it has answered.
    """
    if record.kind == EVENT:
        had, held = as_received(seen, seen.facts.scheduler), seen.at(HELD, job_id(record))
        return had is not None and held is not None and bool(held.targets & had.taken)
    freeing, life = seen.at(FREEING, job_id(record)), seen.at(LIFE, job_id(record))
    if freeing is None or life is None or life.fatal or life.since < freeing.shrunk:
        return None
    if freeing.is_raised:
        return True  # the exception and the free crossed
    text = f"job {job_id(record)} held targets {freeing.targets}, which were shrunk"
    return Broken(f"{text}, and ended without an exception", (freeing.shrunk, freeing.held))


def _unfreed(seen: Seen) -> list[Broken]:
    return [
        Broken(
            f"sched.free of job {jobid}, which held shrunk targets, was not answered",
            (freeing.n,),
            job=jobid,
        )
        for jobid, freeing in seen.all(FREEING).items()
    ]


@RULES.judge("28.shrink.5", sent("response", topics.SCHED_FREE), views=[FREEING], debts=_unfreed)
def free_of_shrunk_targets_is_answered(record: Record, seen: Seen) -> Finding:
    """A sched.free of shrunk targets is answered, by the broker if the scheduler is gone before it
    receives it.
    """
    freeing = seen.at(FREEING, job_id(record))
    if freeing is None:
        open_ = list(seen.all(FREEING).values())
        if record.party == BROKER or not errnum(record) or not open_:
            return None
        freeing = open_[0]  # an error cannot name its job
    if not errnum(record):
        return True
    text = f"sched.free of a job that held shrunk targets got error {errnum(record)}"
    return Broken(text, (freeing.n,))


def _unjudged(seen: Seen) -> list[Broken]:
    had = as_received(seen, seen.facts.scheduler)
    if had is None or not had.taken:
        return []
    ncores = ncores_of(had, had.granted)
    since = max(had.n, link_of(seen).ready_sent)  # before, the last scheduler was asked
    return [
        Broken(
            f"job {jobid} asks for {cores} cores, {ncores} are left after a shrink, and it was "
            "not denied",
            (n, had.shrunk),
            job=jobid,
        )
        for jobid, (n, cores) in seen.all(PENDING).items()
        if cores > ncores and n > since
    ]


def ncores_of(had: Acquired, targets: Idset) -> int:
    """Return how many cores these targets have."""
    return sum(len(piece.ranks & targets) * len(piece.cores) for piece in had.pieces)


def _fold_pending(_had: Any, _part: None, record: Record, seen: Seen) -> tuple[Place, int] | None:
    """Where it was asked, and how many cores at least."""
    if isinstance(record.message, Request) and topic_of(record) == topics.SCHED_ALLOC:
        resources = part(payload(record).get("jobspec"), "resources", list)
        return (record.n, cores_min(resources))
    if record.kind == SEND and payload(record).get("type") == 1:
        found = seen.at(PENDING, job_id(record))
        return found if isinstance(found, tuple) else None
    return None


def _of_one_that_ended(record: Record, seen: Seen) -> list[tuple[int, None]]:
    is_gone = seen.facts.is_manager_gone(record)
    return [(jobid, None) for jobid in seen.all(PENDING)] if is_gone else []


PENDING: Final = view(
    "pending requests",
    received("request", topics.SCHED_ALLOC),
    ALLOC_ANSWER,
    logged("clean"),
    key=job_id,
    parts=_of_one_that_ended,
    many=received("request", topics.disconnect_of(topics.SCHED)),
    fold=_fold_pending,
)
"""By job id: the record of its sched.alloc, as long as the scheduler has not answered it finally
and does not know that the job manager has ended."""


@RULES.judge("28.shrink.7", DENIES, views=[AS_RECEIVED, PENDING, LINK], debts=_unjudged)
def satisfiability_is_judged_anew_after_shrink(record: Record, seen: Seen) -> Finding:
    had, asked = as_received(seen, record.party), seen.at(PENDING, job_id(record))
    if had is None or asked is None or payload(record).get("type") != DENY:
        return None
    return bool(asked[0] < had.shrunk and asked[1] > ncores_of(had, had.granted))


@RULES.by(ANSWERING, "28.criteria.3", ALLOC_ANSWER, views=[SCHED_JOBS, *SERVING])
def satisfiability_is_not_availability(answering: Answering, record: Record, seen: Seen) -> Finding:
    """A job is not denied because targets are offline."""
    had, known = as_received(seen, record.party), sched_job(seen, job_id(record))
    if not answering.has_offline or had is None or not had.offline or not known.alloc:
        return None
    if payload(record).get("type") != DENY:
        return True
    if known.alloc < had.changed and not knew_change(seen, record.party, had.changed):
        return None  # it may have denied the request before it took up in that turn what changed
    if not denied_though_served(record, seen):
        return None
    text = f"job {job_id(record)} is denied, and can be served when targets {had.offline} are back"
    return Broken(text, (known.alloc, had.changed))


@RULES.judge(
    "28.offline.4",
    sent("request", topics.JOB_RAISE),
    FREE,
    views=[AS_RECEIVED, HELD],
    needs_crossing=True,
)
def no_exception_for_offline_targets(record: Record, seen: Seen) -> Finding:
    """The scheduler raises no exception because a job's targets are offline. What it raises before
    it is ready is about the jobs of the hello responses, and is not judged here.
    """
    had, held = as_received(seen, record.party), seen.at(HELD, job_id(record))
    if had is None or held is None or not seen.facts.is_ready:
        return None
    if held.targets.is_disjoint(had.offline) or not held.targets.is_disjoint(had.taken):
        return None
    if topic_of(record) == topics.SCHED_FREE:
        return True
    text = f"job {job_id(record)} gets an exception while it holds {held.targets & had.offline}"
    return Broken(f"{text}, which are offline", (had.changed,))


FREED: Final = view(
    "freed",
    sent("request", topics.SCHED_FREE),
    logged("clean"),
    key=job_id,
    fold=lambda _n, _part, record, _seen: None if record.kind == EVENT else record.n,
    state=Place,
)
"""The record of each job's sched.free, by job id."""


@RULES.judge("28.offline.5", logged("clean"), FREE, views=[AS_RECEIVED, HELD, FREED])
def offline_targets_are_freed(record: Record, seen: Seen) -> Finding:
    had, held = as_received(seen, seen.facts.scheduler), seen.at(HELD, job_id(record))
    if had is None or held is None or held.targets.is_disjoint(had.offline):
        return None
    if record.kind == RECV:
        return True
    if seen.at(FREED, job_id(record)) or not held.is_logged:
        return None  # it is on its way; of a grant that crossed a cancel it comes after clean
    text = f"job {job_id(record)} is over, and the scheduler got no sched.free for it"
    return Broken(f"{text} targets {held.targets & had.offline}, which are offline", (held.n,))
