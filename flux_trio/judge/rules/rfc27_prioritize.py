"""RFC 27, Prioritize: the job manager sends new priorities of pending requests.

Left out: 27.prioritize.9, since a trace does not show which priorities changed in one update.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.shapes import (
    ARRAY,
    JOB_ID,
    PRIORITY,
    arrays,
    part,
    require_key,
    require_silence,
)
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import RECV, errnum, job_id, logged, payload, received, sent
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.durable import DURABLE, is_durable, is_overdue
from flux_trio.judge.views.eventlogs import LOG
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.jobs import LIFE, Life
from flux_trio.judge.views.queueing import PRIORITIES, priorities_untold, priority_untold
from flux_trio.judge.views.scheduling import ASKED, FINAL, asked_of, is_pending
from flux_trio.judge.views.suspending import may_be_suspended
from flux_trio.messages import Response, topics
from flux_trio.trace import Record

RULES: Final = Rules()

SENT: Final = sent("request", topics.SCHED_PRIORITIZE)


def _jobs(record: Record) -> list[Any]:
    found: list[Any] = part(payload(record), "jobs", list)
    return found


@RULES.judge(
    "27.prioritize.1",
    SENT,
    received("response", topics.SCHED_ALLOC),
    views=(*PRIORITIES, DURABLE),
    debts=priorities_untold,
)
def new_priorities_are_told(record: Record, seen: Seen) -> Finding:
    """A new priority of a job with an open request is sent to the scheduler within a second, even
    if the scheduler's answer comes meanwhile.
    """
    if isinstance(record.message, Response):
        return _answered_by_the_old_one(record, seen)
    ids = [each[0] for each in _jobs(record) if isinstance(each, (list, tuple)) and each]
    return any(is_pending(asked_of(seen, jobid), seen) for jobid in ids if type(jobid) is int)


def _answered_by_the_old_one(record: Record, seen: Seen) -> Finding:
    """Judge the job manager when it receives the last answer to a request.

    When scheduling is suspended, it asks nothing, and the scheduler may go on.
    """
    broken = priority_untold(job_id(record), seen)
    if broken is None or errnum(record) or payload(record).get("type") not in FINAL:
        return None
    if not is_overdue(seen, record.party, broken.because[0]) or may_be_suspended(seen):
        return None
    return broken


require_key(RULES, "27.prioritize.2", SENT, key="jobs", shape=ARRAY)


@RULES.judge("27.prioritize.3", SENT)
def each_is_a_pair(record: Record, _seen: Seen) -> Finding:
    for each in _jobs(record):
        if not isinstance(each, (list, tuple)) or len(each) != 2:
            text = "sched.prioritize: jobs: expected arrays of two elements"
            return Broken(f"{text}, got {each!r:.80}")
    return bool(_jobs(record))


def _pairs(record: Record) -> Iterable[tuple[Any, Any]]:
    return [(each[0], each[1]) for each in arrays(_jobs(record), 2)]


RESTARTED: Final = view(
    "restarted jobs",
    logged("flux-restart"),
    key=job_id,
    fold=lambda _n, _part, record, _seen: record.n,
    state=Place,
)
"""By job id: the restart of a job. It may be older than the trace, and then no other view keeps it
once it is over."""


@RULES.judge("27.prioritize.4", SENT, views=[LIFE, LOG, ASKED, RESTARTED])
def the_first_is_a_job(record: Record, seen: Seen) -> Finding:
    """A job that is over may be named, when the message crosses with the scheduler's answer."""
    for jobid, _ in _pairs(record):
        if not JOB_ID.fits(jobid):
            text = f"sched.prioritize: jobs: element 0: expected {JOB_ID.words}"
            return Broken(f"{text}, got {jobid!r:.80}")
        is_known = any(seen.at(each, jobid) is not None for each in (LIFE, LOG, ASKED, RESTARTED))
        is_managers = record.party == seen.facts.manager
        if not is_known and is_managers and seen.facts.has_begun("scheduler"):
            text = f"sched.prioritize: jobs: expected jobs with a sched.alloc, got {jobid}"
            return Broken(f"{text}, and there is no such job", job=jobid)
    return bool(_jobs(record))


@RULES.judge("27.prioritize.5", SENT, views=[LIFE, DURABLE])
def the_second_is_its_priority(record: Record, seen: Seen) -> Finding:
    for jobid, priority in _pairs(record):
        if not PRIORITY.fits(priority):
            text = f"sched.prioritize: jobs: element 1: expected {PRIORITY.words}"
            return Broken(f"{text}, got {priority!r:.80}")
        life: Life | None = seen.at(LIFE, jobid)
        if life is None or life.priority == priority:
            continue
        if is_durable(seen, record.party, life.prioritized):
            text = f"job {jobid}: sched.prioritize: expected its priority {life.priority}"
            return Broken(f"{text}, got {priority}", (life.prioritized,), job=jobid)
    return bool(_jobs(record))


def _unknown(record: Record, seen: Seen) -> Iterable[int]:
    for each in _jobs(record):
        if isinstance(each, (list, tuple)) and each and not sched_job(seen, each[0]).alloc:
            yield each[0]


@RULES.judge(
    "27.prioritize.7",
    received("request", topics.SCHED_PRIORITIZE),
    sent("response", topics.SCHED_PRIORITIZE),
    views=[SCHED_JOBS],
)
def unknown_jobs_are_ignored(record: Record, seen: Seen) -> Finding:
    if record.kind == RECV:
        return any(True for _ in _unknown(record, seen))
    if record.party != seen.facts.scheduler or not errnum(record):
        return None
    return Broken(
        f"sched.prioritize: answered with errnum {errnum(record)}; ids that are not known"
    )


require_silence(RULES, "27.prioritize.8", topics.SCHED_PRIORITIZE, "none")
