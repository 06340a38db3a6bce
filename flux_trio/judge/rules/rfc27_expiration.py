"""RFC 27, Expiration: the time until which a job has its resources is adjusted.

The request that makes the job manager ask is `job-manager.update`, which no RFC names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.shapes import INTEGER, JOB_ID, require_key
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    OWN,
    RECV,
    errnum,
    job_id,
    logged,
    name_of,
    no_key,
    payload,
    received,
    rpc,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Key, Live, Place, Seen, view
from flux_trio.judge.views.granting import INVENTORY, SCHED_JOBS, inventory_of, sched_job
from flux_trio.judge.views.jobs import LIFE, RUN, Life, context_of
from flux_trio.judge.views.queueing import UNSENT, unsent
from flux_trio.judge.views.scheduling import LINK, TO_SCHEDULER, link_of
from flux_trio.judge.views.suspending import SUSPENDING, may_be_suspended
from flux_trio.judge.views.user_requests import DURATION
from flux_trio.messages import Errno, Response, topics
from flux_trio.trace import Record

RULES: Final = Rules()

EXPIRATION: Final = topics.SCHED_EXPIRATION
UPDATE: Final = topics.JOB_UPDATE
ASKED: Final = sent("request", EXPIRATION)
ANSWERED: Final = sent("response", EXPIRATION)
UPDATED: Final = logged("resource-update")
TIME_LIMIT: Final = ("timeout", "timelimit")
"""The exception types of a job at its time limit, in flux-core and in RFC 21."""


VERDICTS_MAX: Final = 16
"""The most verdicts that are kept for one job; the scheduler may refuse any number of changes that
no user has asked for."""


class ExpirationRequest(Live, frozen=True, gc=False):
    """A request to change an expiration (sched.expiration or job-manager.update) that was not
    answered.
    """

    n: Place
    jobid: int | None
    expiration: Any
    was_held: bool = False
    """Whether the job had resources when the scheduler received the request."""
    is_of_duration: bool = False
    """Whether it is a job-manager.update that changes the duration."""


def _of_rpc(record: Record, _seen: Seen) -> Iterable[tuple[Key, None]]:
    found = rpc(record)
    return [] if found is None else [(found, None)]


def _fold_wish(
    wish: ExpirationRequest | None, _part: None, record: Record, seen: Seen
) -> ExpirationRequest | None:
    if isinstance(record.message, Response):
        return None
    if record.kind == RECV and topic_of(record) == EXPIRATION:
        return wish and wish.but(was_held=sched_job(seen, wish.jobid).held != 0)
    asked = payload(record)
    updates = asked.get("updates")
    is_of_duration = isinstance(updates, dict) and DURATION in updates
    return ExpirationRequest(
        record.n, job_id(record), asked.get("expiration"), is_of_duration=is_of_duration
    )


WISHES: Final = view(
    "wishes",
    ASKED,
    received("request", EXPIRATION, UPDATE),
    received("response", EXPIRATION),
    sent("response", UPDATE),
    parts=_of_rpc,
    fold=_fold_wish,
    reads=(SCHED_JOBS,),
)
"""The open requests to change an expiration (`ExpirationRequest`), by RPC."""


class Verdict(Live, frozen=True, gc=False):
    """What the scheduler has answered about a new expiration of a job."""

    n: Place
    asked: Place
    """The record at which the job manager sent the request."""
    errnum: int
    expiration: Any

    @property
    def allows(self) -> bool:
        """Whether the job's expiration has to be updated: the scheduler agrees, or does not
        implement the request.
        """
        return self.errnum in (0, Errno.ENOSYS)


class InForce(Live, frozen=True, gc=False):
    """What a resource-update event says."""

    n: Place
    expiration: Any


def _fold_in_force(_old: Any, _part: None, record: Record, _seen: Seen) -> InForce | None:
    if name_of(record) == "resource-update":
        return InForce(record.n, context_of(record).get("expiration"))
    return None


IN_FORCE: Final = view(
    "in force",
    logged("resource-update"),
    while_live(OWN, logged("clean")),
    key=job_id,
    fold=_fold_in_force,
)
"""The last resource-update event of each job (`InForce`), by job id."""


def _in_force(seen: Seen, jobid: int | None) -> InForce:
    found: InForce | None = seen.at(IN_FORCE, jobid)
    return found or InForce(0, None)


def _is_told_again(wish: ExpirationRequest, seen: Seen) -> bool:
    """Whether a later scheduler gets an expiration in force; its response changes nothing."""
    updates = (each for key, each in seen.all(WISHES).items() if key[1] == UPDATE)
    is_asked_for = any(each.jobid == wish.jobid for each in updates)
    return not is_asked_for and wish.expiration == _in_force(seen, wish.jobid).expiration


def _judged(record: Record, seen: Seen) -> Iterable[tuple[Key, ExpirationRequest | None]]:
    """Yield the job, and the request that its scheduler answers.

    After the loss of its scheduler the job manager waits for no answer: another one, which has not
    said hello, may give it.
    """
    if record.message is None:
        return [(job_id(record), None)]
    wish: ExpirationRequest | None = seen.at(WISHES, rpc(record))
    if wish is None:
        return []
    if record.kind == RECV:
        is_verdict = wish.n > link_of(seen).lost and not _is_told_again(wish, seen)
        return [(wish.jobid, wish)] if is_verdict else []
    # several updates of a job may be open at once: what the last one leaves is of no update
    is_last = len(_open_updates(seen, wish.jobid)) == 1
    return [(wish.jobid, None)] if is_last else []


def _open_updates(seen: Seen, jobid: int | None) -> list[ExpirationRequest]:
    """Return the requests for updates of a job that are not answered."""
    wishes: Iterable[tuple[Any, ExpirationRequest]] = seen.all(WISHES).items()
    return [each for key, each in wishes if key[1] == UPDATE and each.jobid == jobid]


def _fold_verdicts(
    had: tuple[Verdict, ...] | None, wish: ExpirationRequest | None, record: Record, seen: Seen
) -> tuple[Verdict, ...] | None:
    if wish is not None:
        verdict = Verdict(record.n, wish.n, errnum(record), wish.expiration)
        return (*(had or ())[1 - VERDICTS_MAX :], verdict)
    if record.message is not None:
        # what the job manager has not handled yet is of no update either
        return tuple([each for each in had or () if not seen.knew(record.party, each.n)]) or None
    if name_of(record) == "clean":
        return None
    made = _of_update(record, had or ())
    return tuple([each for each in had or () if each is not made]) or None if made else None


def _of_update(record: Record, verdicts: tuple[Verdict, ...]) -> Verdict | None:
    """Return the verdict on the expiration of a resource-update; one that allows it comes first."""
    expiration = context_of(record).get("expiration")
    found = [each for each in verdicts if each.expiration == expiration]
    return min(found, key=lambda each: not each.allows, default=None)


_ROUNDING_S: Final = 1.0
"""Whole seconds may be rounded up (readings: sched.expiration)."""
_SAME_S: Final = 1e-3
"""What is asked with a fraction is what is logged."""


def _leeway(asked: float, now: float) -> float:
    is_rounded = isinstance(asked, int) or asked == int(asked) != now
    return _ROUNDING_S if is_rounded else _SAME_S


def _is_asked_about(verdicts: tuple[Verdict, ...], record: Record) -> Finding:
    """Judge a resource-update event of a job about which the scheduler was asked."""
    now = context_of(record).get("expiration")
    asked = [each for each in verdicts if isinstance(each.expiration, (int, float))]
    if not isinstance(now, (int, float)) or len(asked) < len(verdicts):
        return True  # other clauses are about the form
    if any(abs(each.expiration - now) < _leeway(each.expiration, now) for each in asked):
        return True
    last = asked[-1]
    text = f"job {job_id(record)}: the scheduler was asked about expiration {last.expiration}"
    return Broken(f"{text}, and the update has {now}", (last.n,))


VERDICTS: Final = view(
    "verdicts",
    received("response", EXPIRATION),
    sent("response", UPDATE),
    logged("resource-update", "clean"),
    parts=_judged,
    fold=_fold_verdicts,
    reads=(WISHES, IN_FORCE, LINK),
)
"""By job id: the verdicts after which no update was logged and no user's request for one was
answered. Those that ended with their job manager or scheduler are in it, too: see `verdicts_on`."""


def verdicts_on(seen: Seen, jobid: int | None) -> tuple[Verdict, ...]:
    """Return the VERDICTS on a job that this job manager got from this scheduler."""
    return _verdicts_since(link_of(seen).lost, seen, jobid)


def _verdicts_since(n: Place, seen: Seen, jobid: int | None) -> tuple[Verdict, ...]:
    verdicts: tuple[Verdict, ...] = seen.at(VERDICTS, jobid) or ()
    return tuple([each for each in verdicts if each.n > n])


@RULES.judge("27.expiration.1", UPDATED, views=[LIFE, VERDICTS, *SUSPENDING])
def the_scheduler_is_asked(record: Record, seen: Seen) -> Finding:
    jobid = job_id(record)
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or not life.held or life.bypassed or "expiration" not in context_of(record):
        return None
    verdicts = verdicts_on(seen, jobid)
    if verdicts:
        return _is_asked_about(verdicts, record)
    if not seen.facts.is_ready or not seen.knew(record.party, link_of(seen).ready):
        return None
    if may_be_suspended(seen, is_judging_too=True):
        return None  # then there is no scheduler to ask, either
    return Broken(f"job {jobid}: a new expiration, and the scheduler has not answered for it")


require_key(RULES, "27.expiration.2", ASKED, key="id", shape=JOB_ID)
require_key(RULES, "27.expiration.3", ASKED, key="expiration", shape=INTEGER)


@RULES.judge("27.expiration.5", ANSWERED)
def success_is_empty(record: Record, seen: Seen) -> Finding:
    found = record.message
    if not isinstance(found, Response) or found.errnum or record.party != seen.facts.scheduler:
        return None
    if found.payload is None:
        return True
    return Broken(f"sched.expiration: success: expected no payload, got {found.payload!r:.80}")


def _granted_wish(record: Record, seen: Seen) -> ExpirationRequest | None:
    """Return the request of the scheduler's response."""
    wish: ExpirationRequest | None = seen.at(WISHES, rpc(record))
    return wish if record.party == seen.facts.scheduler else None


