"""RFC 27 in the trace of a router: a cancel is answered, whatever crossed it; the queue's depth."""

from __future__ import annotations

from typing import Final

from flux_trio.judge.engine.rule import Broken, Rules, Said, Seen, errnum, job_id, payload, sent
from flux_trio.judge.rules.rfc27_cancel import cancel_unanswered
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.jobs import LIFE, PRIORITY, SCHED
from flux_trio.judge.views.scheduling import CANCELS
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules(routed=True)


def _require_answer(clause: str) -> None:
    """Register `clause`: a request that was canceled is answered, and CANCEL answers a cancel."""

    @RULES.judge(clause, CANCELS, views=[SCHED_JOBS], debts=cancel_unanswered)
    def judge(record: Record, seen: Seen) -> Said:
        known = sched_job(seen, job_id(record))
        if record.party != seen.facts.scheduler or not known.alloc:
            return None
        if known.cancel:
            return True
        text = f"job {job_id(record)}: CANCEL, and its request was not canceled"
        return Broken(text, (known.alloc,), party=record.party)


_require_answer("27.alloccancel.1")
_require_answer("27.cancel.5")


@RULES.judge("27.ready.12", sent("response", topics.SCHED_READY), views=[LIFE])
def no_more_than_the_jobs_that_wait_are_counted(record: Record, seen: Seen) -> Said:
    """Held jobs and those of stopped queues need not be counted."""
    count = payload(record).get("count")
    if errnum(record) or type(count) is not int:
        return None
    waiting = sum(life.state in (PRIORITY, SCHED) for life in seen.all(LIFE).values())
    if count <= waiting:
        return True
    return Broken(f"sched-ready: count: expected at most {waiting}, the jobs in SCHED, got {count}")
