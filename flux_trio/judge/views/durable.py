"""Views of what the job manager has stored: its commits, and what the next one reads of it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from flux_trio.judge.engine.selector import (
    ANY_DISCONNECT,
    EVENT,
    LOOKUP_TOPICS,
    OWN,
    SEND,
    errnum,
    no_key,
    noted,
    received,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.commits import EVENTLOG, Entry, entries_of
from flux_trio.judge.views.kvs import keys_asked, values_answered
from flux_trio.messages import Request, topics
from flux_trio.trace import Kind, Record
from flux_trio.trace.kvs import job_with


class Durable(Live, frozen=True, gc=False):
    """Which events of a party are surely stored in the KVS, as far as the trace shows it."""

    until: Place = 0
    """The events that were logged before this record are stored."""
    known_at: Place = 0
    """The record at which the party received the last answer to a commit, so that it knows
    `until`."""
    sample: tuple[Place, Place] = (0, 0)
    """The values of `until` and `known_at` of an earlier moment, which becomes `settled` a second
    later."""
    settled: Place = 0
    """The value of `until` a second ago or earlier."""
    commits: tuple[tuple[int, Place], ...] = ()
    """The matchtag of each commit that was not answered, and the record of the first commit of its
    turn: each commit of a turn may have any of the turn's events."""
    answered: tuple[Place, ...] = ()
    """The records in `commits` of those that were answered in this turn of the party.

    The party may have received the answers together. Then it sends what waited for the first commit
    only after all of these answers, and after its next commit.
    """
    has_sent: bool = False
    """Whether the party has sent a commit since the last answer: then the next answer begins
    another turn."""


def _fold_durable(durable: Durable | None, _part: None, record: Record, seen: Seen) -> Durable:
    durable = durable or Durable()
    matchtag = getattr(record.message, "matchtag", 0)
    if record.kind == SEND:
        n = durable.commits[-1][1] if durable.commits else 0
        first = record.n if n == 0 or seen.knew(record.party, n) else n
        return durable.but(commits=(*durable.commits, (matchtag, first)), has_sent=True)
    until, left, answered = durable.until, durable.commits, durable.answered
    if errnum(record):
        return durable.but(commits=tuple([each for each in left if each[0] != matchtag]))
    if durable.has_sent:
        until, answered = max((until, *answered)), ()
    for commit in durable.commits:
        if commit[0] == matchtag:
            left = tuple([each for each in left if each is not commit])
            if commit[1] not in [first for _, first in left]:
                answered = (*answered, commit[1])
                until = max(until, answered[0])
    sample, settled = durable.sample, durable.settled
    if seen.is_old(sample[1]):
        sample, settled = (durable.until, durable.known_at), sample[0]
    return Durable(until, record.n, sample, settled, left, answered)


DURABLE: Final = view(
    "durable",
    sent("request", *topics.COMMITS),
    received("response", *topics.COMMITS),
    key=operator.attrgetter("party"),
    fold=_fold_durable,
)
"""A `Durable` for each party that commits to the KVS, by its name."""


def is_durable(seen: Seen, party: str, n: int) -> bool:
    """Whether the event that `party` logged at `n` is stored.

    What it sends before that may have been decided before the event, and waited for a commit. In a
    trace that does not show commits every event is taken as stored.
    """
    durable: Durable | None = seen.states[DURABLE].get(party)
    return durable is None or n < durable.until


def is_overdue(seen: Seen, party: str, n: int) -> bool:
    """Whether what `party` had to send for the event that it logged at `n` should have been sent.

    The event is stored, and the party has known that for a second. In a trace that does not show
    commits, the event is a second old.
    """
    durable: Durable | None = seen.at(DURABLE, party)
    if durable is None:
        return seen.is_old(n)
    known = (durable.sample, (durable.until, durable.known_at))
    return n < durable.settled or any(
        n < until and seen.is_old(known_at) for until, known_at in known
    )


# --- after the end of a job manager


class Doubt(NamedTuple):
    """The events that a job manager logged before it ended, without knowing that they were
    stored.
    """

    since: Place
    end: Place
    """The record at which the job manager ended."""


def _fold_doubts(
    doubts: tuple[Doubt, ...] | None, _part: None, record: Record, seen: Seen
) -> tuple[Doubt, ...] | None:
    durable: Durable | None = seen.at(DURABLE, seen.facts.manager)
    if durable is None or not seen.facts.is_manager_gone(record):
        return doubts
    before = [each for each in doubts or () if each.since != durable.until]
    return (*before, Doubt(durable.until, record.n))


DOUBTS: Final = view(
    "doubts",
    noted(Kind.MODULE),
    sent("request", ANY_DISCONNECT),
    key=no_key,
    fold=_fold_doubts,
    reads=(DURABLE,),
)
"""A single state: a `Doubt` for each job manager that has ended."""


def is_doubtful(seen: Seen, n: int) -> bool:
    """Whether the event logged at `n` may not be stored: the next job manager has not read it."""
    doubts: tuple[Doubt, ...] | None = seen.at(DOUBTS)
    return n > 0 and any(each.since <= n < each.end for each in doubts or ())


# --- what the next one reads


def _reading(record: Record, seen: Seen) -> list[tuple[int, None]]:
    matchtag = getattr(record.message, "matchtag", 0)
    return [(matchtag, None)] if matchtag and record.party == seen.facts.manager else []


def _fold_reading(
    _jobs: tuple[int | None, ...] | None, _part: None, record: Record, _seen: Seen
) -> tuple[int | None, ...] | None:
    if not isinstance(record.message, Request):
        return None
    jobs = tuple([job_with(key, EVENTLOG) for key in keys_asked(record)])
    return jobs if any(jobs) else None


READING: Final = view(
    "reading",
    while_live(DOUBTS, sent("request", *LOOKUP_TOPICS)),
    while_live(OWN, received("response", *LOOKUP_TOPICS)),
    parts=_reading,
    fold=_fold_reading,
    reads=(DOUBTS,),
)
"""By matchtag of a lookup that a job manager sends after another one has ended: the job of each
eventlog that it reads; None for another key."""
READ: Final = while_live(READING, received("response", *LOOKUP_TOPICS))
"""The selectors of the responses to the lookups in READING."""


def eventlogs_read(record: Record, seen: Seen) -> Iterable[tuple[int, list[Entry]]]:
    """Return the events of each job whose eventlog is in a response that READ selects.

    A job of which only the submit event is stored is left out: job-ingest submits it again.
    """
    for matchtag, _ in _reading(record, seen):
        texts = values_answered(record)
        for jobid, text in zip(seen.at(READING, matchtag) or (), texts, strict=False):
            entries = entries_of(text) if isinstance(text, str) else None
            if jobid is not None and entries:
                yield jobid, entries if len(entries) > 1 else []


def events_in(record: Record, entries: Iterable[Entry]) -> Iterator[Record]:
    """Return the events of an eventlog as if they were logged where the job manager reads it."""
    n, t, party = record.n, record.t, record.party
    for each in entries:
        data = {"name": each.name, "context": each.context}
        yield Record(n, t, EVENT, party, data=data)
