"""RFC 27 in the trace of a router, which shows no matchtags.

The rules: a cancel is answered, whatever message crossed it; the answer to sched-ready counts the
jobs that wait; an expiration that was refused is not logged. Which job an answer to
sched.expiration is about is known only if no other request was open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    EVENT,
    errnum,
    job_id,
    logged,
    no_key,
    payload,
    received,
    sent,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.rules.rfc27_cancel import cancel_unanswered
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.jobs import LIFE, PRIORITY, SCHED, context_of
from flux_trio.judge.views.queueing import WAITING, waiting
from flux_trio.judge.views.scheduling import CANCELS, scheduler_lost
from flux_trio.messages import Errno, Request, topics
from flux_trio.trace import Record

RULES: Final = Rules(routed=True)


def _require_answer(clause: str) -> None:
    """Register `clause`: a request that was canceled is answered, and CANCEL answers a cancel."""

    @RULES.judge(clause, CANCELS, views=[SCHED_JOBS], debts=cancel_unanswered)
    def judge(record: Record, seen: Seen) -> Finding:
        known = sched_job(seen, job_id(record))
        if record.party != seen.facts.scheduler or not known.alloc:
            return None
        if known.cancel:
            return True
        text = f"job {job_id(record)}: CANCEL, and its request was not canceled"
        return Broken(text, (known.alloc,), party=record.party)


_require_answer("27.alloccancel.1")
_require_answer("27.cancel.5")


@RULES.judge("27.ready.12", sent("response", topics.SCHED_READY), views=WAITING)
def the_jobs_that_wait_are_counted(record: Record, seen: Seen) -> Finding:
    """The count in the answer to sched-ready is not larger than the number of jobs that wait, and
    not smaller than that of those for which a sched.alloc has been due for a second: held jobs, and
    those of stopped queues, may be left out.
    """
    count = payload(record).get("count")
    if errnum(record) or type(count) is not int:
        return None
    most = sum(life.state in (PRIORITY, SCHED) for life in seen.all(LIFE).values())
    least = sum(seen.is_old(life.since) for _, life in waiting(seen))
    if least <= count <= most:
        return True
    expected = f"at most {most}" if count > most else f"at least {least}"
    return Broken(f"sched-ready: count: expected {expected}, the jobs in SCHED, got {count}")


# --- expirations


class ExpirationRequest(NamedTuple):
    """A sched.expiration that was not answered."""

    n: Place
    jobid: int | None
    """The job; None if an answer to another request may have been the answer to this one."""
    expiration: Any


def _fold_open(
    had: tuple[ExpirationRequest, ...] | None, _part: None, record: Record, _seen: Seen
) -> tuple[ExpirationRequest, ...] | None:
    had = had or ()
    if isinstance(record.message, Request):
        return (
            *had,
            ExpirationRequest(record.n, job_id(record), payload(record).get("expiration")),
        )
    return tuple([each._replace(jobid=None) for each in had[1:]]) or None


OPEN: Final = view(
    "open expirations",
    sent("request", topics.SCHED_EXPIRATION),
    received("response", topics.SCHED_EXPIRATION),
    key=no_key,
    fold=_fold_open,
    clears=scheduler_lost,
)
"""A single state: the sched.expiration requests that were not answered, oldest first."""


class Refusal(NamedTuple):
    """A refusal of the scheduler to change the expiration of a job."""

    n: Place
    expiration: Any
    errnum: int


def _answered(record: Record, seen: Seen) -> Iterable[tuple[int | None, Refusal | None]]:
    if record.kind == EVENT:
        return [(job_id(record), None)]
    asked: tuple[ExpirationRequest, ...] = seen.at(OPEN) or ()
    if len(asked) != 1 or asked[0].jobid is None:
        return [(each.jobid, None) for each in asked]  # it may be the answer to any of them
    is_refused = errnum(record) not in (0, Errno.ENOSYS)
    refusal = Refusal(record.n, asked[0].expiration, errnum(record))
    return [(asked[0].jobid, refusal if is_refused else None)]


def _fold_refusal(
    _had: Any, refusal: Refusal | None, _record: Record, _seen: Seen
) -> Refusal | None:
    return refusal


REFUSED: Final = view(
    "refused expirations",
    received("response", topics.SCHED_EXPIRATION),
    logged("resource-update", "clean"),
    parts=_answered,
    fold=_fold_refusal,
    state=Refusal,
    reads=(OPEN,),
)
"""By job id: the scheduler's refusal, until another answer or an update follows."""


@RULES.judge("27.expiration.10", logged("resource-update"), views=[REFUSED])
def what_was_refused_is_not_applied(record: Record, seen: Seen) -> Finding:
    refused: Refusal | None = seen.at(REFUSED, job_id(record))
    if refused is None or context_of(record).get("expiration") != refused.expiration:
        return None
    text = f"job {job_id(record)}: resource-update event, although the scheduler refused"
    return Broken(f"{text} with errnum {refused.errnum}", (refused.n,))
