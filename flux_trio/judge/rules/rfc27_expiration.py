"""RFC 27, Expiration: the time until which a job has its resources is adjusted.

The request that makes the job manager ask is `job-manager.update`, which no RFC names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.shapes import INTEGER, JOB_ID, require_key
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.place import Place
from flux_trio.judge.engine.rule import (
    OWN,
    Broken,
    Key,
    Rules,
    Said,
    Seen,
    errnum,
    job_id,
    logged,
    no_key,
    payload,
    received,
    rpc,
    sent,
    view,
    while_live,
)
from flux_trio.judge.engine.selector import RECV, topic_of
from flux_trio.judge.engine.view import Live
from flux_trio.judge.views.granting import INVENTORY, SCHED_JOBS, Inventory, sched_job
from flux_trio.judge.views.jobs import LIFE, RUN, Life, context_of
from flux_trio.judge.views.queueing import UNSENT, unsent
from flux_trio.judge.views.scheduling import LINK, TO_SCHEDULER, link_of
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Record

RULES: Final = Rules()

EXPIRATION: Final = topics.SCHED_EXPIRATION
UPDATE: Final = topics.JOB_UPDATE
ASKED: Final = sent("request", EXPIRATION)
ANSWERED: Final = sent("response", EXPIRATION)
UPDATED: Final = logged("resource-update")
TIME_LIMIT: Final = ("timeout", "timelimit")
"""The exception types of a job at its time limit, in flux-core and in RFC 21."""


class Wish(Live, frozen=True, gc=False):
    """An open sched.expiration or job-manager.update."""

    n: Place
    jobid: int | None
    expiration: Any


def _of_rpc(record: Record, _seen: Seen) -> Iterable[tuple[Key, None]]:
    found = rpc(record)
    return [] if found is None else [(found, None)]


def _fold_wish(_wish: Wish | None, _part: None, record: Record, _seen: Seen) -> Wish | None:
    if isinstance(record.message, Response):
        return None
    return Wish(record.n, job_id(record), payload(record).get("expiration"))


WISHES: Final = view(
    "wishes",
    ASKED,
    received("request", UPDATE),
    received("response", EXPIRATION),
    sent("response", UPDATE),
    parts=_of_rpc,
    fold=_fold_wish,
)
"""By RPC."""


class Verdict(Live, frozen=True, gc=False):
    """The scheduler's response to a job's new expiration."""

    n: Place
    errnum: int

    @property
    def allows(self) -> bool:
        """Whether the update must be made: the scheduler agrees, or does not implement it."""
        return self.errnum in (0, Errno.ENOSYS)


def _fold_in_force(_old: Any, _part: None, record: Record, _seen: Seen) -> Any:
    return context_of(record).get("expiration")


IN_FORCE: Final = view(
    "in force",
    logged("resource-update"),
    while_live(OWN, logged("clean")),
    key=job_id,
    fold=_fold_in_force,
)
"""By job id: the expiration of its last resource-update."""


def _is_told_again(wish: Wish, seen: Seen) -> bool:
    """Whether a later scheduler gets an expiration in force; its response changes nothing."""
    updates = (each for key, each in seen.all(WISHES).items() if key[1] == UPDATE)
    is_asked_for = any(each.jobid == wish.jobid for each in updates)
    return not is_asked_for and wish.expiration == seen.at(IN_FORCE, wish.jobid)


def _judged(record: Record, seen: Seen) -> Iterable[tuple[Key, None]]:
    if isinstance(record.message, Response):
        wish: Wish | None = seen.at(WISHES, rpc(record))
        return [] if wish is None or _is_told_again(wish, seen) else [(wish.jobid, None)]
    return [(job_id(record), None)]


def _fold_verdict(
    _verdict: Verdict | None, _p: None, record: Record, _seen: Seen
) -> Verdict | None:
    return Verdict(record.n, errnum(record)) if record.kind == RECV else None


VERDICTS: Final = view(
    "verdicts",
    received("response", EXPIRATION),
    ASKED,
    logged("resource-update", "clean"),
    parts=_judged,
    fold=_fold_verdict,
    reads=(WISHES, IN_FORCE),
)
"""By job id, until the update is logged or asked for anew."""


@RULES.judge("27.expiration.1", UPDATED, views=[LIFE, VERDICTS, LINK], needs_headers=True)
def the_scheduler_is_asked(record: Record, seen: Seen) -> Said:
    jobid = job_id(record)
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or not life.held or life.bypassed or "expiration" not in context_of(record):
        return None
    if seen.at(VERDICTS, jobid) is not None:
        return True
    if not seen.facts.is_ready or not seen.knew(record.party, link_of(seen).ready):
        return None
    return Broken(f"job {jobid}: a new expiration, and the scheduler has not answered for it")


require_key(RULES, "27.expiration.2", ASKED, key="id", shape=JOB_ID)
require_key(RULES, "27.expiration.3", ASKED, key="expiration", shape=INTEGER)


@RULES.check("27.expiration.5", ANSWERED)
def success_is_empty(record: Record, facts: Facts) -> Said:
    found = record.message
    if not isinstance(found, Response) or found.errnum or record.party != facts.scheduler:
        return None
    if found.payload is None:
        return True
    return Broken(f"sched.expiration: success: expected no payload, got {found.payload!r:.80}")


def _granted_wish(record: Record, seen: Seen) -> Wish | None:
    """Return the request of the scheduler's response."""
    wish: Wish | None = seen.at(WISHES, rpc(record))
    return wish if record.party == seen.facts.scheduler else None