@RULES.judge("27.expiration.6", ANSWERED, views=[WISHES, SCHED_JOBS])
def a_job_without_resources_is_refused(record: Record, seen: Seen) -> Finding:
    """The job's free may come after the request, and before the answer."""
    wish = _granted_wish(record, seen)
    if wish is None:
        return None
    if errnum(record) or wish.was_held or sched_job(seen, wish.jobid).held:
        return True
    text = f"job {wish.jobid}: sched.expiration succeeds, and the job has no allocation"
    return Broken(text, (wish.n,))


@RULES.judge("27.expiration.8", ANSWERED, views=[WISHES, INVENTORY])
def the_instance_must_outlive_the_job(record: Record, seen: Seen) -> Finding:
    """An expiration beyond that of the instance is refused. Whole seconds may be rounded up
    (readings: sched.expiration).
    """
    wish = _granted_wish(record, seen)
    inventory = inventory_of(seen)
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
def an_answer_comes(record: Record, seen: Seen) -> Finding:
    return seen.at(WISHES, rpc(record)) is not None


def _answer_to_update(record: Record, seen: Seen) -> tuple[int | None, Verdict | None]:
    """Return the job of an answered update of its duration, and the scheduler's response to it.

    It is the response to a sched.expiration that was sent after the update was received. There is
    none if another update of the job is open, to which it may belong, or if a new expiration was
    logged since: it was judged, and the response may be about another one.
    """
    wish: ExpirationRequest | None = seen.at(WISHES, rpc(record))
    if wish is None or record.party != seen.facts.manager or not wish.is_of_duration:
        return None, None
    if _in_force(seen, wish.jobid).n > wish.n:
        return wish.jobid, None
    verdicts = verdicts_on(seen, wish.jobid)
    since = [each for each in verdicts if each.asked > wish.n]
    is_alone = len(_open_updates(seen, wish.jobid)) == 1
    return wish.jobid, since[-1] if since and is_alone else None


