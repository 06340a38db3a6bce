"""What a service has answered is what the eventlogs have: an invariant, which no clause states.

A submitter is told the id of the job that was made of his request, and nobody else's; an exception,
an urgency or an update whose request was answered with success is logged, the update of a running
job's duration as a new expiration, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ERROR,
    EVENT,
    MODULE,
    OWN,
    errnum,
    job_id,
    logged,
    name_of,
    noted,
    payload,
    rpc,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Key, Place, Seen, View, view
from flux_trio.judge.views.calls import ENDS
from flux_trio.judge.views.eventlogs import LOG
from flux_trio.judge.views.jobs import LIFE, submitted
from flux_trio.judge.views.user_requests import (
    ASKED,
    EVENTS,
    INGEST_DISCONNECT,
    LEFT,
    SUBMIT,
    URGENCIES,
    URGENCY,
    OpenRequest,
    is_void,
)
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

RULES: Final = Rules()


class Submission(NamedTuple):
    """A job that job-ingest has passed on, and whose submitter was not told its id."""

    n: Place
    is_accepted: bool


def _submissions(record: Record, seen: Seen) -> Iterable[tuple[int, bool | None]]:
    """Yield jobs that are submitted (False) or accepted (True), or need not be told of (None)."""
    if record.kind == EVENT:
        jobid = job_id(record)
        is_end = payload(record).get("name") != "validate"
        return [] if jobid is None else [(jobid, None if is_end else True)]
    if topic_of(record) == SUBMIT:
        jobid = job_id(record)
        return [] if jobid is None else [(jobid, None)]
    if errnum(record):
        return [(jobid, None) for jobid, each in seen.all(UNTOLD).items() if not each.is_accepted]
    sender = getattr(record.message, "sender", "") or payload(record).get("module")
    is_submitter = topic_of(record) == INGEST_DISCONNECT and any(
        each.jobid is None and each.sender == sender for each in seen.all(ASKED).values()
    )
    if is_submitter or seen.facts.is_manager_gone(record):
        # One of them is not to be told; or job-ingest does not learn what was accepted.
        return [(jobid, None) for jobid in seen.all(UNTOLD)]
    if sender != topics.JOB_INGEST:
        return []
    if topic_of(record) == topics.JOB_SUBMIT:
        is_owed = not any(is_void(each, seen) for each in seen.all(ASKED).values())
        return [(job["id"], False) for job in submitted(record)] if is_owed else []
    is_end = record.kind != MODULE or payload(record).get("what") in ENDS
    return [(jobid, None) for jobid in seen.all(UNTOLD)] if is_end else []


def _fold_untold(
    had: Submission | None, is_accepted: bool | None, record: Record, _seen: Seen
) -> Submission | None:
    if is_accepted is None or (is_accepted and had is None):
        return None
    return Submission(record.n, is_accepted)


UNTOLD: Final[View] = view(
    "untold",
    sent("request", topics.JOB_SUBMIT),
    while_live(
        OWN,
        sent("response", SUBMIT),
        sent("request", topics.JOB_MANAGER_DISCONNECT, INGEST_DISCONNECT),
        noted(Kind.MODULE),
        logged("validate", "invalidate"),
        sent("response", topics.JOB_SUBMIT, mark=ERROR),
    ),
    parts=_submissions,
    fold=_fold_untold,
    reads=(ASKED, LEFT),
)
"""By job id: the `Submission`. What job-ingest had to answer is void when it leaves."""


def _promised(record: Record, seen: Seen) -> Iterable[tuple[Key, bool]]:
    if record.kind == EVENT:
        name = str(payload(record).get("name"))
        # A job that the next job manager has read back has no submit event in its trace.
        return [(("submit" if name == "validate" else name, job_id(record)), False)]
    asked: OpenRequest | None = seen.at(ASKED, rpc(record))
    if asked is None or errnum(record):
        return []
    if topic_of(record) == URGENCY and seen.at(URGENCIES, asked.jobid) in (None, asked.urgency):
        return []
    if topic_of(record) != SUBMIT:
        return [((name, asked.jobid), True) for name in asked.events]
    jobid = job_id(record)
    is_there = any(seen.at(each, jobid) is not None for each in (LIFE, LOG, UNTOLD))
    return [] if is_there else [(("submit", jobid), True)]


PROMISED: Final = view(
    "promised",
    sent("response", SUBMIT, *dict.fromkeys(EVENTS.values())),
    while_live(OWN, logged("submit", "validate", *EVENTS)),
    parts=_promised,
    fold=lambda _n, is_new, record, _seen: record.n if is_new else None,
    state=Place,
    reads=(ASKED, LIFE, LOG, UNTOLD, URGENCIES),
)
"""By event name and job id: the record of an answer that says that it is logged, until it is."""


def _owed(seen: Seen) -> Iterable[Broken]:
    for (name, jobid), n in seen.all(PROMISED).items():
        topic = EVENTS.get(name, SUBMIT)
        party = topics.JOB_INGEST if name == "submit" else ""
        text = f"job {jobid}: {topic} was answered with success, and no {name} event is logged"
        yield Broken(text, (n,), party=party or seen.facts.manager, job=jobid)
    for jobid, each in seen.all(UNTOLD).items():
        if each.is_accepted:
            text = f"job {jobid}: was accepted, and no answer to {SUBMIT} has its id"
            yield Broken(text, (each.n,), party=topics.JOB_INGEST, job=jobid)


@RULES.judge(
    "invariant.done-as-answered",
    sent("response", SUBMIT),
    logged(*EVENTS),
    views=[ASKED, PROMISED, UNTOLD],
    debts=_owed,
)
def what_is_answered_is_done(record: Record, seen: Seen) -> Finding:
    """What a service has answered is what the eventlogs have."""
    if record.kind == EVENT:
        return (name_of(record), job_id(record)) in seen.all(PROMISED)
    return not errnum(record) and job_id(record) in seen.all(UNTOLD)
