"""RFC 27, Alloc: the request for resources, and the form of its answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.owners import require_owner
from flux_trio.judge.checks.shapes import (
    JOB_ID,
    OBJECT,
    PRIORITY,
    between,
    object_payload,
    require_key,
)
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, job_id, logged, payload, response_of, sent
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.durable import DURABLE, is_durable
from flux_trio.judge.views.granting import ANSWERING, SCHED_JOBS, Answering, sched_job
from flux_trio.judge.views.holding import GRANTS
from flux_trio.judge.views.jobs import LIFE, Life
from flux_trio.judge.views.queueing import UNSENT, not_asked_for
from flux_trio.judge.views.resources import AS_RECEIVED, as_received
from flux_trio.judge.views.scheduling import ASKED, CANCEL, LINK, asked_of, is_pending, link_of
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

ALLOC: Final = topics.SCHED_ALLOC
ASKED_FOR: Final = sent("request", ALLOC)
ANSWERED: Final = sent("response", ALLOC)
NOT_AN_OBJECT: Final = "sched.alloc response, whose payload is no object"


@RULES.judge("27.alloc.1", ASKED_FOR, views=UNSENT, debts=not_asked_for)
def resources_are_asked_for(record: Record, _seen: Seen) -> Finding:
    return job_id(record) is not None


require_key(RULES, "27.alloc.2", ASKED_FOR, key="id", shape=JOB_ID)
require_owner(RULES, "27.alloc.4", ASKED_FOR)
require_key(RULES, "27.alloc.5", ASKED_FOR, key="jobspec", shape=OBJECT)


@RULES.judge("27.alloc.3", ASKED_FOR, views=[LIFE, DURABLE])
def priority_is_the_current_one(record: Record, seen: Seen) -> Finding:
    jobid, content = job_id(record), payload(record)
    if "priority" not in content:
        return Broken(f"job {jobid}: sched.alloc: expected key priority; it is missing")
    priority = content["priority"]
    if not PRIORITY.fits(priority):
        text = f"job {jobid}: sched.alloc: priority: expected {PRIORITY.words}, got {priority!r}"
        return Broken(text)
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or life.priority == priority:
        return True
    if not is_durable(seen, record.party, life.prioritized):
        return None
    text = f"job {jobid}: sched.alloc: priority: expected {life.priority}, got {priority}"
    return Broken(text, (life.prioritized,))


@RULES.by(ANSWERING, "27.alloc.7", ANSWERED, views=[SCHED_JOBS])
def environment_is_not_needed(answering: Answering, record: Record, seen: Seen) -> Finding:
    if not answering.is_of_scheduler or not answering.is_ready:
        return None
    is_lean = answering.is_open and not answering.has_environment
    if not is_lean and not answering.is_error:
        return None
    if not answering.has_text:
        return True
    answer = response_of(record)
    if "environment" in f"{answer.error_text} {payload(record).get('note')}":
        text = "fails on a sched.alloc whose jobspec has no environment"
        known = sched_job(seen, job_id(record))
        return Broken(f"job {job_id(record)}: {text}", (known.alloc,))
    return not answering.is_error


def _answer(record: Record, seen: Seen) -> list[tuple[str, dict[str, Any]]]:
    """Return the payload of an answer that is no error; {} if it is no object."""
    return object_payload(record, seen) or ([] if errnum(record) else [(NOT_AN_OBJECT, {})])


require_key(RULES, "27.alloc.9", ANSWERED, key="id", shape=JOB_ID, subjects=_answer)
require_key(RULES, "27.alloc.10", ANSWERED, key="type", shape=between(0, 3))


@RULES.by(ANSWERING, "27.alloc.11", ANSWERED, views=[SCHED_JOBS])
def a_type_means_what_it_says(answering: Answering, record: Record, _seen: Seen) -> Finding:
    """CANCEL answers a request that was canceled. Other clauses judge the meaning of the other
    types.
    """
    if not answering.is_of_job or not answering.is_open or answering.type < 0:
        return None
    if answering.type != CANCEL or answering.is_canceled:
        return True
    text = f"job {job_id(record)}: type 3 is CANCEL, and no sched.cancel of the request had come"
    return Broken(text)


def _unanswered(seen: Seen) -> Iterable[Broken]:
    """Yield the open requests; one may wait unless all is free and the least job would fit."""
    all_free = _is_all_free(seen)
    for jobid, asked in seen.all(ASKED).items():
        if is_pending(asked, seen) and link_of(seen).is_up:
            known = sched_job(seen, jobid)
            is_due = all_free and known.alloc and known.is_simple and not known.cancel
            text = f"job {jobid}: sched.alloc is not answered"
            party = seen.facts.scheduler
            yield Broken(text, (asked.alloc,), job=jobid, party=party, may_wait=not is_due)
    yield from _annotated_and_dropped(seen)


def _is_all_free(seen: Seen) -> bool:
    """Whether no job holds resources, and all that the scheduler acquired may be used."""
    if any(life.held for life in seen.all(LIFE).values()) or seen.all(GRANTS):
        return False
    had = as_received(seen, seen.facts.scheduler)
    return had is not None and bool(had.online) and had.granted == had.online and not had.taken


def _annotated_and_dropped(seen: Seen) -> Iterable[Broken]:
    for jobid in seen.all(LIFE):
        asked = asked_of(seen, jobid)
        if asked.annotated and asked.granted > link_of(seen).lost:
            text = f"job {jobid}: SUCCESS after ANNOTATE, and no alloc event follows"
            yield Broken(text, (asked.annotated, asked.granted), job=jobid)


@RULES.judge(
    "27.alloc.12",
    logged("alloc"),
    views=[LIFE, ASKED, LINK, SCHED_JOBS, GRANTS, AS_RECEIVED],
    debts=_unanswered,
)
def annotate_does_not_end_a_request(record: Record, seen: Seen) -> Finding:
    asked = asked_of(seen, job_id(record))
    return bool(asked.annotated and asked.granted)
