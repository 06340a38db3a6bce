"""RFC 33: jobspec updates, when a queue is assigned, queues that are stopped.

What depends on how queues are configured is in rfc33_validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flux_trio.formats import value_at
from flux_trio.judge.checks.jobspecs import without_environment
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ANY_TOPIC,
    EVENT,
    HOOK,
    OWN,
    called,
    errnum,
    job_id,
    logged,
    message,
    payload,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.durable import DOUBTS, DURABLE, is_doubtful, is_durable
from flux_trio.judge.views.jobs import LIFE, SCHED, Life, context_of
from flux_trio.judge.views.queues import JOB_QUEUES, QUEUE, QUEUES, queue_of, queue_of_job, stop_of
from flux_trio.judge.views.scheduling import ASKED, AllocRequests, is_pending
from flux_trio.judge.views.submitted import SUBMITTED, UPDATES, original_of, updated, updates_of
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

ALLOC: Final = sent("request", topics.SCHED_ALLOC)

# --- jobspec updates


@RULES.judge("33.defaults.7", while_live(UPDATES, ALLOC), views=(UPDATES, DURABLE))
def the_updated_jobspec_is_sent(record: Record, seen: Seen) -> Finding:
    latest = {each.path: each for each in updates_of(seen, job_id(record))}
    known = [each for each in latest.values() if is_durable(seen, record.party, each.n)]
    for each in known:
        got = value_at(payload(record).get("jobspec"), each.path)
        if got != each.value:
            text = f"expected {each.json} by its jobspec-update, got {got!r:.80}"
            return Broken(f"jobspec of job {job_id(record)}: {each.path}: {text}", (each.n,))
    return bool(known)


@RULES.judge("33.defaults.9", ALLOC, views=(*SUBMITTED, DURABLE))
def every_change_is_in_the_eventlog(record: Record, seen: Seen) -> Finding:
    original, sent_ = original_of(seen, job_id(record)), payload(record).get("jobspec")
    updates = updates_of(seen, job_id(record))
    if original is None or not isinstance(sent_, dict):
        return None
    if not all(is_durable(seen, record.party, each.n) for each in updates):
        return None
    expected = updated(original, updates)
    if expected is None:
        return None
    if without_environment(expected) == without_environment(sent_):
        return True
    what = f"jobspec of job {job_id(record)}"
    text = "differs from the stored one with all its jobspec-update events applied"
    return Broken(f"{what}: {text}", tuple(each.n for each in updates))


# --- assignment and validation


def _fold_assigning(
    was: Place | str | None, _part: None, record: Record, _seen: Seen
) -> Place | str | None:
    if record.kind == HOOK:  # of a job that was accepted before the trace, nothing is known
        return record.n if was == "new" else was
    name = payload(record).get("name")
    if name != "jobspec-update":
        return {"submit": "new", "validate": "accepted"}.get(str(name))
    if QUEUE not in context_of(record) or was in (None, "accepted"):
        return was
    return "assigned" if isinstance(was, str) else None


ASSIGNING: Final = view(
    "assigning",
    called("job.validate"),
    logged("submit", "jobspec-update", "validate", "invalidate", "clean"),
    key=job_id,
    fold=_fold_assigning,
)
"""By job id: `new`, then `assigned` once its queue is assigned, or before that the record at which
job.validate was asked; `accepted` in the end."""


@RULES.judge("33.assignment.3", called("job.validate"), logged("jobspec-update"), views=[ASSIGNING])
def assigned_before_plugins_are_asked(record: Record, seen: Seen) -> Finding:
    was: Place | str | None = seen.at(ASSIGNING, job_id(record))
    if record.kind == HOOK:
        return was == "assigned"
    if QUEUE not in context_of(record) or was is None or isinstance(was, str):
        return None  # an accepted job may be moved to another queue
    text = f"job {job_id(record)}: expected its queue to be assigned before job.validate was asked"
    return Broken(text, (was,))


def _fold_rejected(rejected: Place | None, _part: None, record: Record, seen: Seen) -> Place | None:
    if payload(record).get("name") == "invalidate":
        return record.n
    return None if rejected is not None and is_doubtful(seen, rejected) else rejected


REJECTED: Final = view(
    "rejected",
    logged("invalidate"),
    while_live(OWN, logged(ANY_TOPIC)),
    key=job_id,
    fold=_fold_rejected,
    reads=(DOUBTS,),
)
"""By job id: the record of its invalidate event. A job manager that ends before the job is removed
may let the next one be asked for it again."""


@RULES.judge(
    "33.validation.4",
    logged("invalidate"),
    while_live(REJECTED, logged(ANY_TOPIC), sent("response", topics.INGEST_SUBMIT)),
    views=(REJECTED, DOUBTS),
)
def a_rejected_job_never_was(record: Record, seen: Seen) -> Finding:
    if payload(record).get("name") == "invalidate":
        return True
    rejected: int | None = seen.at(REJECTED, job_id(record))
    if rejected is None or errnum(record):
        return None
    if record.kind != EVENT:
        text = "rejected: expected an error for its submitter, got success"
    elif is_doubtful(seen, rejected):
        return None
    else:
        text = f"expected no event after invalidate, got {payload(record).get('name')}"
    return Broken(f"job {job_id(record)}: {text}", (rejected,))


# --- stopping and starting


def _owed_cancels(seen: Seen) -> Iterable[Broken]:
    asked_of: Mapping[Any, AllocRequests] = seen.all(ASKED)
    for job, asked in asked_of.items():
        stopped = stop_of(seen, queue_of_job(seen, job))
        life: Life | None = seen.at(LIFE, job)
        is_waiting = is_pending(asked, seen) and life and life.state == SCHED
        if stopped and is_waiting and asked.cancel < stopped:
            text = "its queue was stopped: expected sched.cancel of its alloc request"
            yield Broken(f"job {job}: {text}, none was sent", (asked.alloc, stopped), job=job)


@RULES.judge(
    "33.admin.6",
    sent("request", topics.SCHED_CANCEL),
    views=(QUEUES, JOB_QUEUES, ASKED, LIFE),
    debts=_owed_cancels,
)
def stopping_cancels_what_is_pending(record: Record, seen: Seen) -> Finding:
    return stop_of(seen, queue_of_job(seen, job_id(record))) is not None


@RULES.judge("33.admin.7", ALLOC, views=(QUEUES, DURABLE))
def nothing_is_asked_for_a_stopped_queue(record: Record, seen: Seen) -> Finding:
    queue = queue_of(payload(record).get("jobspec"))
    stopped = stop_of(seen, queue)
    if not stopped:
        return True
    if not is_durable(seen, record.party, stopped):
        return None  # it may have been on its way
    text = f"queue {queue or '(anonymous)'} is stopped: expected no sched.alloc"
    return Broken(f"job {job_id(record)}: {text}", (stopped,))


@RULES.judge("33.criteria.5", sent("request", f"{topics.SCHED}.*"))
def queues_are_not_the_schedulers_business(record: Record, seen: Seen) -> Finding:
    topic = getattr(message(record), "topic", "")
    if record.party != seen.facts.manager:
        return None
    found = [key for key in payload(record) if key.startswith("queue")]
    return Broken(f"{topic}: expected no key {found[0]}") if found else True
