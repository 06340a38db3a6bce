"""RFC 27, Alloc Deny: a request that can never be met is denied, and the job fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.judge.checks.shapes import STRING
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, payload, sent
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.granting import (
    ANSWERING,
    INVENTORY,
    SCHED_JOBS,
    Answering,
    another_after,
    sched_job,
    shortfall,
)
from flux_trio.judge.views.jobs import LIFE, context_of, is_fatal
from flux_trio.judge.views.scheduling import (
    ASKED,
    CANCEL,
    DENIES,
    DENY,
    FINAL,
    LINK,
    asked_of,
    has_denial,
)
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

ANSWERED: Final = sent("response", topics.SCHED_ALLOC)


def _left_pending(seen: Seen) -> Iterable[Broken]:
    if not seen.facts.is_ready:
        return
    for jobid in seen.all(SCHED_JOBS):
        known = sched_job(seen, jobid)
        why = shortfall(known, seen)
        if why and not known.cancel:
            yield Broken(f"job {jobid}: {why}, and is not denied", (known.alloc,), job=jobid)


@RULES.by(ANSWERING, "27.deny.1", ANSWERED, views=[SCHED_JOBS, INVENTORY], debts=_left_pending)
def what_can_never_be_had_is_denied(answering: Answering, record: Record, seen: Seen) -> Finding:
    kind = answering.type
    if not answering.is_too_large or kind not in FINAL or not answering.is_of_scheduler:
        return None
    if kind == DENY or (kind == CANCEL and answering.is_canceled):
        return True
    jobid = job_id(record)
    known = sched_job(seen, jobid)
    text = f"{shortfall(known, seen)}; expected DENY, got type {kind}"
    return Broken(f"job {jobid}: {text}", (known.alloc,))


def _denied(seen: Seen, *, noted: bool | None = None) -> Iterable[Broken]:
    for jobid in seen.all(LIFE):
        asked = asked_of(seen, jobid)
        if has_denial(asked, seen) and noted in (None, asked.note is not None):
            text = f"job {jobid}: was denied, and no exception event follows"
            yield Broken(text, (asked.denied,), job=jobid)


@RULES.judge(
    "27.deny.2",
    DENIES,
    logged("exception"),
    views=[ASKED, LIFE, LINK],
    debts=lambda seen: _denied(seen, noted=False),
)
def the_note_may_be_left_out(record: Record, seen: Seen) -> Finding:
    if record.message is None:
        asked = asked_of(seen, job_id(record))
        return bool(asked.denied) and asked.note is None
    content = payload(record)
    if content.get("type") != DENY or "note" not in content or STRING.fits(content["note"]):
        return None
    text = f"job {job_id(record)}: DENY: note: expected a string, got {content['note']!r:.80}"
    return Broken(text, party=record.party)


@RULES.judge("27.deny.4", logged("exception"), views=[ASKED])
def the_note_is_in_the_exception(record: Record, seen: Seen) -> Finding:
    asked, context = asked_of(seen, job_id(record)), context_of(record)
    if not asked.denied or asked.note is None or context.get("type") != "alloc":
        return None
    if context.get("note") == asked.note:
        return True
    text = f"job {job_id(record)}: exception event: note: expected that of the DENY"
    return Broken(f"{text}, {asked.note!r}, got {context.get('note')!r}", (asked.denied,))


@RULES.judge("27.deny.5", logged("exception"), views=[ASKED, LIFE, LINK], debts=_denied)
def a_denied_job_gets_an_exception(record: Record, seen: Seen) -> Finding:
    asked, context = asked_of(seen, job_id(record)), context_of(record)
    if not asked.denied:
        return None
    if context.get("type") == "alloc" and is_fatal(record):
        return True
    if context.get("type") == "alloc":
        text = f"job {job_id(record)}: was denied; expected an exception of severity 0"
        return Broken(f"{text}, got {context.get('severity')!r}", (asked.denied,))
    return None


@RULES.by(ANSWERING, "27.deny.6", ANSWERED, views=[SCHED_JOBS])
def deny_ends_the_request(answering: Answering, record: Record, seen: Seen) -> Finding:
    if not answering.is_of_job:
        return None
    if answering.is_open or answering.how != DENY:
        return answering.type == DENY
    return another_after("DENY", record, seen)
