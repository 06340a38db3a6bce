"""Violations of RFC 21: the order of events, who logs them, and what holds a job up."""

from __future__ import annotations

import msgspec

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    drop,
    duplicate,
    edit_note,
    edit_payload,
    find,
    find_all,
    find_event,
    insert,
    made_event,
    move,
)
from tests.support.planted import Planted

PLANTED = Planted()


@PLANTED.violation("21.events.3", "everyday", cut=True)
def validate_before_submit(trace: Trace) -> Trace:
    submit = find_event(trace, "submit")
    validate = find_event(trace, "validate")
    return move(trace[: validate.n], submit, after=validate)


@PLANTED.violation("21.criteria.3", "everyday", cut=True)
def submitted_twice(trace: Trace) -> Trace:
    submit = find_event(trace, "submit")
    return duplicate(trace[: submit.n], submit)


@PLANTED.violation("21.criteria.3", "everyday", cut=True)
def cleaned_twice(trace: Trace) -> Trace:
    clean = find_event(trace, "clean")
    return duplicate(trace[: clean.n], clean)


@PLANTED.violation("21.events.31", "everyday", cut=True)
def a_memo_after_clean(trace: Trace) -> Trace:
    clean = find_event(trace, "clean")
    return insert(trace[: clean.n], clean, made_event(clean.data["id"], "memo", key="value"))


@PLANTED.violation("21.events.31", "everyday", cut=True)
def clean_has_a_context(trace: Trace) -> Trace:
    clean = find_event(trace, "clean")
    data = {**clean.data, "context": {"status": 0}}
    return [*trace[: clean.n - 1], msgspec.structs.replace(clean, data=data)]


@PLANTED.violation("21.criteria.4", "everyday")
def the_scheduler_logs_alloc(trace: Trace) -> Trace:
    alloc = find_event(trace, "alloc")
    return [msgspec.structs.replace(r, party="sched") if r is alloc else r for r in trace]


def commit_of(trace: Trace, event: Record) -> Record:
    """The commit that stores an event."""
    return find(trace[event.n :], topics.KVS_COMMIT, "request", party="job-manager")


@PLANTED.violation("21.criteria.7", "everyday")
def an_event_is_never_stored(trace: Trace) -> Trace:
    clean = find_event(trace, "clean", nth=-1)
    commit = commit_of(trace, clean)
    return drop(trace[: commit.n], commit)


@PLANTED.violation("21.criteria.7", "everyday")
def another_event_is_stored(trace: Trace) -> Trace:
    commit = commit_of(trace, find_event(trace, "start"))
    ops = [
        [how, key, text.replace('"start"', '"begin"')]
        for how, key, text in commit.message.payload["ops"]
    ]
    return edit_payload(trace, commit, ops=ops)


@PLANTED.violation("21.events.13", "held_up")
def an_invalid_job_stays_in_the_kvs(trace: Trace) -> Trace:
    for commit in find_all(trace, topics.KVS_COMMIT, "request"):
        ops = [op for op in commit.message.payload["ops"] if op[0] != "unlink"]
        trace = edit_payload(trace, commit, ops=ops)
    return trace


@PLANTED.violation("21.events.13", "held_up", cut=True)
def an_invalid_job_has_a_context(trace: Trace) -> Trace:
    invalid = find_event(trace, "invalidate")
    return edit_note(trace, invalid, context={"why": "too large"})[: invalid.n]


@PLANTED.violation("21.events.16", "held_up", cut=True)
def a_dependency_is_removed_twice(trace: Trace) -> Trace:
    removed = find_event(trace, "dependency-remove")
    return duplicate(trace[: removed.n], removed)


@PLANTED.violation("21.events.16", "held_up", cut=True)
def a_dependency_is_removed_that_was_never_added(trace: Trace) -> Trace:
    added = find_event(trace, "dependency-add")
    removed = made_event(added.data["id"], "dependency-remove", description="afterok=3")
    return insert(trace[: added.n], added, removed)


@PLANTED.violation("21.events.22", "held_up", cut=True)
def started_before_the_prolog_is_over(trace: Trace) -> Trace:
    finish = find_event(trace, "prolog-finish")
    start = find(trace, "job-exec.start", "request", id=finish.data["id"])
    return move(trace[: start.n], start, before=finish)


@PLANTED.violation("21.events.25", "held_up", cut=True)
def an_epilog_starts_while_the_job_runs(trace: Trace) -> Trace:
    epilog = find_event(trace, "epilog-start")
    start = find_event(trace, "start", epilog.data["id"])
    return move(trace[: epilog.n], epilog, after=start)


@PLANTED.violation("21.events.19", "manager_reload", cut=True)
def a_job_in_sched_is_not_restarted(trace: Trace) -> Trace:
    restart = find_event(trace, "flux-restart")
    priority = find_event(trace[restart.n :], "priority", restart.data["id"])
    return drop(trace[: priority.n], restart)


@PLANTED.violation("21.events.25", "held_up", cut=True)
def freed_before_the_epilog_is_over(trace: Trace) -> Trace:
    finish = find_event(trace, "epilog-finish")
    free = find(trace, topics.SCHED_FREE, "request", id=finish.data["id"])
    return move(trace[: free.n], free, before=finish)
