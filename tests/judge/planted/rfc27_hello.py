"""Violations of RFC 27, Hello."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.messages import Errno, Request, topics
from flux_trio.trace import Record
from tests.judge.planted.rfc27_criteria import new_scheduler_grants_what_runs
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
)
from tests.support.planted import Planted

PLANTED = Planted()
HELLO, READY = topics.SCHED_HELLO, topics.SCHED_READY


def hello(trace: Trace) -> Record:
    """The first hello."""
    return find(trace, HELLO, "request")


def told(trace: Trace) -> Record:
    """What hello says of a job."""
    return find(trace, HELLO, "response", errnum=0)


def told_more(trace: Trace, facts: dict[str, Any]) -> Trace:
    """Hello tells of one more job."""
    first = told(trace)
    response = msgspec.structs.replace(first.message, payload=facts)
    return insert(trace, first, *made("job-manager", "sched", response), before=True)


PLANTED.bad_key("27.hello.7", "scheduler_reload", told, "id", [REMOVED, "1", True])
PLANTED.bad_key("27.hello.8", "scheduler_reload", told, "priority", [REMOVED, -1, 4294967296])
PLANTED.bad_key("27.hello.9", "scheduler_reload", told, "userid", [REMOVED, "1000", 7])
PLANTED.bad_key("27.hello.10", "scheduler_reload", told, "t_submit", [REMOVED, "1.0"])


@PLANTED.violation("27.hello.1", "everyday")
def scheduler_raises_before_it_says_hello(trace: Trace) -> Trace:
    request = Request(topics.JOB_RAISE, {"id": 1, "type": "sched", "severity": 1, "note": ""})
    return insert(trace, hello(trace), *made("sched", "job-manager", request), before=True)


@PLANTED.violation("27.hello.1", "refused_hello")
def ready_without_hello(trace: Trace) -> Trace:
    ready = Request(READY, {"mode": "unlimited"}, 9)
    return insert(trace, hello(trace), *made("sched", "job-manager", ready), before=True)


@PLANTED.violation("27.hello.2", "everyday")
def hello_with_an_object(trace: Trace) -> Trace:
    return edit(trace, hello(trace), payload={})


@PLANTED.violation("27.hello.3", "everyday")
def hello_without_streaming(trace: Trace) -> Trace:
    return edit(trace, hello(trace), flags=0)


@PLANTED.violation("27.hello.4", "scheduler_reload")
def hello_leaves_a_job_out(trace: Trace) -> Trace:
    return drop(trace, told(trace))


@PLANTED.violation("27.hello.4", "scheduler_reload")
def hello_tells_of_a_job_twice(trace: Trace) -> Trace:
    return told_more(trace, told(trace).message.payload)


@PLANTED.violation("27.hello.5", "scheduler_reload")
def hello_tells_of_a_job_that_waits(trace: Trace) -> Trace:
    waits = find(trace, topics.SCHED_ALLOC, "request", nth=2).message.payload
    facts = {key: waits[key] for key in ("id", "priority", "userid", "t_submit")}
    return told_more(trace, facts)


@PLANTED.violation("27.hello.6", "scheduler_reload")
def hello_answers_without_payload(trace: Trace) -> Trace:
    return edit(trace, told(trace), payload=None)


@PLANTED.violation("27.hello.11", "backfill")
def time_of_submission_is_cut_to_seconds(trace: Trace) -> Trace:
    t_submit = told(trace).message.payload["t_submit"]
    return edit_payload(trace, told(trace), t_submit=int(t_submit))


@PLANTED.violation("27.hello.12", "scheduler_reload")
def grants_what_hello_told_of(trace: Trace) -> Trace:
    return new_scheduler_grants_what_runs(trace)


@PLANTED.violation("27.hello.14", "everyday")
def ready_before_enodata(trace: Trace) -> Trace:
    end = find(trace, HELLO, "response", errnum=Errno.ENODATA)
    return move(trace, find(trace, READY, "request"), before=end)


@PLANTED.violation("27.hello.15", "everyday")
def enodata_twice(trace: Trace) -> Trace:
    return duplicate(trace, find(trace, HELLO, "response", errnum=Errno.ENODATA))


@PLANTED.violation("27.hello.17", "refused_hello")
def refused_scheduler_tries_again(trace: Trace) -> Trace:
    gone = find(trace, topics.JOB_MANAGER_DISCONNECT)
    return insert(trace, gone, *made("by-hand", "job-manager", hello(trace).message), before=True)


@PLANTED.violation("27.hello.17", "refused_hello")
def refused_scheduler_stays(trace: Trace) -> Trace:
    return drop(trace, find(trace, topics.JOB_MANAGER_DISCONNECT))