@RULES.judge("27.expiration.6", ANSWERED, views=[WISHES, SCHED_JOBS])
def a_job_without_resources_is_refused(record: Record, seen: Seen) -> Said:
    wish = _granted_wish(record, seen)
    if wish is None:
        return None
    if errnum(record) or sched_job(seen, wish.jobid).held:
        return True
    text = f"job {wish.jobid}: sched.expiration succeeds, and the job has no allocation"
    return Broken(text, (wish.n,))


@RULES.judge("27.expiration.8", ANSWERED, views=[WISHES, INVENTORY])
def the_instance_must_outlive_the_job(record: Record, seen: Seen) -> Said:
    """Whole seconds may be rounded up (readings: sched.expiration)."""
    wish = _granted_wish(record, seen)
    inventory: Inventory = seen.at(INVENTORY) or Inventory()
    if wish is None or not inventory.expiration or not INTEGER.fits(wish.expiration):
        return None
    is_beyond = wish.expiration > inventory.expiration + 1
    if errnum(record) or not is_beyond:
        return bool(is_beyond)
    text = f"job {wish.jobid}: sched.expiration succeeds with {wish.expiration}, after the end of"
    return Broken(f"{text} the instance at {inventory.expiration}", (wish.n,))


def _unanswered(seen: Seen) -> Iterable[Broken]:
    for key, wish in seen.all(WISHES).items():
        is_open = wish.n > link_of(seen).lost and link_of(seen).is_up
        if is_open and isinstance(key, tuple) and key[1] == EXPIRATION:
            yield Broken(
                f"job {wish.jobid}: sched.expiration is not answered", (wish.n,), job=wish.jobid
            )


@RULES.judge("27.expiration.9", ANSWERED, views=[WISHES, LINK], debts=_unanswered)
def an_answer_comes(record: Record, seen: Seen) -> Said:
    return seen.at(WISHES, rpc(record)) is not None


def _answer_to_update(record: Record, seen: Seen) -> tuple[int | None, Verdict | None]:
    """Return the job of an answered update, and the scheduler's response since the request."""
    wish: Wish | None = seen.at(WISHES, rpc(record))
    if wish is None:
        return None, None
    verdict: Verdict | None = seen.at(VERDICTS, wish.jobid)
    return wish.jobid, verdict if verdict is not None and verdict.n > wish.n else None


@RULES.judge("27.expiration.10", UPDATED, sent("response", UPDATE), views=[WISHES, VERDICTS])
def a_refusal_is_passed_on(record: Record, seen: Seen) -> Said:
    if record.message is None:
        verdict: Verdict | None = seen.at(VERDICTS, job_id(record))
        if verdict is None or verdict.allows:
            return None
        text = f"job {job_id(record)}: resource-update event, although the scheduler refused"
        return Broken(f"{text} with errnum {verdict.errnum}", (verdict.n,))
    jobid, verdict = _answer_to_update(record, seen)
    if verdict is None or verdict.allows:
        return None
    if errnum(record):
        return True
    text = f"job {jobid}: {UPDATE} succeeds, although the scheduler refused"
    return Broken(text, (verdict.n,))


def _update_forgotten(seen: Seen) -> Iterable[Broken]:
    for jobid, verdict in seen.all(VERDICTS).items():
        if verdict.errnum == Errno.ENOSYS:
            text = f"job {jobid}: the scheduler does not implement sched.expiration"
            yield Broken(
                f"{text}; expected the update to be made all the same", (verdict.n,), job=jobid
            )


@RULES.judge("27.expiration.11", UPDATED, views=[VERDICTS], debts=_update_forgotten)
def enosys_counts_as_success(record: Record, seen: Seen) -> Said:
    verdict: Verdict | None = seen.at(VERDICTS, job_id(record))
    return verdict is not None and verdict.errnum == Errno.ENOSYS


@RULES.judge("27.criteria.12", UPDATED, sent("response", UPDATE), views=[WISHES, VERDICTS, LIFE])
def an_expiration_can_be_adjusted(record: Record, seen: Seen) -> Said:
    if record.message is None:
        return seen.at(VERDICTS, job_id(record)) is not None
    jobid, verdict = _answer_to_update(record, seen)
    if verdict is None or not verdict.allows or not errnum(record):
        return None
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or life.state != RUN:
        return None  # the job ended before the scheduler answered
    text = f"job {jobid}: {UPDATE} fails, although the scheduler allows it"
    return Broken(text, (verdict.n,))


@RULES.check("27.expiration.13", sent("request", topics.JOB_RAISE), logged("exception"))
def the_time_limit_is_left_to_exec(record: Record, facts: Facts) -> Said:
    if record.message is None:
        return context_of(record).get("type") in TIME_LIMIT
    if record.party != facts.scheduler or payload(record).get("type") not in TIME_LIMIT:
        return None
    return Broken(f"job {job_id(record)}: the scheduler raises an exception at its time limit")


def _fold_failure(failed: int | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    return record.n if errnum(record) else failed


FAILURE: Final = view(
    "failure",
    received("response", EXPIRATION),
    key=no_key,
    fold=_fold_failure,
)
"""Where a sched.expiration last failed."""


def _suspended(seen: Seen) -> Iterable[Broken]:
    failed: int = seen.at(FAILURE) or 0
    if failed > link_of(seen).answered:
        for jobid, life in unsent(seen):
            text = f"job {jobid}: no sched.alloc is sent any more after sched.expiration failed"
            yield Broken(text, (failed, life.since), job=jobid)


@RULES.judge(
    "27.impl.15",
    while_live(FAILURE, sent("request", *TO_SCHEDULER)),
    views=[FAILURE, *UNSENT],
    debts=_suspended,
)
def a_failed_expiration_is_no_fatality(record: Record, seen: Seen) -> Said:
    found = record.message
    assert isinstance(found, Request)
    return topic_of(record) != EXPIRATION and (seen.at(FAILURE) or 0) > link_of(seen).answered
