"""Violations of RFC 27, Prioritize."""

from __future__ import annotations

from flux_trio.messages import Errno, Response, topics
from flux_trio.trace import Record
from tests.judge.planted.rfc27_criteria import new_priority_is_not_told
from tests.judge.planted.rfc27_impl import more
from tests.support.judged import REMOVED, Trace, drop, edit_payload, find, insert, made
from tests.support.planted import Planted

PLANTED = Planted()
PRIORITIZE = topics.SCHED_PRIORITIZE


def prioritize(trace: Trace) -> Record:
    """The first sched.prioritize."""
    return find(trace, PRIORITIZE, "request")


PLANTED.violation("27.prioritize.1", "everyday")(new_priority_is_not_told)


@PLANTED.violation("27.prioritize.1", "everyday", cut=True)
def job_is_granted_long_after_its_priority_was_changed(trace: Trace) -> Trace:
    """In the end nobody owes anything."""
    return drop(trace, prioritize(trace))


PLANTED.bad_key("27.prioritize.2", "everyday", prioritize, "jobs", [REMOVED, {"1": 20}])
PLANTED.bad_key("27.prioritize.3", "everyday", prioritize, "jobs", [[[1, 20, 3]], [{"id": 1}]])


@PLANTED.violation("27.prioritize.4", "everyday")
def id_is_text(trace: Trace) -> Trace:
    return more(trace, prioritize(trace), payload={"jobs": [["f1", 20]]})


@PLANTED.violation("27.prioritize.5", "everyday")
def priority_below_zero(trace: Trace) -> Trace:
    return more(trace, prioritize(trace), payload={"jobs": [[999, -1]]})


def answer(trace: Trace, errnum: int) -> Trace:
    """The scheduler answers it."""
    response = Response(PRIORITIZE, None, errnum)
    return insert(trace, prioritize(trace), *made("sched", "job-manager", response))


@PLANTED.violation("27.prioritize.7", "everyday")
def unknown_job_is_an_error(trace: Trace) -> Trace:
    return answer(trace, Errno.ENOENT)


@PLANTED.violation("27.prioritize.8", "everyday")
def prioritize_is_answered(trace: Trace) -> Trace:
    return answer(trace, 0)


@PLANTED.violation("27.prioritize.4", "everyday")
def there_is_no_such_job(trace: Trace) -> Trace:
    return more(trace, prioritize(trace), payload={"jobs": [[999, 20]]})


@PLANTED.violation("27.prioritize.5", "everyday", cut=True)
def another_priority_than_its_own(trace: Trace) -> Trace:
    told = prioritize(trace)
    (jobid, priority), *_ = told.message.payload["jobs"]
    return edit_payload(trace, told, jobs=[[jobid, priority + 1]])
