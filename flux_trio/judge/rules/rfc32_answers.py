"""RFC 32, Start Request: the execution service's answers, until the final release."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from flux_trio.formats import Idset
from flux_trio.judge.checks.shapes import (
    BOOLEAN,
    IDSET,
    INTEGER,
    JOB_ID,
    OBJECT,
    STRING,
    Shape,
    one_of,
    require_key,
    require_object,
)
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, job_id, logged, payload, sent
from flux_trio.judge.engine.view import Seen, Selector
from flux_trio.judge.views.eventlogs import RESOURCES
from flux_trio.judge.views.execution import (
    LINK,
    SAYING,
    SEVERITY,
    START,
    STARTS,
    Start,
    StartResponse,
    data_of,
    link_of,
    ranks_of,
    start_of,
)
from flux_trio.judge.views.expected_events import EXPECTED
from flux_trio.judge.views.jobs import CLEANUP, LIFE, Life, context_of
from flux_trio.judge.views.presence import SHUTTING_DOWN, when_leaving
from flux_trio.judge.views.traits import says
from flux_trio.trace import Record

RULES: Final = Rules()

SAID: Final = sent("response", START)


def _said(type_: str) -> list[Selector]:
    """Select sent responses of a type."""
    return sent("response", START, mark=says(type_))


# --- the payload

TYPES: Final = one_of("start", "release", "exception", "finish")


def _is_known_or_no_type(answer: dict[str, Any]) -> bool:
    return isinstance(answer.get("type"), str)


require_object(RULES, "32.start.12", SAID)
_require: Final = functools.partial(require_key, RULES)
_require("32.impl.3", SAID, key="id")
_require("32.start.13", SAID, key="id", shape=JOB_ID)
_require("32.start.14", SAID, key="type", shape=STRING)
_require("32.start.15", SAID, key="data", shape=OBJECT)
_require("32.start.16", SAID, key="type", shape=TYPES, when=_is_known_or_no_type)


@functools.cache
def _data(type_: str) -> Callable[[Record, Seen], list[tuple[str, dict[str, Any]]]]:
    """The data objects of answers of a type."""

    def subjects(record: Record, _seen: Seen) -> list[tuple[str, dict[str, Any]]]:
        data = payload(record).get("data")
        if payload(record).get("type") != type_ or not isinstance(data, dict) or errnum(record):
            return []
        return [(f"{type_} response of job {job_id(record)}: data", data)]

    return subjects


def _require_data(
    clause: str, type_: str, key: str, shape: Shape, *, required: bool = True
) -> None:
    subjects = _data(type_)
    selectors = _said(type_)
    require_key(
        RULES, clause, selectors, key=key, shape=shape, subjects=subjects, required=required
    )


_require_data("32.start.25", "exception", "severity", SEVERITY)
_require_data("32.start.26", "exception", "type", STRING)
_require_data("32.start.27", "exception", "note", STRING, required=False)
_require_data("32.start.31", "finish", "status", INTEGER)


@RULES.each("32.start.18", _said("start"), of=_data("start"))
def start_says_nothing_more(subject: tuple[str, dict[str, Any]]) -> Finding:
    what, data = subject
    return Broken(f"{what}: expected an empty object, got {data!r:.80}") if data else True


@RULES.by(SAYING, "32.impl.5", SAID, views=[SHUTTING_DOWN])
def problems_are_no_errors(saying: StartResponse, record: Record, seen: Seen) -> Finding:
    if not saying.is_services:
        return None  # the broker speaks for one that is gone
    if not saying.is_error:
        return True
    text = f"{record.party}: start response: expected errnum 0, got {errnum(record)}"
    return Broken(text + when_leaving(record, seen))


# --- releases


@RULES.judge("32.start.20", _said("release"), views=(LINK, STARTS, RESOURCES))
def releases_what_the_job_has(record: Record, seen: Seen) -> Finding:
    """The ranks of a release are ranks of the job that were not released before (readings: Release
    ranks).
    """
    for what, data in _data("release")(record, seen):
        ranks, resources = data.get("ranks"), seen.at(RESOURCES, job_id(record))
        released = ranks_of(record)
        if not IDSET.fits(ranks) or not released:
            start = start_of(seen, record)
            is_known = start is not None and bool(start.released)
            is_whole = data.get("final") is True and not is_known
            part = "" if is_whole else " for a part"
            return Broken(f"{what}: ranks: expected {IDSET.words}, got {ranks!r:.80}{part}")
        if resources is None:
            return True
        start = start_of(seen, record)
        left = resources.ranks
        if start is not None and not start.place("final"):
            left &= ~start.released
        if not released & ~left:
            return True
        text = f"expected ranks among {Idset.from_bits(left) or 'none'}, got {ranks}"
        return Broken(f"{what}: {text}", (resources.n,))
    return None


@RULES.judge("32.start.21", _said("release"), views=(LINK, STARTS, RESOURCES))
def final_when_all_is_released(record: Record, seen: Seen) -> Finding:
    for what, data in _data("release")(record, seen):
        final, resources = data.get("final"), seen.at(RESOURCES, job_id(record))
        if not BOOLEAN.fits(final):
            return Broken(f"{what}: final: expected {BOOLEAN.words}, got {final!r:.80}")
        start = start_of(seen, record)
        if resources is None or start is None or start.place("final"):
            return None
        left = resources.ranks & ~(start.released | ranks_of(record))
        if final is not bool(left) or (final and not left & ~start.earlier):
            return True
        text = f"expected final {not left}, since {Idset.from_bits(left) or 'nothing'} is left"
        return Broken(f"{what}: {text}", (resources.n,))
    return None


# --- the order of answers


def _named(record: Record) -> str:
    kind, jobid = payload(record).get("type"), job_id(record)
    if kind is None or jobid is None:
        return f"response {payload(record)!r:.80}"
    return f"{kind} response of job {jobid}"


def _asked_for(saying: StartResponse, record: Record) -> Finding:
    """Whether the job manager had asked for the job by then."""
    if saying.is_taken:
        return True
    return Broken(f"{_named(record)}: expected nothing, since no start request of it was taken up")


def _start(record: Record, seen: Seen) -> Start:
    """Return the start request of a job that has one."""
    start: Start = seen.states[STARTS][job_id(record)]
    return start


@RULES.by(SAYING, "32.background.1", _said("start"), views=(STARTS,))
def launched_at_the_job_managers_request(
    saying: StartResponse, record: Record, _seen: Seen
) -> Finding:
    return _asked_for(saying, record) if saying.kind == "start" else None


@RULES.by(SAYING, "32.start.3", SAID, views=(STARTS, LINK))
def answers_belong_to_an_open_stream(saying: StartResponse, record: Record, seen: Seen) -> Finding:
    if saying.is_error:
        return None
    if saying.is_of_departed:
        link = link_of(seen)
        text = f"{_named(record)}: expected none, since {link.departed}"
        return Broken(f"{text} has left, and with it its streams", (link.disconnected,))
    return _asked_for(saying, record)


@RULES.by(SAYING, "32.start.37", SAID, views=(LINK, STARTS))
def the_final_release_is_the_last_response(
    saying: StartResponse, record: Record, seen: Seen
) -> Finding:
    """Nothing comes after it, and before it no second finish (readings: Two statuses of one
    job).
    """
    if not saying.is_known or saying.is_error:
        return None
    if "final" not in saying.said:
        if saying.kind != "finish" or "finish" not in saying.said:
            return saying.kind == "final"
        n = _start(record, seen).place("finish")
        text = f"{_named(record)}: expected only the release after finish"
        return Broken(text + _after_exception(saying), (n,))
    text = f"{_named(record)}: expected nothing after its final release{_after_exception(saying)}"
    return Broken(text, (_start(record, seen).place("final"),))


def _after_exception(saying: StartResponse) -> str:
    return ", and an exception came before" if "fatal" in saying.said else ""


def _left_out(saying: StartResponse, *names: str) -> tuple[str, ...] | None:
    """Of these answers, those that were left out when the job is finally released.

    None if this is no final release, or of no request that is open.
    """
    is_open = saying.is_known and not saying.is_void and "final" not in saying.said
    if saying.kind != "final" or not is_open:
        return None
    return tuple([name for name in names if name not in saying.said])


def _excused(
    missing: tuple[str, ...], saying: StartResponse, record: Record, seen: Seen
) -> Finding:
    """Judge what was left out: a fatal exception excuses it.

    What the job manager raised is known by its eventlog.
    """
    if not missing or "fatal" in saying.said:
        return True
    life: Life | None = seen.at(LIFE, job_id(record))
    if life is None:
        return None
    if life.fatal:
        return True
    text = f"finally released without {' and '.join(missing)}, and no fatal exception says why"
    return Broken(f"job {job_id(record)}: {text}", (_start(record, seen).sent,))


LIVES: Final = (LINK, STARTS, LIFE)


@RULES.by(SAYING, "32.start.35", _said("release"), views=LIVES)
def start_and_finish_unless_there_was_a_fatal_exception(
    saying: StartResponse, record: Record, seen: Seen
) -> Finding:
    names = ("finish",) if saying.is_reattach and not saying.is_void else ("start", "finish")
    missing = _left_out(saying, *names)
    return None if missing is None else _excused(missing, saying, record, seen)


@RULES.by(SAYING, "32.criteria.5", _said("release"), views=LIVES)
def what_ran_has_a_result(saying: StartResponse, record: Record, seen: Seen) -> Finding:
    missing = _left_out(saying, "finish") if "start" in saying.said else None
    return None if missing is None else _excused(missing, saying, record, seen)


@RULES.by(SAYING, "32.criteria.3", _said("release"), views=LIVES)
def what_never_ran_has_a_problem(saying: StartResponse, record: Record, seen: Seen) -> Finding:
    missing = _left_out(saying, "start", "finish") or ()
    return _excused(missing, saying, record, seen) if len(missing) == 2 else None


@RULES.by(SAYING, "32.start.10", _said("release"), views=LIVES)
def reattached_jobs_end_like_others(saying: StartResponse, record: Record, seen: Seen) -> Finding:
    missing = _left_out(saying, "finish") if saying.is_reattach else None
    return None if missing is None else _excused(missing, saying, record, seen)


def _owed_releases(seen: Seen) -> Iterable[Broken]:
    """Yield the starts without a final release; that of a running job may wait."""
    starts: Mapping[Any, Start] = seen.all(STARTS)
    lost = link_of(seen).lost
    for job, start in starts.items():
        if not start.taken or start.place("final"):
            continue
        life: Life | None = seen.at(LIFE, job)
        raised = life.fatal if life is not None else 0
        end = start.place("finish") or start.place("fatal") or raised
        if start.sent > lost:
            if end:
                text = f"job {job} has ended: expected a release with final true, none came"
                yield Broken(text, (end, start.taken), job=job)
            else:
                text = f"job {job} was started and has no release with final true yet"
                yield Broken(text, (start.taken,), job=job, may_wait=True)
        elif end and life is not None and life.state == CLEANUP and not life.released:
            text = f"job {job} is in CLEANUP: the execution service left without its final release"
            yield Broken(text, (end, start.taken), job=job)


@RULES.judge(
    "32.start.36",
    _said("release"),
    logged("release"),
    views=(*LIVES, EXPECTED),
    debts=_owed_releases,
)
def every_start_is_finally_released(record: Record, seen: Seen) -> Finding:
    """A final release that is logged was sent, unless the service was lost meanwhile."""
    if record.message is not None:
        return data_of(record).get("final") is True
    jobid, is_final = job_id(record), context_of(record).get("final") is True
    start: Start | None = seen.at(STARTS, jobid)
    if start is None or not is_final or start.place("final") or start.sent < link_of(seen).lost:
        return None
    end = start.place("finish") or start.place("fatal")
    if not end or seen.at(EXPECTED, (jobid, "release")):
        return None
    text = f"job {jobid}: its final release is logged, and the execution service sent none"
    party = seen.facts.exec_peer
    return Broken(text, (end, start.taken), party=party, is_missing=True)
