"""Violations of RFC 27, Hello."""

from __future__ import annotations

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import REMOVED, Trace, edit, find
from tests.support.planted import Planted

PLANTED = Planted()


def told(trace: Trace) -> Record:
    """What hello says of a job."""
    return find(trace, topics.SCHED_HELLO, "response", errnum=0)


PLANTED.bad_key("27.hello.7", "scheduler_reload", told, "id", [REMOVED, "1", True])
PLANTED.bad_key("27.hello.8", "scheduler_reload", told, "priority", [REMOVED, -1, 4294967296])
PLANTED.bad_key("27.hello.9", "scheduler_reload", told, "userid", [REMOVED, "1000"])
PLANTED.bad_key("27.hello.10", "scheduler_reload", told, "t_submit", [REMOVED, "1.0"])


@PLANTED.violation("27.hello.6", "scheduler_reload")
def hello_answers_without_payload(trace: Trace) -> Trace:
    return edit(trace, told(trace), payload=None)
