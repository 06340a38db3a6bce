"""Violations of RFC 33 that a trace shows."""

from __future__ import annotations

from flux_trio.messages import topics
from tests.support.judged import (
    Trace,
    drop,
    edit,
    edit_payload,
    find,
    find_event,
    find_note,
    insert,
    made_event,
    move,
)
from tests.support.planted import Planted

PLANTED = Planted()


def requested_again(trace: Trace, **system: object) -> Trace:
    """The request that follows an update has other keys in attributes.system."""
    update = find_event(trace, "jobspec-update", nth=-1)
    alloc = find(trace, topics.SCHED_ALLOC, "request", nth=-1, id=update.data["id"])
    jobspec = alloc.message.payload["jobspec"]
    attributes = {**jobspec["attributes"]}
    attributes["system"] = {**attributes["system"], **system}
    other = {**jobspec, "attributes": attributes}
    return edit_payload(trace, alloc, jobspec=other)[: alloc.n]


@PLANTED.violation("33.defaults.7", "updates", cut=True)
def the_jobspec_is_sent_without_the_update(trace: Trace) -> Trace:
    return requested_again(trace, duration=10.0)


@PLANTED.violation("33.defaults.9", "updates", cut=True)
def the_jobspec_changed_without_an_event(trace: Trace) -> Trace:
    return requested_again(trace, queue="batch")


@PLANTED.violation("33.assignment.3", "queue_assigned")
def a_queue_is_assigned_after_plugins_were_asked(trace: Trace) -> Trace:
    asked = find_note(trace, "hook")
    return move(trace, find_event(trace, "jobspec-update"), after=asked)


@PLANTED.violation("33.validation.4", "held_up")
def a_rejected_job_has_a_validate_event(trace: Trace) -> Trace:
    invalid = find_event(trace, "invalidate")
    return insert(trace, invalid, made_event(invalid.data["id"], "validate"))[: invalid.n + 1]


@PLANTED.violation("33.validation.4", "held_up")
def the_submitter_of_a_rejected_job_hears_of_success(trace: Trace) -> Trace:
    refusal = find(trace, topics.INGEST_SUBMIT, "response", errnum=22)
    invalid = find_event(trace, "invalidate")
    return edit(trace, refusal, errnum=0, payload={"id": invalid.data["id"]})


@PLANTED.violation("33.admin.6", "queue_stopped")
def a_pending_request_is_not_canceled(trace: Trace) -> Trace:
    cancel = find(trace, topics.SCHED_CANCEL, "request")
    answer = find(trace, topics.SCHED_ALLOC, "response", id=cancel.message.payload["id"], type=3)
    start = find(trace, topics.JOB_QUEUE_START, "request", start=True)
    return drop(trace[: start.n - 1], cancel, answer)


@PLANTED.violation("33.admin.7", "queue_stopped", cut=True)
def a_request_for_a_stopped_queue(trace: Trace) -> Trace:
    start = find(trace, topics.JOB_QUEUE_START, "request", start=True)
    alloc = next(
        r
        for r in trace[start.n :]
        if r.kind == "send" and getattr(r.message, "topic", "") == topics.SCHED_ALLOC
    )
    return move(trace, alloc, before=start)[: start.n]


@PLANTED.violation("33.criteria.5", "everyday")
def the_scheduler_is_told_of_the_queue(trace: Trace) -> Trace:
    return edit_payload(trace, find(trace, topics.SCHED_ALLOC, "request"), queue="batch")
