"""Violations of RFC 27, Alloc Deny."""

from __future__ import annotations

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import (
    REMOVED,
    Trace,
    cut,
    cut_before,
    duplicate,
    edit_note,
    edit_payload,
    find,
    find_event,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC = topics.SCHED_ALLOC


def denied(trace: Trace) -> Record:
    """The first DENY."""
    return find(trace, ALLOC, "response", type=2)


PLANTED.bad_key("27.deny.2", "answers_by_hand", denied, "note", [5, {}])


@PLANTED.violation("27.deny.1", "everyday")
def leaves_the_impossible_pending(trace: Trace) -> Trace:
    return cut_before(trace, denied(trace))


@PLANTED.violation("27.deny.1", "everyday")
def cancels_the_impossible(trace: Trace) -> Trace:
    trace = edit_payload(trace, denied(trace), type=3, note=REMOVED)
    return cut(trace, find(trace, ALLOC, "response", type=3))


@PLANTED.violation("27.deny.2", "answers_by_hand")
def plain_deny_is_dropped(trace: Trace) -> Trace:
    return cut(trace, receipt(trace, denied(trace)))


@PLANTED.violation("27.deny.4", "everyday")
def exception_has_a_note_of_its_own(trace: Trace) -> Trace:
    event = find_event(trace, "exception")
    context = {**event.data["context"], "note": "unsatisfiable"}
    return edit_note(trace, event, context=context)


@PLANTED.violation("27.deny.5", "everyday")
def denied_job_stays(trace: Trace) -> Trace:
    return cut(trace, receipt(trace, denied(trace)))


@PLANTED.violation("27.deny.5", "everyday")
def denied_job_gets_a_mild_exception(trace: Trace) -> Trace:
    event = find_event(trace, "exception")
    other = edit_note(trace, event, context={**event.data["context"], "severity": 1})
    return cut_before(other, other[event.n])


@PLANTED.violation("27.deny.6", "everyday")
def denies_twice(trace: Trace) -> Trace:
    return duplicate(trace, denied(trace))
