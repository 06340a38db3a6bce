"""Invariants of an instance at rest: each job waits for something, and all counts are right.

The job manager's `state` record says when the instance is at rest, whether scheduler and execution
service are connected, and which jobs a plugin holds. All other data comes from the messages and
eventlogs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flux_trio.judge.checks.shapes import arrays
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import COUNTERS, STATE, noted, once, payload
from flux_trio.judge.engine.view import Place, Seen, seen_once
from flux_trio.judge.views import execution, scheduling
from flux_trio.judge.views.eventlogs import LOG, Log
from flux_trio.judge.views.execution import STARTS, Start, is_open
from flux_trio.judge.views.jobs import (
    CLEANUP,
    DEPEND,
    LIFE,
    NEW,
    PRIORITY,
    RUN,
    SCHED,
    SUBMISSIONS,
    Life,
)
from flux_trio.judge.views.queueing import OUTSTANDING
from flux_trio.judge.views.queues import JOB_QUEUES, QUEUES, queue_of_job, stop_of
from flux_trio.judge.views.scheduling import (
    ASKED,
    asked_of,
    has_denial,
    has_grant,
    is_eligible,
    is_freeing,
    is_pending,
)
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

RULES: Final = Rules()


def _is_the_managers(record: Record, seen: Seen) -> bool:
    is_its = payload(record).get("service") == topics.JOB_MANAGER
    return is_its and record.party == seen.facts.manager


@once
def _by_job(record: Record) -> dict[Any, tuple[str, str]]:
    """Return state and reason of each job in the job manager's `state` record."""
    return {
        jobid: (state, reason)
        for jobid, state, reason in arrays(payload(record).get("jobs"), 3)
        if type(jobid) is int and type(state) is type(reason) is str
    }


NOT_TOLD: Final = ("", "")
_NO_JOB: Final = ("no active job", "")


@seen_once
def _others(_record: Record, seen: Seen) -> list[tuple[Any, Life]]:
    """Return the jobs that do not wait in SCHED for the answer to an open request: mostly few."""
    asked_for, lost = seen.all(ASKED), scheduling.link_of(seen).lost
    return [
        (jobid, life)
        for jobid, life in seen.all(LIFE).items()
        if life.state != SCHED or (asked := asked_for.get(jobid)) is None or asked.alloc <= lost
    ]


# --- no job is stuck


@RULES.judge(
    "invariant.nobody-stuck",
    noted(Kind.STATE),
    views=[
        LIFE,
        SUBMISSIONS,
        ASKED,
        LOG,
        OUTSTANDING,
        QUEUES,
        JOB_QUEUES,
        STARTS,
        scheduling.LINK,
        execution.LINK,
    ],
)
def no_job_is_stuck(record: Record, seen: Seen) -> Finding:
    """Each job waits for a plugin, a service, a queue, or an open item of its own."""
    if not _is_the_managers(record, seen):
        return None
    account, known = payload(record), _by_job(record)
    for jobid, life in _others(record, seen):
        held = known.get(jobid, NOT_TOLD)[1]
        lacks = "" if held else _LACKS[life.state](jobid, life, account, seen)
        if lacks:
            text = f"job {jobid} stands still in {life.state}, with nothing to wait for: {lacks}"
            return Broken(text, (life.since,), party=record.party)
    return True


def _lacks_in_new(jobid: Any, life: Life, _account: dict[str, Any], seen: Seen) -> str:
    if not life.is_logged and all(jobid not in ids for ids in seen.all(SUBMISSIONS).values()):
        return ""  # it may be refused: who has submitted it is gone and gets no answer
    return "it is neither validated nor refused"


def _lacks_in_depend(jobid: Any, _life: Life, _account: dict[str, Any], seen: Seen) -> str:
    return "" if _has(seen, jobid, "dependencies") else "it has no dependency and no depend event"


def _lacks_in_priority(_jobid: Any, _life: Life, _account: dict[str, Any], _seen: Seen) -> str:
    return "no plugin is asked for its priority"


def _lacks_in_sched(jobid: Any, life: Life, account: dict[str, Any], seen: Seen) -> str:
    asked = asked_of(seen, jobid)
    if account.get("scheduler") != "ready" or not is_eligible(life) or is_freeing(asked, seen):
        return ""
    if has_grant(asked, seen) or has_denial(asked, seen):
        return "the scheduler has answered, and there is no event that says so"
    is_stopped = stop_of(seen, queue_of_job(seen, jobid)) is not None
    if is_pending(asked, seen) or _is_full(seen) or is_stopped:
        return ""
    return "the scheduler is ready and not asked for resources"


def _lacks_in_run(jobid: Any, _life: Life, account: dict[str, Any], seen: Seen) -> str:
    if _is_executed(jobid, seen) or not account.get("exec") or _has(seen, jobid, "prologs"):
        return ""
    return "the execution service is there and not asked to start it"


