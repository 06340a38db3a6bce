"""What breaks no clause and is reported all the same."""

from __future__ import annotations

from flux_trio.messages import Errno, Request, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import Kind
from tests.support.judged import Trace, edit, find, insert, made, made_note
from tests.support.planted import Planted

PLANTED = Planted()


@PLANTED.violation("unexplained.lost-service", "everyday", cut=True)
def a_module_crashes(trace: Trace) -> Trace:
    note = made_note(Kind.MODULE.value, "broker", module="kvs", what="crashed", reason="OSError()")
    return insert(trace, trace[-1], note)


@PLANTED.violation("unexplained.error-response", "everyday", cut=True)
def a_commit_fails(trace: Trace) -> Trace:
    answer = find(trace, topics.KVS_COMMIT, "response", peer="sched")
    return edit(trace, answer, payload="no room", errnum=Errno.ENOSPC)[: answer.n]


@PLANTED.violation("unexplained.suspension", "everyday", cut=True)
def the_job_manager_gives_the_scheduler_up(trace: Trace) -> Trace:
    line = {"level": 4, "text": "scheduling suspended: no reason at all"}
    said = Request(topics.BROKER_LOG, line, flags=NORESPONSE)
    return insert(trace, trace[-1], *made(topics.JOB_MANAGER, "broker", said))
