"""RFC 27, Alloc Deny: a request that can never be met is denied, and the job fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.judge.checks.shapes import STRING
from flux_trio.judge.engine.rule import (
    Broken,
    Rules,
    Said,
    Seen,
    errnum,
    job_id,
    logged,
    payload,
    sent,
)
from flux_trio.judge.views.granting import INVENTORY, TOLD, Inventory, Told, told_of
from flux_trio.judge.views.jobs import LIFE, context_of, is_fatal
from flux_trio.judge.views.scheduling import ASKED, CANCEL, DENIES, DENY, FINAL, asked_of
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

ANSWERED: Final = sent("response", topics.SCHED_ALLOC)


def _shortfall(told: Told, seen: Seen) -> str:
    """Return why an open request can never be met; "" if that is uncertain."""
    inventory: Inventory | None = seen.at(INVENTORY)
    if not told.alloc or inventory is None or told.cores_min <= inventory.ncores:
        return ""
    return f"needs {told.cores_min} cores of the {inventory.ncores} that the scheduler has"


def _left_pending(seen: Seen) -> Iterable[Broken]:
    if not seen.facts.is_ready:
        return
    for jobid in seen.all(TOLD):
        told = told_of(seen, jobid)
        shortfall = _shortfall(told, seen)
        if shortfall and not told.cancel:
            yield Broken(f"job {jobid}: {shortfall}, and is not denied", (told.alloc,))


@RULES.judge("27.deny.1", ANSWERED, views=[TOLD, INVENTORY], owing=_left_pending)
def what_can_never_be_had_is_denied(record: Record, seen: Seen) -> Said:
    jobid, kind = job_id(record), payload(record).get("type")
    told = told_of(seen, jobid)
    shortfall = _shortfall(told, seen)
    if not shortfall or kind not in FINAL or record.party != seen.facts.scheduler:
        return None
    if kind == DENY or (kind == CANCEL and told.cancel):
        return True
    return Broken(f"job {jobid}: {shortfall}; expected DENY, got type {kind}", (told.alloc,))


def _denied(seen: Seen, *, noted: bool | None = None) -> Iterable[Broken]:
    for jobid in seen.all(LIFE):
        asked = asked_of(seen, jobid)
        if asked.denied and noted in (None, asked.note is not None):
            text = f"job {jobid}: was denied, and no exception event follows"
            yield Broken(text, (asked.denied,))


@RULES.judge(
    "27.deny.2",
    DENIES,
    logged("exception"),
    views=[ASKED, LIFE],
    owing=lambda seen: _denied(seen, noted=False),
)
def the_note_may_be_left_out(record: Record, seen: Seen) -> Said:
    if record.message is None:
        asked = asked_of(seen, job_id(record))
        return bool(asked.denied) and asked.note is None
    told = payload(record)
    if told.get("type") != DENY or "note" not in told or STRING.fits(told["note"]):
        return None
    text = f"job {job_id(record)}: DENY: note: expected a string, got {told['note']!r:.80}"
    return Broken(text, party=record.party)


@RULES.judge("27.deny.4", logged("exception"), views=[ASKED])
def the_note_is_in_the_exception(record: Record, seen: Seen) -> Said:
    asked, context = asked_of(seen, job_id(record)), context_of(record)
    if not asked.denied or asked.note is None or context.get("type") != "alloc":
        return None
    if context.get("note") == asked.note:
        return True
    text = f"job {job_id(record)}: exception event: note: expected that of the DENY"
    return Broken(f"{text}, {asked.note!r}, got {context.get('note')!r}", (asked.denied,))


@RULES.judge("27.deny.5", logged("exception"), views=[ASKED, LIFE], owing=_denied)
def a_denied_job_gets_an_exception(record: Record, seen: Seen) -> Said:
    asked, context = asked_of(seen, job_id(record)), context_of(record)
    if not asked.denied:
        return None
    if context.get("type") == "alloc" and is_fatal(record):
        return True
    if context.get("type") == "alloc":
        text = f"job {job_id(record)}: was denied; expected an exception of severity 0"
        return Broken(f"{text}, got {context.get('severity')!r}", (asked.denied,))
    return None


@RULES.judge("27.deny.6", ANSWERED, views=[TOLD])
def deny_ends_the_request(record: Record, seen: Seen) -> Said:
    jobid = job_id(record)
    if jobid is None or errnum(record) or record.party != seen.facts.scheduler:
        return None
    told = told_of(seen, jobid)
    if told.alloc or told.how != DENY:
        return payload(record).get("type") == DENY
    text = f"job {jobid}: another response after DENY"
    return Broken(text, (told.ended,), party=record.party)
