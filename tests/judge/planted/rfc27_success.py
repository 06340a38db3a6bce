"""Violations of RFC 27, Alloc Success."""

from __future__ import annotations

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    cut,
    drop,
    duplicate,
    edit_note,
    edit_payload,
    find,
    find_event,
    move,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC = topics.SCHED_ALLOC


def success(trace: Trace) -> Record:
    """The first SUCCESS."""
    return find(trace, ALLOC, "response", type=0)


@PLANTED.violation("27.success.1", "everyday")
def success_before_r_is_stored(trace: Trace) -> Trace:
    committed = find(trace, topics.KVS_COMMIT, "response", peer="sched")
    return move(trace, success(trace), before=committed)


@PLANTED.violation("27.success.1", "answers_by_hand")
def success_without_r(trace: Trace) -> Trace:
    commits = find(trace, topics.KVS_COMMIT, "request", party="by-hand-2")
    return drop(trace, commits)


@PLANTED.violation("27.success.2", "answers_by_hand")
def plain_success_is_dropped(trace: Trace) -> Trace:
    return cut(trace, receipt(trace, success(trace)))


@PLANTED.violation("27.success.2", "everyday")
def annotations_are_text(trace: Trace) -> Trace:
    trace = edit_payload(trace, success(trace), annotations="rank0/core0")
    return edit_note(trace, find_event(trace, "alloc"), context={})


@PLANTED.violation("27.success.5", "answers_by_hand")
def alloc_event_keeps_nulls(trace: Trace) -> Trace:
    alloc = find_event(trace, "alloc", nth=1)
    annotations = alloc.data["context"]["annotations"]
    kept = {**annotations, "sched": {**annotations["sched"], "t_estimate": None}}
    return edit_note(trace, alloc, context={"annotations": kept})


@PLANTED.violation("27.success.6", "everyday")
def alloc_event_before_success(trace: Trace) -> Trace:
    return move(trace, find_event(trace, "alloc"), before=success(trace))


@PLANTED.violation("27.success.8", "everyday")
def success_twice(trace: Trace) -> Trace:
    return duplicate(trace, success(trace))
