"""Violations of RFC 27, Expiration."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    cut,
    edit,
    edit_payload,
    find,
    find_event,
    insert,
    made,
    made_event,
    receipt,
)
from tests.support.planted import Planted

PLANTED = Planted()
EXPIRATION = topics.SCHED_EXPIRATION


def expiration(trace: Trace) -> Record:
    """The first sched.expiration."""
    return find(trace, EXPIRATION, "request")


def ask(trace: Trace, payload: dict[str, Any], tag: int = 0) -> Trace:
    """One more sched.expiration; answered with success if it has a matchtag."""
    first = expiration(trace)
    messages = made("job-manager", first.peer, Request(EXPIRATION, payload, tag))
    if tag:
        trace = insert(
            trace, first, *made(first.peer, "job-manager", Response(EXPIRATION, None, 0, tag))
        )
    return insert(trace, trace[first.n - 1], *messages)


@PLANTED.violation("27.expiration.1", "expirations_by_hand")
def expiration_changes_without_asking(trace: Trace) -> Trace:
    update = made_event(find_event(trace, "alloc").data["id"], "resource-update", expiration=2e9)
    return insert(trace, expiration(trace), update, before=True)


@PLANTED.violation("27.expiration.1", "expirations_by_hand")
def the_scheduler_is_asked_about_another_expiration(trace: Trace) -> Trace:
    asked = expiration(trace)
    return edit_payload(trace, asked, expiration=asked.message.payload["expiration"] + 100)


@PLANTED.violation("27.expiration.2", "expirations_by_hand")
def no_id(trace: Trace) -> Trace:
    return ask(trace, {"expiration": 1_000_000_100})


@PLANTED.violation("27.expiration.3", "expirations_by_hand")
def expiration_is_a_fraction(trace: Trace) -> Trace:
    return ask(trace, {"id": 999, "expiration": 1_000_000_100.5})


@PLANTED.violation("27.expiration.5", "expirations_by_hand")
def success_with_an_object(trace: Trace) -> Trace:
    return edit(trace, find(trace, EXPIRATION, "response", errnum=0), payload={})


@PLANTED.violation("27.expiration.6", "expirations_by_hand")
def agrees_for_an_unknown_job(trace: Trace) -> Trace:
    return ask(trace, {"id": 999, "expiration": 1_000_000_100}, 77)


@PLANTED.violation("27.expiration.6", "expirations_by_hand")
def agrees_for_a_job_that_it_has_freed_before(trace: Trace) -> Trace:
    freed = find(trace, topics.SCHED_FREE, "response")
    payload = {"id": freed.message.payload["id"], "expiration": 1_000_000_100}
    asked = made("job-manager", freed.party, Request(EXPIRATION, payload, 77))
    said = made(freed.party, "job-manager", Response(EXPIRATION, None, 0, 77))
    return insert(trace, receipt(trace, freed), *asked, *said)


@PLANTED.violation("27.expiration.8", "expirations_by_hand")
def agrees_to_outlive_the_instance(trace: Trace) -> Trace:
    refused = find(trace, EXPIRATION, "response", errnum=Errno.EINVAL)
    return edit(cut(trace, receipt(trace, refused)), refused, payload=None, errnum=0)


@PLANTED.violation("27.expiration.9", "expirations_by_hand")
def never_answers(trace: Trace) -> Trace:
    return cut(trace, receipt(trace, expiration(trace)))


@PLANTED.violation("27.expiration.10", "expirations_by_hand")
def refused_update_is_made(trace: Trace) -> Trace:
    refused = find(trace, EXPIRATION, "response", errnum=Errno.EINVAL)
    update = made_event(find_event(trace, "alloc").data["id"], "resource-update", expiration=2e9)
    return insert(trace, refused, update)


@PLANTED.violation("27.expiration.10", "expirations_by_hand")
def refused_update_succeeds(trace: Trace) -> Trace:
    update = find(trace, topics.JOB_UPDATE, "response", errnum=Errno.EINVAL)
    return edit(trace, update, payload=None, errnum=0)


@PLANTED.violation("27.expiration.11", "expirations_by_hand")
def enosys_stops_the_update(trace: Trace) -> Trace:
    return cut(trace, receipt(trace, find(trace, EXPIRATION, "response", errnum=Errno.ENOSYS)))


@PLANTED.violation("27.expiration.13", "expiring")
def scheduler_raises_at_the_time_limit(trace: Trace) -> Trace:
    payload = {"id": 999, "type": "timeout", "severity": 0, "note": "time is over"}
    request = Request(topics.JOB_RAISE, payload)
    return insert(trace, find_event(trace, "start"), *made("sched", "job-manager", request))


@PLANTED.violation("27.criteria.12", "expirations_by_hand")
def allowed_update_fails(trace: Trace) -> Trace:
    update = find(trace, topics.JOB_UPDATE, "response", errnum=0)
    failed = msgspec.structs.replace(update.message, payload="no", errnum=Errno.EINVAL)
    trace = cut(trace, receipt(trace, find(trace, EXPIRATION, "response", errnum=0)))
    return insert(trace, trace[-1], *made(update.party, update.peer, failed))
