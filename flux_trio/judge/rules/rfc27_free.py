"""RFC 27, Free: the resources of a job that is over are freed once, with a response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from flux_trio.judge.checks.shapes import JOB_ID, require_key, require_object
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, sent
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.eventlogs import LOG, is_open_at_its_end
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.hook_answers import HOOK_ANSWERS, is_held
from flux_trio.judge.views.jobs import CLEANUP, LIFE, Life
from flux_trio.judge.views.scheduling import ASKED, LINK, asked_of, is_freed, is_freeing, link_of
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

FREE: Final = topics.SCHED_FREE


def unfreed(seen: Seen) -> Iterable[tuple[int, Life]]:
    """Yield the jobs in CLEANUP for which a free is due at the end of a trace at rest.

    Prologs and epilogs hold the resources (readings: When to free), and so does a plugin that has
    failed in the hook of CLEANUP.
    """
    if not link_of(seen).is_up:
        return
    for jobid, life in seen.all(LIFE).items():
        asked = asked_of(seen, jobid)
        is_over = life.state == CLEANUP and life.held and life.released
        if not is_over or is_freeing(asked, seen) or is_freed(asked, seen):
            continue
        if not is_open_at_its_end(jobid, seen) and not is_held(jobid, life, seen):
            assert isinstance(jobid, int)
            yield jobid, life


UNFREED: Final = (LIFE, ASKED, LINK, LOG, HOOK_ANSWERS)
"""The views that `unfreed` reads."""


def require_freed(
    rules: Rules, clause: str, what: str, concerns: Callable[[Life], bool] = lambda _life: True
) -> None:
    """Register `clause`: the resources of a job are freed before its clean event.

    `concerns` says which jobs the clause is about, and `what` describes them in the text of a
    violation.
    """

    def debts(seen: Seen) -> Iterable[Broken]:
        for jobid, life in unfreed(seen):
            if concerns(life):
                text = f"job {jobid}: {what} and holds resources, and no sched.free is sent"
                yield Broken(text, _because(life), job=jobid)

    @rules.judge(clause, sent("request", FREE), logged("clean"), views=UNFREED, debts=debts)
    def judge(record: Record, seen: Seen) -> Finding:
        life: Life | None = seen.at(LIFE, job_id(record))
        if life is None or not life.held or not concerns(life):
            return None
        if record.message is not None:
            return True
        text = f"job {job_id(record)}: {what}: clean event while it holds resources"
        return Broken(f"{text}: no free event since alloc", _because(life))


def _because(life: Life) -> tuple[int, ...]:
    return tuple(n for n in (life.held, life.fatal, life.released) if n)


require_freed(RULES, "27.free.1", "is over")
require_key(RULES, "27.free.2", sent("request", FREE), key="id", shape=JOB_ID)


def _free_unanswered(seen: Seen) -> Iterable[Broken]:
    if not seen.facts.is_ready:
        return
    for jobid in seen.all(SCHED_JOBS):
        known = sched_job(seen, jobid)
        if known.free:
            yield Broken(f"job {jobid}: sched.free is not answered", (known.free,), job=jobid)


require_object(
    RULES, "27.free.6", sent("response", FREE), views=[SCHED_JOBS], debts=_free_unanswered
)
require_key(RULES, "27.free.7", sent("response", FREE), key="id", shape=JOB_ID)


def _freed_without_event(seen: Seen) -> Iterable[Broken]:
    for jobid, life in seen.all(LIFE).items():
        asked = asked_of(seen, jobid)
        if is_freed(asked, seen) and life.held:
            text = f"job {jobid}: sched.free is answered, and no free event follows"
            yield Broken(text, (asked.freed,), job=jobid)


@RULES.judge("27.free.9", logged("free"), views=[ASKED, LIFE], debts=_freed_without_event)
def the_answer_makes_the_free_event(record: Record, seen: Seen) -> Finding:
    jobid = job_id(record)
    life = seen.at(LIFE, jobid)
    if life is None or life.bypassed or not link_of(seen).hello:
        return None
    if asked_of(seen, jobid).freed:
        return True
    return Broken(f"job {jobid}: free event, and no answer to its sched.free was taken up")
