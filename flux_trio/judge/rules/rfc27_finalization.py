"""RFC 27, Finalization and Exceptions: what happens when the scheduler, or a job, fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    EVENT,
    OWN,
    errnum,
    job_id,
    logged,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.rules.rfc27_background import ends_requests, failed_by_the_manager
from flux_trio.judge.rules.rfc27_free import UNFREED, require_freed, unfreed
from flux_trio.judge.views.eventlogs import LOGGING, Logging
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.holding import OVERLAPS, overlaps
from flux_trio.judge.views.jobs import CLEANUP, LIFE, Life
from flux_trio.judge.views.queueing import UNSENT, unsent
from flux_trio.judge.views.raising import RAISED
from flux_trio.judge.views.scheduling import (
    ANNOTATE,
    ASKED,
    CANCEL,
    LINK,
    REQUESTING,
    TO_SCHEDULER,
    Requesting,
    asked_of,
    has_left,
    is_pending,
    link_of,
)
from flux_trio.messages import Errno, topics
from flux_trio.trace import Record

RULES: Final = Rules()

ALLOC, FREE, READY = topics.SCHED_ALLOC, topics.SCHED_FREE, topics.SCHED_READY


@RULES.by(
    REQUESTING,
    "27.finalization.2",
    sent("request", ALLOC, FREE),
    sent("response", READY),
    views=[LINK],
)
def an_error_suspends_scheduling(
    requesting: Requesting | None, record: Record, seen: Seen
) -> Finding:
    link = link_of(seen)
    text = f"{topic_of(record)} after errnum {link.fatal_errnum} in answer to {link.fatal_topic}"
    return ends_requests(text, requesting, record, seen)


@RULES.judge(
    "27.finalization.3",
    logged("exception"),
    sent("response", READY),
    views=[LINK, ASKED, RAISED, LIFE],
)
def no_job_fails_for_want_of_a_scheduler(record: Record, seen: Seen) -> Finding:
    link = link_of(seen)
    if not link.fatal or link.fatal_errnum != Errno.ENOSYS:
        return None
    if record.kind != EVENT:
        return not errnum(record)
    if not failed_by_the_manager(record, seen):
        return None
    text = f"job {job_id(record)}: fails because no scheduler is loaded; expected it to stay"
    return Broken(f"{text} in SCHED", (link.fatal,))


@RULES.by(
    REQUESTING,
    "27.finalization.4",
    sent("request", *TO_SCHEDULER),
    received("request", topics.SCHED_HELLO),
    views=[LINK],
)
def a_disconnect_suspends_scheduling(
    requesting: Requesting | None, record: Record, seen: Seen
) -> Finding:
    if requesting is not None and not requesting.has_left:
        return None
    link = link_of(seen)
    if not has_left(link):
        return None
    if topic_of(record) == topics.SCHED_HELLO:
        return True
    if record.party != seen.facts.manager or not seen.knew(record.party, link.lost):
        return None
    text = f"{topic_of(record)} after the scheduler's disconnect and before the next sched-ready"
    return Broken(text, (link.lost,))


def _not_resumed(seen: Seen) -> Iterable[Broken]:
    answered = link_of(seen).answered
    for jobid, since in unsent(seen):
        asked = asked_of(seen, jobid)
        if 0 < asked.first_alloc < answered:
            text = f"job {jobid}: its sched.alloc was lost with the scheduler; it is not sent again"
            yield Broken(text, (since, asked.first_alloc), job=jobid)
    for jobid, _ in unfreed(seen):
        asked = asked_of(seen, jobid)
        if 0 < asked.free < answered:
            text = f"job {jobid}: its sched.free was lost with the scheduler; it is not sent again"
            yield Broken(text, (answered, asked.free), job=jobid)


@RULES.by(
    REQUESTING,
    "27.finalization.5",
    sent("request", ALLOC, FREE),
    views=(*UNSENT, *UNFREED),
    debts=_not_resumed,
)
def what_was_lost_is_asked_again(requesting: Requesting, _record: Record, _seen: Seen) -> Finding:
    return requesting.is_again


# --- exceptions


@RULES.by(
    LOGGING,
    "27.exceptions.1",
    logged("validate", "depend", "priority", "alloc", "release", "clean"),
    views=[LIFE],
)
def a_fatal_exception_ends_a_job(logging: Logging, record: Record, seen: Seen) -> Finding:
    if not logging.is_fatal:
        return None
    if logging.name in ("release", "clean"):
        return True
    jobid = job_id(record)
    text = f"job {jobid}: {logging.name} event after a fatal exception, which puts it in CLEANUP"
    return Broken(text, (seen.at(LIFE, jobid).fatal,))


def _fold_over(was: Place | None, _part: None, record: Record, seen: Seen) -> Place | None:
    if record.kind == EVENT:
        return record.n if is_pending(asked_of(seen, job_id(record)), seen) else None
    return was if payload(record).get("type") == ANNOTATE else None


OVER: Final = view(
    "over",
    logged("clean"),
    while_live(OWN, received("response", ALLOC)),
    key=job_id,
    fold=_fold_over,
    reads=(ASKED, LINK),
)
"""By job id: the record of the clean event of a job whose sched.alloc is open. Another job of which
nothing is known may be from before the trace."""


def _request_left(seen: Seen) -> Iterable[Broken]:
    for jobid, asked in seen.all(ASKED).items():
        life: Life | None = seen.at(LIFE, jobid)
        is_over = seen.at(OVER, jobid) if life is None else life.state == CLEANUP
        if is_over and is_pending(asked, seen) and not asked.cancel and link_of(seen).is_up:
            text = f"job {jobid}: is over, and its sched.alloc is left open: expected sched.cancel"
            yield Broken(text, (asked.alloc,), job=jobid)


@RULES.judge(
    "27.exceptions.2",
    sent("request", topics.SCHED_CANCEL),
    views=[LIFE, OVER, ASKED, LINK],
    debts=_request_left,
)
def the_request_of_a_failed_job_is_canceled(record: Record, seen: Seen) -> Finding:
    life: Life | None = seen.at(LIFE, job_id(record))
    return life is None or life.fatal > 0


require_freed(RULES, "27.exceptions.3", "had a fatal exception", lambda life: life.fatal > 0)


@RULES.judge("27.exceptions.4", sent("response", ALLOC), views=[LIFE, SCHED_JOBS, *OVERLAPS])
def exceptions_are_left_to_the_manager(record: Record, seen: Seen) -> Finding:
    """When a job fails, the scheduler leaves it to the job manager to end the request and to free
    the resources.
    """
    jobid, kind = job_id(record), payload(record).get("type")
    if jobid is None or record.party != seen.facts.scheduler:
        return None
    known = sched_job(seen, jobid)
    life: Life | None = seen.at(LIFE, jobid)
    if kind == CANCEL and known.alloc and (life is None or life.fatal):
        if known.cancel:
            return True
        text = f"job {jobid}: CANCEL after its exception, and no sched.cancel was taken up"
        return Broken(text, (known.alloc,))
    for other, _ in overlaps(record, seen):
        failed: Life | None = seen.at(LIFE, other)
        if failed is not None and failed.fatal:
            text = f"job {jobid}: granted what job {other} has, whose exception is no sched.free"
            return Broken(text, (failed.fatal,))
    return None