def _lacks_in_cleanup(jobid: Any, life: Life, account: dict[str, Any], seen: Seen) -> str:
    if _is_executed(jobid, seen) or _has(seen, jobid, "prologs", "epilogs"):
        return ""
    if not life.held:
        return "it has no resources, no epilog and no clean event"
    if not account.get("exec") and not life.released and _may_be_started(jobid, life, seen):
        return ""  # the next execution service gets its start request
    if account.get("scheduler") != "ready" or is_freeing(asked_of(seen, jobid), seen):
        return ""
    return "nothing of it runs, and the scheduler is not asked to free its resources"


_LACKS: Final = {
    NEW: _lacks_in_new,
    DEPEND: _lacks_in_depend,
    PRIORITY: _lacks_in_priority,
    SCHED: _lacks_in_sched,
    RUN: _lacks_in_run,
    CLEANUP: _lacks_in_cleanup,
}
"""By state: what keeps a job from going on, "" if it waits for something."""


def _has(seen: Seen, jobid: Any, *obstacles: str) -> bool:
    """Whether something that `Log` has holds a job, or may hold one that was read back."""
    log: Log | None = seen.at(LOG, jobid)
    return log is None or any(getattr(log, each) for each in obstacles)


def _is_executed(jobid: Any, seen: Seen) -> bool:
    start: Start | None = seen.states[STARTS].get(jobid)
    return start is not None and start.sent > execution.link_of(seen).lost and is_open(start)


def _may_be_started(jobid: Any, life: Life, seen: Seen) -> bool:
    """Whether a start was sent, or was due when the service was lost.

    A start that waited for a commit is dropped with the service, and a job manager that has read
    the job back cannot tell. The next service says whether anything runs (readings: Final release
    without finish); until then no other job could run on what is freed.
    """
    link = execution.link_of(seen)
    return seen.at(STARTS, jobid) is not None or life.held < max(link.ended, link.unanswered)


def _is_full(seen: Seen) -> bool:
    limit = seen.facts.limit
    return limit is not None and (seen.at(OUTSTANDING) or 0) >= limit


# --- counters equal a recount


@RULES.judge(
    "invariant.counters",
    noted(Kind.STATE),
    noted(Kind.COUNTERS),
    views=[LIFE, ASKED, QUEUES, JOB_QUEUES, scheduling.LINK],
)
def counters_equal_a_recount(record: Record, seen: Seen) -> Finding:
    """The job manager's counters equal a count over the messages and eventlogs; those of a plugin
    equal its own recount.
    """
    if record.kind == STATE and not _is_the_managers(record, seen):
        return None
    is_plugins = record.kind == COUNTERS
    wrong = _wrong_counters(record) if is_plugins else _wrong_in_account(record, seen)
    for text in wrong:
        return Broken(text, party=record.party)
    return True


def _wrong_counters(record: Record) -> Iterator[str]:
    declared, recounted = payload(record).get("declared"), payload(record).get("recounted")
    if isinstance(declared, dict) and isinstance(recounted, dict):
        for name in sorted({*declared, *recounted}):
            if declared.get(name) != recounted.get(name):
                counts = f"{declared.get(name)}, and counted anew {recounted.get(name)}"
                yield f"counter {name} of {payload(record).get('plugin', record.party)}: {counts}"


def _wrong_in_account(record: Record, seen: Seen) -> Iterator[str]:
    account, known, lives = payload(record), _by_job(record), seen.all(LIFE)
    wrong = [
        (jobid, said, life.state)
        for jobid, life in lives.items()
        if (said := known.get(jobid, _NO_JOB)[0]) != life.state
        and life.state != NEW  # new ones are known when admitted
    ]
    for jobid, said, state in wrong:
        yield f"job {jobid}: {said} in the job manager's account, {state} by its eventlog"
    if account.get("scheduler") != "ready" or not known.keys() <= lives.keys():
        return  # jobs from before the trace: their events are not in it
    lost = scheduling.link_of(seen).lost
    pending = len([True for asked in seen.all(ASKED).values() if asked.alloc > lost])
    if account.get("outstanding") != pending:
        count = account.get("outstanding")
        yield f"{count} open sched.alloc requests in the job manager's account, {pending} were sent"
    stops = {
        jobid: stop_of(seen, queue_of_job(seen, jobid))
        for jobid, life in _others(record, seen)
        if is_eligible(life) and _is_unasked(jobid, lost, seen)
    }
    waiting = [jobid for jobid, stop in stops.items() if stop is None]
    held = sum(bool(known.get(jobid, NOT_TOLD)[1]) for jobid in waiting)
    # a job about which a plugin is asked waits for a request still, or does not any more
    if account.get("waiting") not in range(len(waiting) - held, len(waiting) + 1) and (
        0 not in stops.values()
    ):
        told = f"{account.get('waiting')} jobs to ask for in the job manager's account"
        yield f"{told}, {len(waiting)} by the messages"


def _is_unasked(jobid: Any, lost: Place, seen: Seen) -> bool:
    asked = asked_of(seen, jobid)
    is_answered = has_grant(asked, seen) or has_denial(asked, seen) or asked.free > lost
    return asked.alloc <= lost and not is_answered
