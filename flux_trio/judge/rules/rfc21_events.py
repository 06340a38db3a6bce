"""RFC 21, Event Descriptions and Design Criteria: the events, their number, order, writer and log;
and the effect of dependencies, prologs and epilogs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from flux_trio.judge.checks.shapes import INTEGER, STRING
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ANY_TOPIC,
    EVENT,
    OWN,
    job_id,
    logged,
    name_of,
    no_key,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.commits import stored_events
from flux_trio.judge.views.durable import DOUBTS
from flux_trio.judge.views.eventlogs import (
    LOG,
    LOGGING,
    UNSTORED,
    Log,
    Logging,
    Unstored,
    broken_event,
    is_open_at_its_end,
    is_told_again,
    log_of,
    to_store,
)
from flux_trio.judge.views.hook_answers import HOOK_ANSWERS, is_held
from flux_trio.judge.views.jobs import CLEANUP, LIFE, Life, context_of
from flux_trio.judge.views.kvs import commit_ops
from flux_trio.judge.views.scheduling import ASKED, asked_of, is_pending
from flux_trio.judge.views.traits import WITH_EVENTS, WITH_JOBSPEC, WITH_UNLINK
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

EVENTS: Final = logged(ANY_TOPIC)
WITH_LOGS: Final = sent("request", *topics.COMMITS, mark=WITH_EVENTS)
UNLINKS: Final = sent("request", *topics.COMMITS, mark=WITH_UNLINK)


# --- the first event and the last


@RULES.by(LOGGING, "21.events.3", EVENTS, views=(LIFE, LOG, DOUBTS))
def submit_comes_first(logging: Logging, record: Record, seen: Seen) -> Finding:
    if logging.name == "submit":
        if not logging.has_log:
            return True
        log = log_of(record, seen)
        assert log is not None
        if is_told_again(log, seen):
            return None
        return broken_event(record, "expected first, and once", log.submitted)
    if logging.has_log:
        return None
    life: Life | None = seen.at(LIFE, job_id(record))
    if life is None or life.is_logged:
        return None
    return broken_event(record, "expected a submit event first", life.since)


@RULES.by(LOGGING, "21.criteria.3", logged("submit", "clean"), views=(LOG, DOUBTS))
def one_beginning_and_one_end(logging: Logging, record: Record, seen: Seen) -> Finding:
    if logging.name == "submit":
        if not logging.has_log:
            return True
    elif not logging.has_ended:
        return True if logging.has_log else None
    log = log_of(record, seen)
    assert log is not None
    if logging.name == "submit" and is_told_again(log, seen):
        return None
    n = log.submitted if logging.name == "submit" else log.ended
    return broken_event(record, "expected once for a job", n)


def _unclean(seen: Seen) -> Iterable[Broken]:
    """Jobs in CLEANUP that hold no resources, and for which nothing else is awaited."""
    for jobid, life in seen.all(LIFE).items():
        log: Log | None = seen.at(LOG, jobid)
        if log is None or life.state != CLEANUP or life.held:
            continue
        if is_open_at_its_end(jobid, seen) or is_held(jobid, life, seen):
            continue
        if life.freed or not is_pending(asked_of(seen, jobid), seen):
            text = f"job {jobid} is in CLEANUP and holds no resources: no clean event follows"
            yield Broken(text, (life.since,), job=jobid)


@RULES.by(LOGGING, "21.events.31", EVENTS, views=(LOG, LIFE, ASKED, HOOK_ANSWERS), debts=_unclean)
def clean_is_empty_and_last(logging: Logging, record: Record, seen: Seen) -> Finding:
    if logging.has_ended:
        log = log_of(record, seen)
        assert log is not None
        return broken_event(record, "expected nothing after the clean event", log.ended)
    if logging.name != "clean":
        return None
    found = context_of(record)
    return broken_event(record, f"expected no context, got {found!r}") if found else True


# --- who logs events, and where


@RULES.by(LOGGING, "21.criteria.4", EVENTS)
def the_job_manager_alone_moves_jobs(logging: Logging, record: Record, seen: Seen) -> Finding:
    if not logging.is_managed:
        return None
    if logging.is_managers:
        return True
    manager = seen.facts.manager
    return broken_event(record, f"expected of {manager} alone, came from {record.party}")


def _owed_events(seen: Seen) -> Iterable[Broken]:
    left: Mapping[Any, Unstored] = seen.all(UNSTORED)
    if not seen.at(COMMITS):
        return
    for job, events in left.items():
        for name, n in to_store(events, ()):
            yield Broken(
                f"{name} event of job {job} is in no eventlog: it was never stored", (n,), job=job
            )


COMMITS: Final = view(
    "commits",
    WITH_LOGS,
    parts=lambda record, _seen: [((), None)] if stored_events(record) else [],
    fold=lambda _n, _part, record, _seen: record.n,
    state=Place,
)
"""A single state: the record of the last commit that has events, if the trace shows commits."""


@RULES.judge("21.criteria.7", WITH_LOGS, views=(UNSTORED, COMMITS, LOG), debts=_owed_events)
def events_are_stored_as_they_were_logged(record: Record, seen: Seen) -> Finding:
    kept, logs, unstored = False, seen.states[LOG], seen.states[UNSTORED]
    for job, names in stored_events(record).items():
        log: Log | None = logs.get(job)
        if log is None:
            continue  # a job that its job manager does not know yet
        expected = tuple([name for name, _ in to_store(unstored.get(job, ()), names)])
        if names != expected[: len(names)]:
            text = f"expected events {' '.join(expected) or '(none)'}, got {' '.join(names)}"
            return Broken(f"eventlog of job {job}: {text}", (log.submitted,), job=job)
        kept = True
    return kept


# --- jobs that are refused


def _invalid_parts(record: Record, _seen: Seen) -> Iterable[tuple[int, bool]]:
    if record.kind == EVENT:
        found = job_id(record)
        return [] if found is None else [(found, name_of(record) == "invalidate")]
    return [(job, False) for job in unlinked(record)]


def unlinked(record: Record) -> list[int]:
    """Return the jobs that a commit removes as a whole."""
    unlinks = [key for how, key, _ in commit_ops(record) if how == "unlink"]
    keys = [key for key in unlinks if isinstance(key, str) and _JOB.fullmatch(key)]
    return [int(key[4:].replace(".", ""), 16) for key in keys]


_JOB: Final = re.compile(r"job(\.[0-9a-f]{4}){4}")


INVALID: Final = view(
    "invalid",
    logged("invalidate"),
    while_live(OWN, UNLINKS),
    parts=_invalid_parts,
    fold=lambda _n, is_invalid, record, _seen: record.n if is_invalid else None,
    state=Place,
)
"""By job id: the record of its invalidate event, until its stored data is removed."""


INGESTED: Final = view(
    "ingested",
    sent("request", *topics.COMMITS, mark=WITH_JOBSPEC),
    key=no_key,
    fold=lambda n, _part, record, _seen: n or record.n,
    state=Place,
)
"""A single state: the first record that stores a job, if the trace shows what job-ingest sends."""


def _owed_removals(seen: Seen) -> Iterable[Broken]:
    """Yield the invalid jobs that are still stored. job-ingest may be the one who removes them."""
    left: Mapping[Any, int] = seen.all(INVALID)
    for job, n in left.items():
        if seen.at(COMMITS) and seen.at(INGESTED):
            yield Broken(
                f"job {job} was invalid: expected it to be removed from the KVS", (n,), job=job
            )


@RULES.judge(
    "21.events.13",
    logged("invalidate"),
    while_live(INVALID, UNLINKS),
    views=(INVALID, COMMITS, INGESTED),
    debts=_owed_removals,
)
def an_invalid_job_is_removed(record: Record, seen: Seen) -> Finding:
    if record.kind == EVENT:
        found = context_of(record)
        return broken_event(record, f"expected no context, got {found!r}") if found else None
    return any(seen.at(INVALID, job) for job in unlinked(record))


# --- dependencies, prologs and epilogs


@RULES.judge("21.events.16", logged("dependency-remove"), views=(LOG,))
def what_is_removed_was_added(record: Record, seen: Seen) -> Finding:
    return _matches(record, seen, "dependencies", "dependency-add")


def _matches(record: Record, seen: Seen, field: str, opening: str) -> Finding:
    log, description = log_of(record, seen), context_of(record).get("description")
    if log is None:
        return None
    if any(each == description for each, _ in getattr(log, field)):
        return True
    text = f"no {opening} event before it has description {description!r}"
    return broken_event(record, text, log.submitted)


def _require_match(clause: str, action: str, field: str) -> None:
    """Register `clause`: a finish event has status, and the description of a start before it."""

    @RULES.judge(clause, logged(f"{action}-finish"), views=(LOG,))
    def judge(record: Record, seen: Seen) -> Finding:
        context = context_of(record)
        for key, shape in (("description", STRING), ("status", INTEGER)):
            if not shape.fits(context.get(key)):
                got = f"got {context[key]!r:.80}" if key in context else "it is missing"
                return broken_event(record, f"{key}: expected {shape.words}, {got}")
        return _matches(record, seen, field, f"{action}-start")


_require_match("21.events.24", "prolog", "prologs")
_require_match("21.events.26", "epilog", "epilogs")


@RULES.judge("21.events.22", sent("request", "<exec>.start"), views=(LOG,))
def a_prolog_holds_the_start_request(record: Record, seen: Seen) -> Finding:
    return _is_over(record, seen, "prologs")


@RULES.judge(
    "21.events.25",
    logged("epilog-start", "free"),
    sent("request", topics.SCHED_FREE),
    views=(LOG, LIFE),
)
def an_epilog_holds_the_free_request(record: Record, seen: Seen) -> Finding:
    if record.kind == EVENT and name_of(record) != "free":
        found = context_of(record).get("description")
        if not isinstance(found, str):
            return broken_event(record, f"description: expected a string, got {found!r}")
        log = log_of(record, seen)
        if log is None or not log.started or log.finished or log.fatal:
            return True
        text = "expected in CLEANUP, after the finish event or a fatal exception"
        return broken_event(record, text, log.started)
    life: Life | None = seen.at(LIFE, job_id(record))
    if life is not None and not life.held and record.kind != EVENT:
        # The job never used it: it is freed at once (readings: A SUCCESS that crosses a cancel).
        return None
    return _is_over(record, seen, "epilogs")


def _is_over(record: Record, seen: Seen, field: str) -> Finding:
    log = log_of(record, seen)
    if log is None:
        return None
    left = getattr(log, field)
    if not left:
        return True
    (description, n), *_ = left
    name = "free event" if record.kind == EVENT else "request"
    text = f"expected no {name} before {field[:-1]} {description} has finished"
    text += "" if log.started else "; the job was never started"
    text += "" if log.started or not log.prolog_failed else ", since its prolog failed"
    return Broken(f"job {job_id(record)}: {text}", (n,))