@RULES.judge(
    "27.expiration.10", UPDATED, sent("response", UPDATE), views=[WISHES, VERDICTS, IN_FORCE, LINK]
)
def a_refusal_is_passed_on(record: Record, seen: Seen) -> Finding:
    if record.message is None:
        verdicts = verdicts_on(seen, job_id(record))
        made = _of_update(record, verdicts)
        is_allowed = any(each.allows for each in verdicts) if made is None else made.allows
        if is_allowed or not verdicts:
            return None
        refusal = made or verdicts[-1]
        text = f"job {job_id(record)}: resource-update event, although the scheduler refused"
        return Broken(f"{text} with errnum {refusal.errnum}", (refusal.n,))
    jobid, verdict = _answer_to_update(record, seen)
    if verdict is None or verdict.allows:
        return None
    if errnum(record):
        return True
    text = f"job {jobid}: {UPDATE} succeeds, although the scheduler refused"
    return Broken(text, (verdict.n,))


def _of_nobody(verdicts: tuple[Verdict, ...]) -> list[Verdict]:
    """Return the answers that there is no such method."""
    return [each for each in verdicts if each.errnum == Errno.ENOSYS]


def _update_forgotten(seen: Seen) -> Iterable[Broken]:
    for jobid in seen.all(VERDICTS):
        life: Life | None = seen.at(LIFE, jobid)
        if life is None or life.state != RUN:
            continue  # the job ended before the answer came
        for verdict in _of_nobody(_verdicts_since(link_of(seen).manager_gone, seen, jobid)):
            text = f"job {jobid}: the scheduler does not implement sched.expiration"
            yield Broken(
                f"{text}; expected the update to be made all the same", (verdict.n,), job=jobid
            )


