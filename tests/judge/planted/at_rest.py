"""Violations of what must hold at rest: accounts that come when something was still to be done."""

from __future__ import annotations

from typing import Any

from flux_trio.formats import Event
from flux_trio.messages import topics
from flux_trio.protocols import Job
from flux_trio.trace import Kind, Record
from tests.support.judged import (
    Trace,
    cut,
    edit_note,
    find_all,
    find_event,
    find_note,
    insert,
    made_note,
)
from tests.support.planted import Planted

PLANTED = Planted()
STUCK, COUNTERS = "invariant.nobody-stuck", "invariant.counters"


def states(trace: Trace) -> list[list[Any]]:
    """The active jobs as the job manager would list them."""
    jobs: dict[int, Job] = {}
    for record in trace:
        if record.kind == Kind.EVENT and record.data is not None:
            data = record.data
            event = Event(record.t, data["name"], data["context"])
            if (job := jobs.get(data["id"])) is None:
                jobs[data["id"]] = Job(data["id"], event)
            else:
                job.apply(event)
    return [[job.id, job.state.name, ""] for job in jobs.values() if job.is_active]


def rests_after(trace: Trace, event: Record, *, waiting: int = 0) -> Trace:
    """The job manager says that it is at rest right after an event; nothing follows."""
    until = cut(trace, event)
    final = [
        r
        for r in find_all(until, topics.SCHED_ALLOC, "response", kind="recv")
        if r.message.payload["type"] in (0, 2, 3)
    ]
    asked = find_all(until, topics.SCHED_ALLOC, "request")
    account = made_note(
        Kind.STATE.value,
        topics.JOB_MANAGER,
        service=topics.JOB_MANAGER,
        scheduler="ready",
        exec=topics.JOB_EXEC,
        outstanding=len(asked) - len(final),
        waiting=waiting,
        jobs=states(until),
    )
    return insert(until, until[-1], account)


@PLANTED.violation(STUCK, "everyday", cut=True)
def rests_before_validation(trace: Trace) -> Trace:
    return rests_after(trace, find_event(trace, "submit"))


@PLANTED.violation(STUCK, "held_up", cut=True)
def rests_without_a_dependency(trace: Trace) -> Trace:
    return rests_after(trace, find_event(trace, "dependency-remove", nth=-1))


@PLANTED.violation(STUCK, "everyday", cut=True)
def rests_before_a_plugin_is_asked(trace: Trace) -> Trace:
    return rests_after(trace, find_event(trace, "depend"))


@PLANTED.violation(STUCK, "everyday", cut=True)
def rests_before_the_scheduler_is_asked(trace: Trace) -> Trace:
    return rests_after(trace, find_event(trace, "priority"), waiting=1)


@PLANTED.violation(STUCK, "everyday", cut=True)
def rests_before_the_start(trace: Trace) -> Trace:
    return rests_after(trace, find_event(trace, "alloc"))


@PLANTED.violation(STUCK, "everyday", cut=True)
def rests_before_the_free(trace: Trace) -> Trace:
    return rests_after(trace, find_event(trace, "release"))


@PLANTED.violation(STUCK, "everyday", cut=True)
def rests_before_clean(trace: Trace) -> Trace:
    return rests_after(trace, find_event(trace, "free"))


def an_account(trace: Trace) -> Record:
    """One with jobs in it."""
    return next(
        r
        for r in trace
        if r.kind == Kind.STATE and r.party == topics.JOB_MANAGER and r.data["jobs"]
    )


@PLANTED.violation(COUNTERS, "everyday")
def counts_a_request_too_many(trace: Trace) -> Trace:
    account = an_account(trace)
    return edit_note(trace, account, outstanding=account.data["outstanding"] + 1)


@PLANTED.violation(COUNTERS, "everyday")
def counts_a_job_that_waits_too_many(trace: Trace) -> Trace:
    account = an_account(trace)
    return edit_note(trace, account, waiting=account.data["waiting"] + 1)


@PLANTED.violation(COUNTERS, "everyday")
def thinks_a_job_is_in_another_state(trace: Trace) -> Trace:
    account = an_account(trace)
    jobs = [
        [jobid, "RUN" if state == "SCHED" else "SCHED", reason]
        for jobid, state, reason in account.data["jobs"]
    ]
    return edit_note(trace, account, jobs=jobs)


@PLANTED.violation(COUNTERS, "everyday")
def forgets_a_job(trace: Trace) -> Trace:
    account = an_account(trace)
    return edit_note(trace, account, jobs=account.data["jobs"][1:])


@PLANTED.violation(COUNTERS, "everyday")
def a_plugin_counts_what_is_not_there(trace: Trace) -> Trace:
    counters = made_note(
        Kind.COUNTERS.value,
        topics.JOB_MANAGER,
        plugin="limits",
        declared={"running": 2, "waiting": 1},
        recounted={"running": 1, "waiting": 1},
    )
    return insert(trace, find_note(trace, Kind.STATE.value, party=topics.JOB_MANAGER), counters)
