"""Violations of RFC 27, Alloc Annotate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flux_trio.messages import Response, topics
from tests.support.judged import (
    Trace,
    edit_note,
    find,
    find_event,
    insert,
    made,
    made_event,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC = topics.SCHED_ALLOC


def annotate(trace: Trace, **keys: Any) -> Trace:
    """One more ANNOTATE, of a job that is canceled before it gets anything."""
    canceled = find(trace, topics.SCHED_CANCEL)
    request = find(trace, ALLOC, "request", id=canceled.message.payload["id"])
    answer = Response(ALLOC, {"id": request.message.payload["id"], "type": 1, **keys})
    return insert(trace, request, *made("sched", "job-manager", answer))


def bad_values(clause: str, outer: str, key: str, values: Iterable[Any]) -> None:
    """Plant an annotation with each value for a key, of the `outer` dictionary if any."""
    for value in values:
        found = {outer: {key: value}} if outer else {key: value}

        def plant(trace: Trace, found: dict[str, Any] = found) -> Trace:
            return annotate(trace, annotations=found)

        plant.__name__ = f"{clause}: {found}"
        PLANTED.violation(clause, "everyday")(plant)


bad_values("27.annotate.10", "", "sched", ["t_estimate", 1])
bad_values("27.annotate.11", "sched", "t_estimate", ["soon"])
bad_values("27.annotate.12", "sched", "reason_pending", [{}])
bad_values("27.annotate.13", "sched", "resource_summary", [["rank0"]])
bad_values("27.annotate.14", "sched", "queue", [1])
bad_values("27.annotate.15", "", "user", ["me"])


@PLANTED.violation("27.success.7", "everyday")
def alloc_event_has_other_annotations(trace: Trace) -> Trace:
    context = {"annotations": {"sched": {"resource_summary": "everything"}}}
    return edit_note(trace, find_event(trace, "alloc"), context=context)


@PLANTED.violation("27.success.7", "answers_by_hand")
def alloc_event_has_those_of_success_only(trace: Trace) -> Trace:
    alloc = find_event(trace, "alloc", nth=1)
    return edit_note(trace, alloc, context={"annotations": {"sched": {}}})


@PLANTED.violation("27.annotate.1", "everyday")
def annotate_after_success(trace: Trace) -> Trace:
    success = find(trace, ALLOC, "response", type=0)
    answer = Response(ALLOC, {"id": success.message.payload["id"], "type": 1, "annotations": {}})
    return insert(trace, success, *made("sched", "job-manager", answer))


@PLANTED.violation("27.annotate.2", "everyday")
def annotate_without_annotations(trace: Trace) -> Trace:
    return annotate(trace)


@PLANTED.violation("27.annotate.2", "everyday")
def annotations_are_text(trace: Trace) -> Trace:
    return annotate(trace, annotations="sched.reason_pending=later")


@PLANTED.violation("27.annotate.19", "answers_by_hand")
def annotations_are_logged_at_once(trace: Trace) -> Trace:
    answer = find(trace, ALLOC, "response", type=1)
    told = answer.message.payload
    memo = made_event(told["id"], "memo", annotations=told["annotations"])
    return insert(trace, receipt(trace, answer), memo)
