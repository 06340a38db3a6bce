"""Violations of RFC 32, Start Request, by the job manager."""

from __future__ import annotations

from flux_trio.messages import Request, topics
from flux_trio.trace import Record
from tests.support.judged import (
    REMOVED,
    Trace,
    drop,
    duplicate,
    edit,
    edit_payload,
    find,
    insert,
    made,
    move,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()

START = "job-exec.start"


def start(trace: Trace, nth: int = 0) -> Record:
    """A start request."""
    return find(trace, START, "request", nth=nth)


def job_of(record: Record) -> int:
    """The job that a message or event is about."""
    found = record.data or record.message.payload
    return int(found["id"])


PLANTED.bad_key("32.impl.2", "everyday", start, "id", last=True)
PLANTED.bad_key("32.start.5", "everyday", start, "id", ["12", 1.5, -1], last=True)
PLANTED.bad_key("32.start.6", "everyday", start, "userid", [REMOVED, "1000", -1])
PLANTED.bad_key("32.start.7", "everyday", start, "jobspec", [REMOVED, "{}"])
PLANTED.bad_key("32.start.8", "everyday", start, "reattach", [REMOVED, 0, None])
PLANTED.bad_key("32.background.4", "everyday", start, "J", ["eyJ2ZXJzaW9uIjoxfQ"])


@PLANTED.violation("32.start.4", "everyday", cut=True)
def a_start_without_an_object(trace: Trace) -> Trace:
    return edit(trace, start(trace), payload=[1, 2])[: start(trace).n]


@PLANTED.violation("32.impl.1", "everyday")
def a_start_with_a_matchtag(trace: Trace) -> Trace:
    return edit(trace, start(trace), matchtag=5)


@PLANTED.violation("32.impl.4", "everyday")
def two_starts_of_one_job(trace: Trace) -> Trace:
    return duplicate(trace, start(trace))


@PLANTED.violation("32.start.2", "everyday", cut=True)
def a_start_before_alloc(trace: Trace) -> Trace:
    first = start(trace)
    granted = find(trace, topics.SCHED_ALLOC, "response", id=job_of(first), type=0)
    return move(trace, first, before=granted)[: granted.n]


@PLANTED.violation("32.start.2", "execution_taken_over", cut=True)
def a_start_before_hello_is_answered(trace: Trace) -> Trace:
    hello = find(trace, topics.EXEC_HELLO, "response", errnum=0)
    early = made("job-manager", hello.peer, Request("sim-exec.start", {"id": 7}))
    end = receipt(trace, hello)
    late = insert(trace[: end.n], hello, *early, before=True)
    return edit(late, find(late, topics.EXEC_HELLO, "request"), payload={"service": "sim-exec"})


@PLANTED.violation("32.start.1", "everyday")
def a_job_with_resources_is_not_started(trace: Trace) -> Trace:
    first = start(trace)
    return drop(trace[: receipt(trace, first).n], first)


@PLANTED.violation("32.start.1", "execution_reload")
def a_job_is_not_started_at_the_next_service(trace: Trace) -> Trace:
    last = start(trace, -1)
    return drop(trace[: receipt(trace, last).n], last)


@PLANTED.violation("32.start.9", "everyday")
def reattach_for_a_job_that_never_ran(trace: Trace) -> Trace:
    return edit_payload(trace, start(trace), reattach=True)


@PLANTED.violation("32.start.9", "execution_reload")
def no_reattach_for_a_job_that_runs(trace: Trace) -> Trace:
    again = find(trace, START, "request", reattach=True)
    return edit_payload(trace, again, reattach=False)


@PLANTED.violation("32.start.39", "everyday")
def resources_are_freed_before_the_final_release(trace: Trace) -> Trace:
    free = find(trace, topics.SCHED_FREE, "request")
    release = find(trace, START, "response", id=job_of(free), type="release")
    return move(trace, free, before=release)


@PLANTED.violation("32.criteria.1", "everyday")
def the_execution_service_asks_the_scheduler(trace: Trace) -> Trace:
    free = Request(topics.SCHED_FREE, {"id": 1}, 9)
    return insert(trace, start(trace), *made("job-exec", "sched", free))


@PLANTED.violation("32.criteria.1", "everyday")
def the_scheduler_asks_the_execution_service(trace: Trace) -> Trace:
    kill = Request(topics.EXEC_KILL, {"id": 1, "signum": 9}, 9)
    return insert(trace, start(trace), *made("sched", "job-exec", kill))
