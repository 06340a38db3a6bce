"""Violations of RFC 20 and 32 by the execution service: which shells there were, and their ends."""

from __future__ import annotations

from tests.support.judged import Trace, edit_payload, find, find_all
from tests.support.planted import Planted

PLANTED = Planted()
LOG = "guest.exec.eventlog"


def written(trace: Trace, old: str, new: str, nth: int = 0) -> Trace:
    """The nth commit to a job's own log that has `old` has `new` instead."""
    commits = [
        each
        for each in find_all(trace, "kvs.commit", "request")
        if LOG in str(each.message) and old in str(each.message)
    ]
    commit = commits[nth]
    ops = [[how, key, text.replace(old, new)] for how, key, text in commit.message.payload["ops"]]
    return edit_payload(trace, commit, ops=ops)


@PLANTED.violation("20.overview.6", "shells_in_the_log")
def a_shell_is_missing(trace: Trace) -> Trace:
    return written(trace, '"size":2', '"size":1')


@PLANTED.violation("20.overview.6", "shells_in_the_log")
def the_first_shell_is_on_a_foreign_target(trace: Trace) -> Trace:
    return written(trace, '"leader-rank":0', '"leader-rank":3')


@PLANTED.violation("32.start.32", "shells_in_the_log")
def finish_has_the_status_of_the_first_shell(trace: Trace) -> Trace:
    finish = find(trace, "sim-exec.start", "response", type="finish")
    return edit_payload(trace, finish, data={"status": 0})


@PLANTED.violation("32.start.32", "shells_in_the_log")
def a_shell_ended_with_a_greater_status_than_finish_had(trace: Trace) -> Trace:
    return written(trace, '"wait_status":0', '"wait_status":512', nth=1)
