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
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.rule import Broken, Rules, Said, Seen, errnum, job_id, payload, sent
from flux_trio.judge.engine.selector import Selector
from flux_trio.judge.engine.trait import says
from flux_trio.judge.views.eventlogs import RESOURCES
from flux_trio.judge.views.execution import (
    LINK,
    SEVERITY,
    START,
    STARTS,
    Start,
    kind_of_answer,
    link_of,
    ranks_of,
    start_of,
)
from flux_trio.judge.views.jobs import CLEANUP, LIFE, Life
from flux_trio.trace import Record

RULES: Final = Rules()

SAID: Final = sent("response", START)


def _said(type_: str) -> list[Selector]:
    """Select sent responses of a type."""
    return sent("response", START, mark=says(type_))


# --- the payload

require_object(RULES, "32.start.12", SAID)
require_key(RULES, "32.impl.3", SAID, key="id")
require_key(RULES, "32.start.13", SAID, key="id", shape=JOB_ID)
require_key(RULES, "32.start.14", SAID, key="type", shape=STRING)
require_key(RULES, "32.start.15", SAID, key="data", shape=OBJECT)


def _is_known_or_no_type(answer: dict[str, Any]) -> bool:
    return isinstance(answer.get("type"), str)


TYPES: Final = one_of("start", "release", "exception", "finish")
require_key(RULES, "32.start.16", SAID, key="type", shape=TYPES, when=_is_known_or_no_type)


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
_require_data("32.start.31", "finish", "status", INTEGER)


@RULES.each("32.start.18", _said("start"), of=_data("start"))
def start_says_nothing_more(subject: tuple[str, dict[str, Any]]) -> Said:
    what, data = subject
    return Broken(f"{what}: expected an empty object, got {data!r:.80}") if data else True


@RULES.check("32.impl.5", SAID)
def problems_are_no_errors(record: Record, facts: Facts) -> Said:
    if record.party != facts.exec_peer:
        return None  # the broker speaks for one that is gone
    if not errnum(record):
        return True
    return Broken(f"{record.party}: start response: expected errnum 0, got {errnum(record)}")


# --- releases


@RULES.judge("32.start.20", _said("release"), views=(RESOURCES,))
def releases_what_the_job_has(record: Record, seen: Seen) -> Said:
    for what, data in _data("release")(record, seen):
        ranks, resources = data.get("ranks"), seen.at(RESOURCES, job_id(record))
        if not IDSET.fits(ranks):
            return Broken(f"{what}: ranks: expected {IDSET.words}, got {ranks!r:.80}")
        beyond = ranks_of(record) & ~resources.ranks if resources is not None else 0
        if not beyond:
            return True
        text = f"expected ranks among {Idset.from_bits(resources.ranks)}, got {ranks}"
        return Broken(f"{what}: {text}", (resources.n,))
    return None


@RULES.judge("32.start.21", _said("release"), views=(LINK, STARTS, RESOURCES))
def final_when_all_is_released(record: Record, seen: Seen) -> Said:
    for what, data in _data("release")(record, seen):
        final, resources = data.get("final"), seen.at(RESOURCES, job_id(record))
        if not BOOLEAN.fits(final):
            return Broken(f"{what}: final: expected {BOOLEAN.words}, got {final!r:.80}")
        start = start_of(seen, record)
        if resources is None or start is None or start.place("final"):
            return None
        left = resources.ranks & ~(start.released | ranks_of(record))
        if final is not bool(left):
            return True
        text = f"expected final {not left}, since {Idset.from_bits(left) or 'nothing'} is left"
        return Broken(f"{what}: {text}", (resources.n,))
    return None


# --- the order of answers


def _asked_for(record: Record, seen: Seen) -> Said:
    """Whether the job manager had asked for the job by then."""
    start: Start | None = seen.at(STARTS, job_id(record))
    if start is not None and start.taken:
        return True
    what = f"{payload(record).get('type')} response of job {job_id(record)}"
    return Broken(f"{what}: expected nothing, since no start request of it was taken up")


@RULES.judge("32.background.1", _said("start"), views=(STARTS,))
def launched_at_the_job_managers_request(record: Record, seen: Seen) -> Said:
    return _asked_for(record, seen) if payload(record).get("type") == "start" else None


_ONCE: Final = {
    "start": ("start", "finish"),
    "reattached": ("reattached", "finish"),
    "finish": ("finish",),
}
"""Responses that come once, with those that they may not follow."""


