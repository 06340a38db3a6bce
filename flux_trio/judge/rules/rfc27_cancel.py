"""RFC 27, Cancel and Alloc Cancel: a pending request is taken back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.judge.checks.shapes import JOB_ID, require_key, require_object, require_silence
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, payload, received, sent
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.granting import (
    ANSWERING,
    INVENTORY,
    SCHED_JOBS,
    Answering,
    another_after,
    inventory_of,
    sched_job,
)
from flux_trio.judge.views.hook_answers import is_held
from flux_trio.judge.views.jobs import LIFE
from flux_trio.judge.views.queueing import OUTSTANDING, UNSENT, rank_of, ready_since, unsent
from flux_trio.judge.views.queues import queue_of_job, stop_of
from flux_trio.judge.views.scheduling import (
    ASKED,
    CANCEL,
    CANCELS,
    DENY,
    FINAL,
    LINK,
    REQUESTING,
    Requesting,
    asked_of,
    is_eligible,
    is_pending,
    link_of,
)
from flux_trio.judge.views.serving import SERVING, denied_though_served
from flux_trio.judge.views.submitted import UPDATES, updates_of
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

ANSWERED: Final = sent("response", topics.SCHED_ALLOC)
CANCELED: Final = sent("request", topics.SCHED_CANCEL)


def cancel_unanswered(seen: Seen) -> Iterable[Broken]:
    if not seen.facts.is_ready:
        return
    for jobid in seen.all(SCHED_JOBS):
        known = sched_job(seen, jobid)
        if known.alloc and known.cancel:
            text = f"job {jobid}: sched.cancel was taken up, and its sched.alloc is not answered"
            yield Broken(text, (known.alloc, known.cancel), job=jobid)


@RULES.by(
    ANSWERING,
    "27.alloccancel.1",
    ANSWERED,
    views=[SCHED_JOBS],
    needs_crossing=True,
    debts=cancel_unanswered,
)
def cancel_is_answered_cancel(answering: Answering, record: Record, seen: Seen) -> Finding:
    kind = answering.type
    if not answering.is_of_job or not answering.is_open or not answering.is_canceled:
        return None
    if kind not in FINAL:
        return None
    if kind == CANCEL:
        return True
    known = sched_job(seen, job_id(record))
    if not seen.knew(record.party, known.cancel):
        return None
    text = f"job {job_id(record)}: sched.cancel was taken up; expected type 3, CANCEL, got {kind}"
    return Broken(text, (known.cancel,))


@RULES.judge("27.alloccancel.2", CANCELS)
def cancel_has_only_its_keys(record: Record, _facts: object) -> Finding:
    content = payload(record)
    if content.get("type") != CANCEL:
        return None
    more = sorted(content.keys() - {"id", "type"})
    if not more:
        return True
    return Broken(f"job {job_id(record)}: CANCEL: expected id and type only, got {more} as well")


def _not_asked_again(seen: Seen) -> Iterable[Broken]:
    for jobid, since in unsent(seen):
        asked = asked_of(seen, jobid)
        if asked.cancel and asked.first_alloc > link_of(seen).answered:
            text = f"job {jobid}: its request was canceled, and is not sent again"
            yield Broken(text, (since, asked.cancel), job=jobid)


@RULES.by(
    ANSWERING,
    "27.alloccancel.4",
    ANSWERED,
    sent("request", topics.SCHED_ALLOC),
    views=[SCHED_JOBS, *UNSENT],
    debts=_not_asked_again,
)
def cancel_ends_the_request(answering: Answering | None, record: Record, seen: Seen) -> Finding:
    if answering is None:
        has_jobspec = payload(record).get("jobspec") is not None
        return has_jobspec and asked_of(seen, job_id(record)).cancel != 0
    if not answering.is_of_job or answering.is_open or answering.how != CANCEL:
        return None
    return another_after("CANCEL", record, seen)


require_object(RULES, "27.cancel.1", CANCELED)
require_key(RULES, "27.cancel.2", CANCELED, key="id", shape=JOB_ID)


require_silence(RULES, "27.cancel.4", topics.SCHED_CANCEL, "one in answer to sched.alloc instead")


@RULES.judge(
    "27.cancel.5", CANCELS, views=[SCHED_JOBS], needs_crossing=True, debts=cancel_unanswered
)
def the_request_ends_after_cancel(record: Record, seen: Seen) -> Finding:
    known = sched_job(seen, job_id(record))
    return bool(known.alloc and known.cancel) and payload(record).get("type") == CANCEL


@RULES.by(
    ANSWERING, "27.cancel.6", ANSWERED, received("request", topics.SCHED_CANCEL), views=[SCHED_JOBS]
)
def cancel_of_nothing_is_ignored(
    answering: Answering | None, record: Record, seen: Seen
) -> Finding:
    if answering is None:
        return not sched_job(seen, job_id(record)).alloc
    if not answering.is_of_job or answering.is_open or not answering.is_idle_canceled:
        return None
    known = sched_job(seen, job_id(record))
    text = f"job {job_id(record)}: no request was open when sched.cancel came; expected no answer"
    return Broken(text, (known.idle_cancel,))


def _crossed_and_lost(seen: Seen) -> Iterable[Broken]:
    for jobid, asked in seen.all(ASKED).items():
        if asked.crossed and asked.granted > link_of(seen).lost:
            text = f"job {jobid}: SUCCESS crossed a sched.cancel; expected an alloc event"
            yield Broken(
                f"{text} or, if it has left SCHED, sched.free", (asked.granted,), job=jobid
            )


@RULES.by(
    REQUESTING,
    "27.cancel.7",
    sent("request", topics.SCHED_FREE),
    logged("alloc"),
    views=[ASKED, LINK],
    debts=_crossed_and_lost,
)
def a_success_that_crosses_is_honoured(
    requesting: Requesting | None, record: Record, seen: Seen
) -> Finding:
    if requesting is not None:
        return requesting.is_crossed
    return asked_of(seen, job_id(record)).crossed


@RULES.by(ANSWERING, "27.cancel.8", ANSWERED, views=[*SERVING, INVENTORY, UPDATES])
def a_canceled_request_may_come_again(answering: Answering, record: Record, seen: Seen) -> Finding:
    """A request that was canceled may be sent again, and is answered as any other.

    It may be denied if the jobspec has changed, and if no inventory of the instance can serve it
    (readings: Unsatisfiable).
    """
    kind = answering.type
    if not answering.is_of_job or not answering.is_open or not answering.was_canceled:
        return None
    if kind != DENY:
        return True if kind in FINAL else None
    known = sched_job(seen, job_id(record))
    inventory = inventory_of(seen)
    if inventory.lessened > known.canceled or not denied_though_served(record, seen):
        return None
    if any(each.n > known.was_asked for each in updates_of(seen, job_id(record))):
        return None
    text = f"job {job_id(record)}: is denied what was only canceled before"
    return Broken(text, (known.canceled,))


def _better_waits(seen: Seen) -> Iterable[Broken]:
    """In limited mode at its limit: a job that ranks above one whose request is not canceled."""
    if seen.facts.limit is None or not link_of(seen).is_up:
        return
    lives = {
        jobid: life
        for jobid, life in seen.all(LIFE).items()
        if is_eligible(life) and not is_held(jobid, life, seen)
        if life.t_submit  # else the trace does not tell its rank
    }
    asked = {jobid for jobid in lives if is_pending(asked_of(seen, jobid), seen)}
    kept = [jobid for jobid in asked if not asked_of(seen, jobid).cancel]
    if kept and (seen.at(OUTSTANDING) or 0) >= seen.facts.limit:
        worst = max(kept, key=lambda jobid: rank_of(lives[jobid]))
        for jobid in lives.keys() - asked:
            is_stopped = stop_of(seen, queue_of_job(seen, jobid)) is not None
            if not is_stopped and rank_of(lives[jobid]) < rank_of(lives[worst]):
                text = f"job {jobid}: waits unasked for behind job {worst}, which ranks below it"
                ranks = (lives[jobid].prioritized, lives[worst].prioritized)
                yield Broken(text, (max(ready_since(seen, lives[jobid]), *ranks),), job=jobid)


@RULES.judge("27.cancel.10", CANCELED, views=UNSENT, debts=_better_waits)
def room_is_made_for_better_jobs(record: Record, seen: Seen) -> Finding:
    return seen.facts.limit is not None and is_eligible(seen.at(LIFE, job_id(record)))
