"""RFC 27 as the current edition has it: hello with `partial-ok`, and free, which has R.

A job may be freed in several parts; the last free is `final`. The scheduler does not answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.formats import Idset, ResourceSet
from flux_trio.judge.checks.shapes import BOOLEAN, JOB_ID, OBJECT, idset_of, key_problem
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    EVENT,
    OWN,
    errnum,
    job_id,
    logged,
    message,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, View, view
from flux_trio.judge.rules.rfc27_hello import what_hello_tells_is_not_granted
from flux_trio.judge.views.acquiring import NONE
from flux_trio.judge.views.durable import DURABLE, is_durable, is_overdue
from flux_trio.judge.views.execution import STARTS, Start
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.holding import GRANTS, OVERLAPS, WRITTEN, Grant, Written
from flux_trio.judge.views.jobs import LIFE, Life
from flux_trio.judge.views.resource_sets import allocated, carried, execution, is_part, resources_in
from flux_trio.judge.views.scheduling import (
    ASKED,
    LINK,
    SUCCESSES,
    asked_of,
    is_pending,
    link_of,
    scheduler_lost,
)
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules(current=True)

FREED: Final = sent("request", topics.SCHED_FREE)
PARTIAL: Final = "partial-ok"


@RULES.judge("27.hello.2", sent("request", topics.SCHED_HELLO))
def hello_has_no_payload_or_partial_ok(record: Record, _seen: Seen) -> Finding:
    found: Any = getattr(message(record), "payload", None)
    if not found:
        return True
    if isinstance(found, dict) and BOOLEAN.fits(found.get(PARTIAL, False)):
        return True
    expected = f"no payload, or an object whose {PARTIAL} is true or false"
    return Broken(f"sched-hello: expected {expected}, got {found!r:.80}")


@RULES.judge("27.free.2", FREED)
def free_has_id_and_r(record: Record, _seen: Seen) -> Finding:
    content = payload(record)
    for key, shape in (("id", JOB_ID), ("R", OBJECT), ("final", BOOLEAN)):
        if problem := key_problem(content, key, shape, required=key != "final"):
            return Broken(f"sched.free request: {problem}")
    return True


def _frees(record: Record, seen: Seen) -> Iterable[tuple[int, None]]:
    """The job of an event or a request; or jobs whose free is not stored as their scheduler leaves:
    when it is, there is nobody to tell.
    """
    if topic_of(record) != topics.JOB_MANAGER_DISCONNECT:
        found = job_id(record)
        return [] if found is None else [(found, None)]
    if getattr(record.message, "sender", "") != seen.facts.scheduler:
        return []
    unfreed, manager = seen.all(UNFREED), seen.facts.manager
    return [(jobid, None) for jobid, n in unfreed.items() if not is_durable(seen, manager, n)]


def _fold_unfreed(n: int | None, _part: None, record: Record, seen: Seen) -> Place | None:
    if record.kind == EVENT:
        life: Life | None = seen.at(LIFE, job_id(record))
        is_due = life is not None and not life.bypassed and link_of(seen).is_up
        return record.n if is_due else n
    return n if topic_of(record) == topics.SCHED_FREE and is_part(record) else None


UNFREED: Final[View] = view(
    "unfreed",
    logged("free"),
    FREED,
    while_live(OWN, received("request", topics.JOB_MANAGER_DISCONNECT)),
    parts=_frees,
    fold=_fold_unfreed,
    reads=(LIFE, LINK, DURABLE),
)
"""By job id: the record of its free event, until all of its resources are freed with sched.free."""


def _fold_parts(
    had: ResourceSet | None, _part: None, record: Record, _seen: Seen
) -> ResourceSet | None:
    if topic_of(record) != topics.SCHED_FREE or not is_part(record):
        return None
    freed = resources_in(carried(record))
    return freed if had is None or freed is None else had.union(freed)


PARTS: Final = view(
    "freed parts",
    FREED,
    sent("response", topics.SCHED_ALLOC, topics.SCHED_HELLO),
    key=job_id,
    fold=_fold_parts,
    clears=scheduler_lost,
)
"""By job id: what was freed of its grant in parts, which the scheduler may not have received."""


def _unfreed(seen: Seen) -> Iterable[Broken]:
    """A scheduler that has said hello since knows nothing of the job, and nobody may be told of an
    event that is not durable: a job manager that ends before has told nobody.
    """
    link, manager = link_of(seen), seen.facts.manager
    for jobid, n in seen.all(UNFREED).items():
        if n > max(link.hello, link.manager_gone) and is_durable(seen, manager, n):
            since = n if is_overdue(seen, manager, n) else max(n, seen.may_act_on(manager))
            text = f"job {jobid}: free event, and no final sched.free follows"
            yield Broken(text, (since,), job=jobid)


@RULES.judge("27.free.1", FREED, views=[GRANTS, PARTS, UNFREED, LINK, DURABLE], debts=_unfreed)
def what_was_granted_is_freed_in_whole(record: Record, seen: Seen) -> Finding:
    grant: Grant | None = seen.at(GRANTS, job_id(record))
    freed = resources_in(carried(record))
    if grant is None or freed is None:
        return None
    if not freed.issubset(grant.resources):
        held = grant.resources.summary()
        text = f"job {job_id(record)}: {freed.summary()} is freed, but the job holds {held}"
        return Broken(text, (grant.since,))
    before: ResourceSet | None = seen.at(PARTS, job_id(record))
    left = grant.resources.difference(freed if before is None else freed.union(before))
    if bool(left) is not (payload(record).get("final") is True):
        return True
    if left:
        text = f"job {job_id(record)}: the final free leaves {left.summary()}"
    else:
        text = f"job {job_id(record)}: nothing is left to free: expected final true"
    return Broken(text, (grant.since,))


@RULES.judge("invariant.freed-once", FREED, views=[GRANTS, LINK, SCHED_JOBS])
def an_allocation_is_freed_once(record: Record, seen: Seen) -> Finding:
    """While a hello is on its way, a free is for the scheduler before it, and nothing is kept of
    what that one was told.
    """
    jobid, link = job_id(record), link_of(seen)
    if not link.is_up or jobid is None:
        return None
    if seen.at(GRANTS, jobid) is not None:
        return True
    if link.hello_sent > link.hello:
        return None
    if sched_job(seen, jobid).held:
        return None  # what it holds is not in the trace
    text = f"job {jobid}: sched.free, and by the messages it holds no resources"
    return Broken(text, party=record.party)


@RULES.judge(
    "invariant.one-in-flight", sent("request", topics.SCHED_ALLOC, topics.SCHED_FREE), views=[ASKED]
)
def a_job_has_one_alloc_in_flight(record: Record, seen: Seen) -> Finding:
    """A job has one sched.alloc at a time. Frees are not answered in this edition, so several may
    follow each other.
    """
    asked = asked_of(seen, job_id(record))
    if not is_pending(asked, seen):
        return True
    text = f"job {job_id(record)}: {message(record).topic} while its sched.alloc is open"  # type: ignore[union-attr]
    return Broken(text, (asked.alloc,), party=record.party)


@RULES.judge("20.nslots.3", SUCCESSES)
def every_allocation_has_nslots(record: Record, _seen: Seen) -> Finding:
    """In the current edition every scheduler knows of nslots."""
    found = [r for r in allocated(record) if execution(r.value)]
    for r in found:
        if "nslots" not in execution(r.value):
            return Broken(f"{r.what}: execution.nslots: expected an integer; it is missing")
    return bool(found) or None


@RULES.judge(
    "27.hello.12",
    SUCCESSES,
    sent("response", topics.SCHED_HELLO),
    views=(*OVERLAPS, GRANTS, WRITTEN, STARTS),
)
def what_runs_is_held_without_what_was_freed(record: Record, seen: Seen) -> Finding:
    """A job holds its R without the ranks in `free`: those that were freed, and no others."""
    if topic_of(record) != topics.SCHED_HELLO:
        return what_hello_tells_is_not_granted(record, seen)
    jobid, text = job_id(record), payload(record).get("free", "")
    written: Written | None = seen.at(WRITTEN, jobid)
    start: Start | None = seen.at(STARTS, jobid)
    grant: Grant | None = seen.at(GRANTS, jobid)
    told = idset_of(text)
    if told is None:
        what = f"hello response of job {jobid}: free"
        return Broken(f"{what}: expected an idset (RFC 22), got {text!r:.80}", party=record.party)
    if written is None or written.resources is None or start is None:
        return None
    freed = NONE if grant is None else written.resources.ranks - grant.resources.ranks
    extra = Idset.from_bits(told.bits & ~(freed.bits | start.released | start.earlier))
    if not extra and freed <= told:
        return True
    expected = f"with targets {freed}" if freed - told else f"without targets {extra}"
    text = f"job {jobid}: hello response: free: expected it {expected}, got {text!r}"
    return Broken(text, (written.n,), party=record.party)


FEASIBLE: Final = sent("response", topics.FEASIBILITY_CHECK)


@RULES.judge("27.feasibility.2", FEASIBLE)
def a_job_that_can_run_gets_an_empty_answer(record: Record, _seen: Seen) -> Finding:
    if errnum(record):
        return None
    found: Any = getattr(message(record), "payload", None)
    return not found or Broken(f"feasibility.check: expected no payload, got {found!r:.80}")


@RULES.judge("27.feasibility.3", FEASIBLE)
def a_job_that_can_never_run_gets_a_text(record: Record, _seen: Seen) -> Finding:
    if not errnum(record):
        return None
    found: Any = getattr(message(record), "payload", None)
    if isinstance(found, str) and found:
        return True
    return Broken(f"feasibility.check: expected an error with a text, got {found!r:.80}")
