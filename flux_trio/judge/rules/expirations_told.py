"""The execution service learns of each new expiration of a job that runs: an invariant, which no
clause states.

flux-core's job manager tells it by a request, `<exec>.expiration`; an execution service that
follows the job manager's journal reads it there. A trace that shows neither shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    OWN,
    SEND,
    job_id,
    logged,
    no_key,
    payload,
    received,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.execution import LINK, STARTS, Start, is_open, link_of
from flux_trio.judge.views.expiring import END, FOLLOWERS, UPDATES, Updates
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

TELL: Final = sent("request", f"<exec>.{topics.EXEC_EXPIRATION.partition('.')[2]}")

TOLD: Final = view(
    "told expirations",
    TELL,
    while_live(OWN, logged("clean")),
    key=job_id,
    fold=lambda _had, _part, record, _seen: (
        None if record.message is None else payload(record).get("expiration")
    ),
    state=Any,
)
"""By job id: the expiration that the execution service was last told by a request."""

TELLS: Final = view(
    "tells expirations",
    TELL,
    key=no_key,
    fold=lambda n, _part, record, _seen: n or record.n,
    state=Place,
)
"""A single state: the first record in which the job manager tells an expiration by a request."""


def _untold(jobid: Any, seen: Seen) -> Broken | None:
    """Return a violation if a job's last expiration came during its start request, and the
    execution service was told another one, or none.
    """
    start: Start | None = seen.at(STARTS, jobid)
    end = seen.at(END, jobid)
    if start is None or end is None or not start.sent or end[2] < start.sent:
        return None
    told = seen.at(TOLD, jobid)
    if seen.at(TELLS) is None or start.sent < link_of(seen).ended or told == end[1]:
        return None
    knows = "no new one" if told is None else told
    text = f"job {jobid}: has expiration {end[1]}, and the execution service was told {knows}"
    return Broken(text, (end[2],), party=seen.facts.manager, job=jobid)


def _unread(jobid: Any, seen: Seen) -> Broken | None:
    """Return a violation if an execution service that reads the journal did not get an update."""
    updates: Updates | None = seen.at(UPDATES, jobid)
    follows: int | None = seen.at(FOLLOWERS, seen.facts.exec_peer)
    end, start = seen.at(END, jobid), seen.at(STARTS, jobid)
    if updates is None or not updates.npending or not follows or end is None or start is None:
        return None
    if end[2] < max(follows, start.sent, updates.received) or start.sent < link_of(seen).ended:
        return None  # the start request has it, or it was read
    text = (
        f"job {jobid}: its new expiration {end[1]} is not in the journal of the execution service"
    )
    return Broken(text, (end[2],), party=seen.facts.manager, job=jobid)


def _owed(seen: Seen) -> Iterable[Broken]:
    for jobid, start in seen.all(STARTS).items():
        if is_open(start) and link_of(seen).is_up:
            found = _untold(jobid, seen) or _unread(jobid, seen)
            if found is not None:
                yield found


@RULES.judge(
    "invariant.expirations-told",
    TELL,
    received("response", topics.JOB_JOURNAL, topics.JOB_EVENTS),
    while_live(TELLS, logged("finish")),
    views=[END, FOLLOWERS, LINK, STARTS, TELLS, TOLD, UPDATES],
    debts=_owed,
)
def the_last_expiration_is_told(record: Record, seen: Seen) -> Finding:
    """What was told when a job finishes is what its eventlog has, unless that is new."""
    if record.message is not None:
        is_told = record.kind == SEND or record.party == seen.facts.exec_peer
        return is_told and bool(seen.all(UPDATES))
    end = seen.at(END, job_id(record))
    return _untold(job_id(record), seen) if end is not None and seen.is_old(end[2]) else None
