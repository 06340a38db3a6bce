"""Violations of RFC 27, Alloc."""

from __future__ import annotations

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.judge.planted.rfc27_impl import more
from tests.support.judged import (
    REMOVED,
    Trace,
    cut,
    cut_before,
    edit,
    edit_note,
    edit_payload,
    find,
    find_event,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC = topics.SCHED_ALLOC


def alloc(trace: Trace) -> Record:
    """The first request."""
    return find(trace, ALLOC, "request")


def denied(trace: Trace) -> Record:
    """The first DENY."""
    return find(trace, ALLOC, "response", type=2)


def annotated(trace: Trace) -> Record:
    """The first ANNOTATE."""
    return find(trace, ALLOC, "response", type=1)


PLANTED.bad_key("27.alloc.3", "everyday", alloc, "priority", [REMOVED, -1, 4294967296, 15])
PLANTED.bad_key("27.alloc.4", "everyday", alloc, "userid", [REMOVED, "1000"])
PLANTED.bad_key("27.alloc.5", "everyday", alloc, "jobspec", [REMOVED, "{}"])


@PLANTED.violation("27.alloc.1", "everyday")
def job_in_sched_is_not_asked_for(trace: Trace) -> Trace:
    return cut_before(trace, alloc(trace))


@PLANTED.violation("27.alloc.2", "everyday")
def id_is_text(trace: Trace) -> Trace:
    return more(trace, alloc(trace), payload={**alloc(trace).message.payload, "id": "f1"})


@PLANTED.violation("27.alloc.7", "everyday")
def denies_for_want_of_an_environment(trace: Trace) -> Trace:
    note = "the jobspec has no environment"
    trace = edit_payload(trace, denied(trace), note=note)
    event = find_event(trace, "exception")
    return edit_note(trace, event, context={**event.data["context"], "note": note})


@PLANTED.violation("27.alloc.9", "answers_by_hand")
def answer_with_an_id_of_text(trace: Trace) -> Trace:
    answer = annotated(trace)
    return more(trace, answer, payload={**answer.message.payload, "id": "f1"})


@PLANTED.violation("27.alloc.9", "everyday", cut=True)
def answer_without_payload(trace: Trace) -> Trace:
    answer = denied(trace)
    return edit(trace, answer, payload=None)[: answer.n]


@PLANTED.violation("27.alloc.10", "answers_by_hand")
def answer_of_type_seven(trace: Trace) -> Trace:
    answer = annotated(trace)
    return more(trace, answer, payload={**answer.message.payload, "type": 7})


@PLANTED.violation("27.alloc.11", "everyday", cut=True)
def what_nobody_canceled_is_answered_cancel(trace: Trace) -> Trace:
    answer = denied(trace)
    return edit_payload(trace, answer, type=3, note=REMOVED)[: answer.n]


@PLANTED.violation("27.alloc.12", "answers_by_hand")
def success_after_annotate_is_dropped(trace: Trace) -> Trace:
    jobid = annotated(trace).message.payload["id"]
    return cut(trace, receipt(trace, find(trace, ALLOC, "response", type=0, id=jobid)))