@RULES.judge("27.expiration.11", UPDATED, views=[VERDICTS, LIFE, LINK], debts=_update_forgotten)
def enosys_counts_as_success(record: Record, seen: Seen) -> Finding:
    return bool(_of_nobody(verdicts_on(seen, job_id(record))))


@RULES.judge(
    "27.criteria.12",
    UPDATED,
    sent("response", UPDATE),
    views=[WISHES, VERDICTS, LIFE, LINK, IN_FORCE],
)
def an_expiration_can_be_adjusted(record: Record, seen: Seen) -> Finding:
    if record.message is None:
        return bool(verdicts_on(seen, job_id(record)))
    jobid, verdict = _answer_to_update(record, seen)
    if verdict is None or not verdict.allows:
        return None
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or life.state != RUN:
        return None  # the job ended before the scheduler answered
    if verdict.expiration == _in_force(seen, jobid).expiration:
        return None  # it was told again what is in force, while the update was open
    if not errnum(record):
        text = f"job {jobid}: {UPDATE} succeeds as the scheduler allows it, and no resource-update"
        return Broken(f"{text} event is logged", (verdict.n,))
    text = f"job {jobid}: {UPDATE} fails, although the scheduler allows it"
    return Broken(text, (verdict.n,))


@RULES.judge("27.expiration.13", sent("request", topics.JOB_RAISE), logged("exception"))
def the_time_limit_is_left_to_exec(record: Record, seen: Seen) -> Finding:
    if record.message is None:
        return context_of(record).get("type") in TIME_LIMIT
    if record.party != seen.facts.scheduler or payload(record).get("type") not in TIME_LIMIT:
        return None
    return Broken(f"job {job_id(record)}: the scheduler raises an exception at its time limit")


def _fold_failure(failed: int | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    return record.n if errnum(record) else failed


FAILURE: Final = view("failure", received("response", EXPIRATION), key=no_key, fold=_fold_failure)
"""A single state: the record at which a sched.expiration last failed."""


def _suspended(seen: Seen) -> Iterable[Broken]:
    failed: int = seen.at(FAILURE) or 0
    if failed > link_of(seen).answered:
        for jobid, since in unsent(seen):
            text = f"job {jobid}: no sched.alloc is sent any more after sched.expiration failed"
            yield Broken(text, (since, failed), job=jobid)


@RULES.judge(
    "27.impl.15",
    while_live(FAILURE, sent("request", *TO_SCHEDULER)),
    views=[FAILURE, *UNSENT],
    debts=_suspended,
)
def a_failed_expiration_is_no_fatality(record: Record, seen: Seen) -> Finding:
    return topic_of(record) != EXPIRATION and (seen.at(FAILURE) or 0) > link_of(seen).answered