@RULES.judge("32.start.3", SAID, views=(STARTS, LINK))
def answers_belong_to_an_open_stream(record: Record, seen: Seen) -> Said:
    if errnum(record):
        return None
    start, kind = seen.at(STARTS, job_id(record)), payload(record).get("type")
    before = _ONCE.get(str(kind), ()) if start is not None else ()
    for each in before:
        if n := start.place(each):
            return Broken(
                f"{kind} response of job {job_id(record)}: expected none after {each}", (n,)
            )
    link = link_of(seen)
    if start is not None and record.party == link.departed and start.taken < link.disconnected:
        text = f"{kind} response of job {job_id(record)}: expected none, since {link.departed}"
        return Broken(f"{text} has left, and with it its streams", (link.disconnected,))
    return _asked_for(record, seen)


@RULES.judge("32.start.37", SAID, views=(LINK, STARTS))
def nothing_after_the_final_release(record: Record, seen: Seen) -> Said:
    start: Start | None = seen.at(STARTS, job_id(record))
    if start is None or errnum(record):
        return None
    over = start.place("final")
    if not over:
        return kind_of_answer(record) == "final"
    what = f"{payload(record).get('type')} response of job {job_id(record)}"
    return Broken(f"{what}: expected nothing after its final release", (over,))


def _left_out(record: Record, seen: Seen, *names: str) -> tuple[list[str], Said]:
    """Of these answers, those that were left out when the job is finally released; excused or not.

    A fatal exception excuses. What the job manager raised is known by its eventlog.
    """
    if kind_of_answer(record) != "final":
        return [], None
    start, life = start_of(seen, record), seen.at(LIFE, job_id(record))
    if start is None or start.place("final"):
        return [], None
    missing = [name for name in names if not start.place(name)]
    excused = start.place("fatal") or (life is not None and life.fatal)
    if not missing:
        return [], True
    if excused:
        return missing, True
    if life is None:
        return missing, None
    text = f"finally released without {' and '.join(missing)}, and no fatal exception says why"
    return missing, Broken(f"job {job_id(record)}: {text}", (start.sent,))


LIVES: Final = (LINK, STARTS, LIFE)


@RULES.judge("32.start.35", _said("release"), views=LIVES)
def start_and_finish_unless_there_was_a_fatal_exception(record: Record, seen: Seen) -> Said:
    start = start_of(seen, record)
    names = ("finish",) if start is not None and start.reattach else ("start", "finish")
    return _left_out(record, seen, *names)[1]


@RULES.judge("32.criteria.5", _said("release"), views=LIVES)
def what_ran_has_a_result(record: Record, seen: Seen) -> Said:
    start = start_of(seen, record)
    if start is None or not start.place("start"):
        return None
    return _left_out(record, seen, "finish")[1]


@RULES.judge("32.criteria.3", _said("release"), views=LIVES)
def what_never_ran_has_a_problem(record: Record, seen: Seen) -> Said:
    missing, said = _left_out(record, seen, "start", "finish")
    return said if len(missing) == 2 else None


@RULES.judge("32.start.10", _said("release"), views=LIVES)
def reattached_jobs_end_like_others(record: Record, seen: Seen) -> Said:
    start = start_of(seen, record)
    return _left_out(record, seen, "finish")[1] if start is not None and start.reattach else None


def _owed_releases(seen: Seen) -> Iterable[Broken]:
    """Yield the starts without a final release; that of a running job may wait."""
    starts: Mapping[Any, Start] = seen.all(STARTS)
    for job, start in starts.items():
        if not start.taken or start.place("final"):
            continue
        life: Life | None = seen.at(LIFE, job)
        raised = life.fatal if life is not None else 0
        end = start.place("finish") or start.place("fatal") or raised
        if start.sent > link_of(seen).lost:
            if end:
                text = f"job {job} has ended: expected a release with final true, none came"
                yield Broken(text, (end, start.taken), job=job)
            else:
                text = f"job {job} was started and has no release with final true yet"
                yield Broken(text, (start.taken,), job=job, may_wait=True)
        elif end and life is not None and life.state == CLEANUP and not life.released:
            text = f"job {job} is in CLEANUP: the execution service left without its final release"
            yield Broken(text, (end, start.taken), job=job)


@RULES.judge("32.start.36", _said("release"), views=LIVES, debts=_owed_releases)
def every_start_is_finally_released(record: Record, _seen: Seen) -> Said:
    return kind_of_answer(record) == "final"
