"""RFC 27, Alloc Success: R is stored first, then the job has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from flux_trio.judge.checks.shapes import OBJECT
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, payload, sent
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.durable import DURABLE
from flux_trio.judge.views.granting import (
    ANSWERING,
    SCHED_JOBS,
    Answering,
    another_after,
    sched_job,
)
from flux_trio.judge.views.holding import COMMITS, WRITTEN, Commit, Written
from flux_trio.judge.views.jobs import LIFE, PRIORITY, SCHED, context_of, is_bypass
from flux_trio.judge.views.scheduling import (
    ASKED,
    SUCCESS,
    SUCCESSES,
    AllocRequests,
    asked_of,
    link_of,
)
from flux_trio.judge.views.traits import WITH_R
from flux_trio.messages import topics
from flux_trio.trace import CLIENT, Record

RULES: Final = Rules()

ANSWERED: Final = sent("response", topics.SCHED_ALLOC)


STORERS: Final = view(
    "parties that store",
    sent("request", *topics.COMMITS, mark=WITH_R),
    key=lambda record: record.party,
    fold=lambda n, _part, record, _seen: n or record.n,
    state=Place,
)
"""By party: the first record by which it stores an R."""


def _shows_commits(party: str, seen: Seen) -> bool:
    """Whether the trace shows what a scheduler stores.

    A trace of modules does not show it of a scheduler that is no module. In one that begins late
    such a scheduler has the name of its service.
    """
    is_named = party not in (CLIENT, topics.SCHED) or seen.facts.has_come(party)
    is_traced = (is_named and party != CLIENT) or seen.at(STORERS, party) is not None
    return bool(seen.all(DURABLE)) and is_traced


@RULES.judge("27.success.1", SUCCESSES, views=[SCHED_JOBS, WRITTEN, COMMITS, DURABLE, STORERS])
def r_is_stored_first(record: Record, seen: Seen) -> Finding:
    jobid = job_id(record)
    is_success = payload(record).get("type") == SUCCESS and record.party == seen.facts.scheduler
    if not is_success or not sched_job(seen, jobid).alloc:
        return None
    if not _shows_commits(record.party, seen):
        return None
    written: Written | None = seen.at(WRITTEN, jobid)
    if written is None:
        return Broken(f"job {jobid}: SUCCESS, and the scheduler has stored no R of it")
    commit: Commit | None = seen.at(COMMITS, written.rpc)
    if commit is not None and commit.n == written.n:
        what = "though the commit of its R was refused"
        what = what if commit.is_refused else "before the commit of its R is answered"
        return Broken(f"job {jobid}: SUCCESS {what}", (written.n,))
    return True


def _granted(seen: Seen) -> Iterable[tuple[Any, AllocRequests]]:
    """Yield the jobs that got SUCCESS in SCHED without an alloc event or a free."""
    for jobid, life in seen.all(LIFE).items():
        asked = asked_of(seen, jobid)
        waits = life.state in (SCHED, PRIORITY)
        if asked.granted > link_of(seen).lost and waits:
            yield jobid, asked


def _plain_success_dropped(seen: Seen) -> Iterable[Broken]:
    for jobid, asked in _granted(seen):
        if not asked.has_annotations:
            text = f"job {jobid}: SUCCESS without annotations, and no alloc event follows"
            yield Broken(text, (asked.granted,), job=jobid)


@RULES.judge(
    "27.success.2", SUCCESSES, logged("alloc"), views=[ASKED, LIFE], debts=_plain_success_dropped
)
def annotations_may_be_left_out(record: Record, seen: Seen) -> Finding:
    if record.message is None:
        asked = asked_of(seen, job_id(record))
        return bool(asked.granted) and not asked.has_annotations
    content = payload(record)
    if (
        content.get("type") != SUCCESS
        or "annotations" not in content
        or OBJECT.fits(content["annotations"])
    ):
        return None
    text = f"job {job_id(record)}: SUCCESS: annotations: expected an object"
    return Broken(f"{text}, got {content['annotations']!r:.80}", party=record.party)


def _nulls(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_nulls(each) for each in value.values())
    return value is None


@RULES.judge("27.success.5", SUCCESSES, logged("alloc"))
def nulls_remove_and_are_not_kept(record: Record, _facts: object) -> Finding:
    if record.message is not None:
        content = payload(record)
        return content.get("type") == SUCCESS and _nulls(content.get("annotations", {}))
    if not _nulls(context_of(record).get("annotations", {})):
        return None
    text = f"job {job_id(record)}: alloc event: a null in annotations; null means to remove the key"
    return Broken(text, party=record.party)


def was_granted(record: Record, seen: Seen, unless: str) -> Finding:
    """Whether an alloc event follows a SUCCESS; `unless` is the text of a violation if it does not.

    A job is left out if a plugin gave it its resources, or if it came before the scheduler did.
    """
    jobid = job_id(record)
    if seen.at(LIFE, jobid) is None or is_bypass(record) or not link_of(seen).hello:
        return None
    if asked_of(seen, jobid).granted:
        return True
    return Broken(f"job {jobid}: {unless}", is_missing=True)


def _no_alloc_event(seen: Seen) -> Iterable[Broken]:
    for jobid, asked in _granted(seen):
        yield Broken(
            f"job {jobid}: SUCCESS, and no alloc event follows", (asked.granted,), job=jobid
        )


@RULES.judge("27.success.6", logged("alloc"), views=[ASKED, LIFE], debts=_no_alloc_event)
def success_makes_the_alloc_event(record: Record, seen: Seen) -> Finding:
    return was_granted(record, seen, "alloc event without a SUCCESS")


@RULES.by(ANSWERING, "27.success.8", ANSWERED, views=[SCHED_JOBS])
def success_ends_the_request(answering: Answering, record: Record, seen: Seen) -> Finding:
    if not answering.is_of_job:
        return None
    if answering.is_open or not answering.has_ended:
        return answering.type == SUCCESS
    if answering.how != SUCCESS:
        return None
    # what the job manager gives back because of a second SUCCESS is that of the first one
    again = another_after("SUCCESS", record, seen)
    return replace(again, is_missing=True) if answering.type == SUCCESS else again
