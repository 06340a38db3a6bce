"""Violations of RFC 27, Implementation."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    come_back,
    cut_before,
    duplicate,
    edit,
    find,
    find_event,
    insert,
    made,
    move,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE


def more(trace: Trace, original: Record, **fields: Any) -> Trace:
    """With another message like `original` after it, but for these fields."""
    copies = [original, receipt(trace, original)]
    other = [
        msgspec.structs.replace(each, message=msgspec.structs.replace(each.message, **fields))
        for each in copies
    ]
    return insert(trace, original, *other)


@PLANTED.violation("27.impl.1", "everyday")
def alloc_with_a_matchtag(trace: Trace) -> Trace:
    return edit(trace, find(trace, ALLOC, "request"), matchtag=7)


@PLANTED.violation("27.impl.2", "everyday")
def free_with_a_matchtag(trace: Trace) -> Trace:
    return edit(trace, find(trace, FREE, "request"), matchtag=7)


@PLANTED.violation("27.impl.3", "everyday")
def credits_an_allocation_nobody_made(trace: Trace) -> Trace:
    alloc = find_event(trace, "alloc")
    return move(trace, alloc, before=find(trace, ALLOC, "response", id=alloc.data["id"]))


@PLANTED.violation("27.impl.4", "everyday")
def alloc_without_id(trace: Trace) -> Trace:
    request = find(trace, ALLOC, "request")
    payload = {key: value for key, value in request.message.payload.items() if key != "id"}
    return more(trace, request, payload=payload)


@PLANTED.violation("27.impl.5", "everyday")
def answer_to_alloc_without_id(trace: Trace) -> Trace:
    return more(trace, find(trace, ALLOC, "response"), payload={"type": 0})


@PLANTED.violation("27.impl.6", "everyday")
def free_without_id(trace: Trace) -> Trace:
    return more(trace, find(trace, FREE, "request"), payload={})


@PLANTED.violation("27.impl.7", "everyday")
def answer_to_free_without_id(trace: Trace) -> Trace:
    return more(trace, find(trace, FREE, "response"), payload={})


@PLANTED.violation("27.impl.8", "everyday")
def asks_again_before_the_answer(trace: Trace) -> Trace:
    return duplicate(trace, find(trace, ALLOC, "request"))


@PLANTED.violation("27.impl.9", "everyday")
def frees_again_before_the_answer(trace: Trace) -> Trace:
    return duplicate(trace, find(trace, FREE, "request"))


def failing(topic: str, trace: Trace) -> Trace:
    """The scheduler answers with an error, which is still on its way."""
    request = find(trace, topic, "request")
    payload = request.message.payload
    error = Response(topic, "out of order", Errno.EINVAL, routes=("job-manager",))
    assert "id" in payload
    return insert(trace, request, made("sched", "job-manager", error)[0])


@PLANTED.violation("27.impl.10", "everyday")
def alloc_fails_with_an_errnum(trace: Trace) -> Trace:
    return failing(ALLOC, trace)


@PLANTED.violation("27.impl.11", "everyday")
def free_fails_with_an_errnum(trace: Trace) -> Trace:
    return failing(FREE, trace)


def goes_on(trace: Trace, failed: str, request: Request) -> Trace:
    """After an error in answer to `failed`, the job manager sends a request all the same."""
    error = receipt(trace, find(trace, failed, "response", errnum=Errno.ENOSYS))
    asked = made("job-manager", "", request)[0]
    trace = insert(trace, error, asked)
    return insert(trace, trace[error.n - 1], *come_back("job-manager"))


@PLANTED.violation("27.impl.12", "requests_never_taken_up")
def asks_on_after_an_error_to_alloc(trace: Trace) -> Trace:
    request = find(trace, ALLOC, "request").message
    return goes_on(trace, ALLOC, Request(ALLOC, request.payload))


@PLANTED.violation("27.impl.13", "requests_never_taken_up")
def asks_on_after_an_error_to_free(trace: Trace) -> Trace:
    request = find(trace, ALLOC, "request").message
    return goes_on(trace, FREE, Request(ALLOC, {**request.payload, "id": 999}))


@PLANTED.violation("27.impl.14", "requests_never_taken_up")
def cancels_after_an_error(trace: Trace) -> Trace:
    return goes_on(trace, ALLOC, Request(topics.SCHED_CANCEL, {"id": 999}))


@PLANTED.violation("27.impl.15", "expirations_by_hand")
def stops_scheduling_after_a_refused_expiration(trace: Trace) -> Trace:
    refused = find(trace, topics.SCHED_EXPIRATION, "response", errnum=Errno.EINVAL)
    return cut_before(trace, find(trace[refused.n :], ALLOC, "request"))
