"""RFC 32 as the current edition has it: start has R, and `reattached` answers a reattach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flux_trio.formats import ResourceSet
from flux_trio.judge.checks.shapes import OBJECT, one_of, require_key
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, job_id, payload, sent
from flux_trio.judge.engine.view import Place, Seen
from flux_trio.judge.rules.rfc32_shells import ENDED, FINISH, WRITES, finishes, is_greatest
from flux_trio.judge.rules.rfc32_start import SENT, reattach_is_for_what_should_still_run
from flux_trio.judge.views.durable import DOUBTS, DURABLE, is_durable
from flux_trio.judge.views.eventlogs import LOG
from flux_trio.judge.views.execution import LINK, START, STARTS, Start, is_open, link_of, start_of
from flux_trio.judge.views.expiring import END
from flux_trio.judge.views.holding import WRITTEN, Written
from flux_trio.judge.views.jobs import LIFE, Life
from flux_trio.judge.views.resource_sets import carried, number_of, resources_in
from flux_trio.judge.views.traits import CARRIES_R
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules(current=True)

ANSWERED: Final = sent("response", START)
STARTED, REATTACHED = "start", "reattached"

require_key(RULES, "32.start.11", SENT, key="R", shape=OBJECT)
RULES.judge("32.start.9", SENT, views=(LOG, DOUBTS))(reattach_is_for_what_should_still_run)

require_key(
    RULES,
    "32.start.16",
    ANSWERED,
    key="type",
    shape=one_of(STARTED, REATTACHED, "release", "exception", "finish"),
)


@RULES.judge("32.start.18", ANSWERED)
def start_and_reattached_say_nothing_more(record: Record, _seen: Seen) -> Finding:
    kind, data = payload(record).get("type"), payload(record).get("data")
    if kind not in (STARTED, REATTACHED) or not isinstance(data, dict) or errnum(record):
        return None
    text = f"{kind} response of job {job_id(record)}: data: expected an empty object"
    return Broken(f"{text}, got {data!r:.80}") if data else True


@RULES.judge("32.impl.4", SENT, views=(LINK, STARTS))
def one_at_a_time_for_each_service(record: Record, seen: Seen) -> Finding:
    """Another service may take over while a start is open: then what was asked before is void."""
    start, link = start_of(seen, record), link_of(seen)
    if start is None or not is_open(start) or start.sent < max(link.ended, link.accepted):
        return True
    text = "a second start request before the final release of the first"
    return Broken(f"job {job_id(record)}: {text}", (start.sent,))


@RULES.judge("32.start.10", ANSWERED, views=(LINK, STARTS, LIFE))
def a_reattach_is_answered_with_reattached(record: Record, seen: Seen) -> Finding:
    start, content = start_of(seen, record), payload(record)
    if start is None or errnum(record):
        return None
    if content.get("type") not in (STARTED, REATTACHED):
        return _without_reattached(start, record, seen)
    expected = REATTACHED if start.reattach else STARTED
    if content["type"] != expected:
        asked = f"start with reattach {str(start.reattach).lower()}"
        text = f"job {job_id(record)}: {asked}: expected {expected}, got {content['type']}"
        return Broken(text, (start.sent,))
    before = [each for each in (REATTACHED, "finish") if start.place(each)]
    if expected == REATTACHED and before:
        text = f"job {job_id(record)}: expected no reattached after {before[0]}"
        return Broken(text, (start.place(before[0]),))
    return True


def _without_reattached(start: Start, record: Record, seen: Seen) -> Finding:
    """Judge the end of a job that was to be reattached: only a fatal exception replaces the
    answer.
    """
    life: Life | None = seen.at(LIFE, job_id(record))
    is_fatal = start.place("fatal") or life is None or life.fatal
    if payload(record).get("type") != "finish" or not start.reattach or is_fatal:
        return None
    if any(start.place(each) for each in (STARTED, REATTACHED)):
        return None
    text = f"job {job_id(record)}: start with reattach true: expected reattached before finish"
    return Broken(text, (start.sent,))


def _without_exception(record: Record, seen: Seen) -> Iterator[tuple[int, int, int, Place]]:
    """Yield what `finishes` does of the jobs without an exception whose status goes before."""
    for end in finishes(record, seen):
        life: Life | None = seen.at(LIFE, end[0])
        start: Start | None = seen.at(STARTS, end[0])
        is_fatal = start is not None and start.place("fatal")
        if life is not None and not life.fatal and not is_fatal:
            yield end


@RULES.each("32.start.32", FINISH, WRITES, of=_without_exception, views=[ENDED, LIFE, STARTS])
def the_status_is_of_the_shells_without_an_exception(end: tuple[int, int, int, Place]) -> Finding:
    return is_greatest(*end)


_ROUNDING_S: Final = 1e-6
_SAME: Final = ("groups", "hostnames", "nslots", "properties", "starttime")


def _differing(found: ResourceSet, had: ResourceSet) -> list[str]:
    """Return the keys, without the expiration, in which two resource sets differ."""
    return [name for name in _SAME if getattr(found, name) != getattr(had, name)]


@RULES.judge(
    "20.overview.4",
    sent("request", START, topics.SCHED_FREE, mark=CARRIES_R),
    views=(WRITTEN, END, DURABLE),
)
def others_get_the_r_that_was_allocated(record: Record, seen: Seen) -> Finding:
    """The R in a start or a free is that of the allocation: of SUCCESS, or of the KVS, from which a
    job manager that began anew has it. A free may be of a part, which 27.free.1 judges, and its R
    need not have times.
    """
    jobid = job_id(record)
    written: Written | None = seen.at(WRITTEN, jobid)
    r = carried(record)
    found = resources_in(r)
    if written is None or written.resources is None or found is None:
        return None
    had = written.resources
    if not found.issubset(had):
        return Broken(f"{_what(record)}: {found.summary()} is not of {had.summary()}", (written.n,))
    if payload(record).get("reattach") is None:
        return True
    other, stored = _differing(found, had), written.stored
    if other and (stored is None or _differing(found, stored)):
        was, got = getattr(had, other[0]), getattr(found, other[0])
        text = f"{_what(record)}: {other[0]}: expected {was!r:.80} as in SUCCESS, got {got!r:.80}"
        return Broken(text, (written.n,))
    _, end, n, _ = seen.at(END, jobid) or (None, None, 0, 0)
    expires: Any = number_of(r, "expiration")
    if isinstance(end, (int, float)) and abs(expires - end) > _ROUNDING_S:
        if not is_durable(seen, record.party, n):
            return None  # what was decided before the update waited for a commit
        return Broken(f"{_what(record)}: expiration: expected {end}, got {expires}", (n,))
    return True


def _what(record: Record) -> str:
    return f"R of job {job_id(record)} in {getattr(record.message, 'topic', '')}"
