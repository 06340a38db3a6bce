"""Violations of RFC 6 and RFC 3 in requests, responses and their ways."""

from __future__ import annotations

import functools

import msgspec

from flux_trio.messages import Errno, Response, topics
from flux_trio.trace import Record
from tests.support.judged import (
    Trace,
    drop,
    duplicate,
    edit,
    find,
    find_all,
    insert,
    made,
    receipt,
    renumber,
)
from tests.support.planted import Planted

PLANTED = Planted()

NOBODY = "nobody.home"

submitted = functools.partial(find, topic=topics.INGEST_SUBMIT, type_="response")
looked_up = functools.partial(find, topic=topics.KVS_LOOKUP, type_="request", nth=1)


@PLANTED.violation("6.request.2", "everyday")
def a_request_without_topic(trace: Trace) -> Trace:
    return edit(trace, find(trace, topics.SCHED_CANCEL, "request"), topic="")


@PLANTED.violation("invariant.payload-is-object", "scheduler_reload")
def a_request_with_text(trace: Trace) -> Trace:
    return edit(trace, find(trace, "resource.disconnect", "request"), payload="bye")


@PLANTED.violation("6.matchtag.3", "everyday")
def a_matchtag_that_is_not_needed(trace: Trace) -> Trace:
    return edit(trace, find(trace, topics.SCHED_CANCEL, "request"), matchtag=9)


@PLANTED.violation("6.matchtag.4", "everyday")
def a_matchtag_that_is_in_use(trace: Trace) -> Trace:
    acquire = find(trace, topics.RESOURCE_ACQUIRE, "request").message.matchtag
    return edit(trace, find(trace, topics.SCHED_READY, "request"), matchtag=acquire)


@PLANTED.violation("6.request.1", "everyday")
def two_requests_and_one_response(trace: Trace) -> Trace:
    return duplicate(trace, looked_up(trace))


@PLANTED.violation("6.response.1", "everyday")
def a_response_with_another_topic(trace: Trace) -> Trace:
    return edit(trace, submitted(trace), topic="job-ingest.submitted")


@PLANTED.violation("6.response.1", "everyday")
def a_second_response(trace: Trace) -> Trace:
    return duplicate(trace, submitted(trace))


@PLANTED.violation("6.matchtag.1", "everyday")
def a_response_with_another_matchtag(trace: Trace) -> Trace:
    return edit(trace, submitted(trace), matchtag=999)


@PLANTED.violation("3.routing.4", "calls")
def a_response_that_goes_astray(trace: Trace) -> Trace:
    answer = find(trace, topics.KVS_OWN.watch, "response")
    other = {"one-2": "two-3", "two-3": "one-2"}[answer.peer]
    return _taken_up_by(trace, answer, other)


def _taken_up_by(trace: Trace, send: Record, party: str) -> Trace:
    taken = receipt(trace, send)
    other = msgspec.structs.replace(taken, party=party)
    return [other if each is taken else each for each in trace]


@PLANTED.violation("6.response.2", "everyday")
def a_success_with_text(trace: Trace) -> Trace:
    return edit(trace, submitted(trace), payload="no such queue")


def _refused(trace: Trace) -> Record:
    return find(trace, topics.KVS_LOOKUP, "response", errnum=Errno.ENOENT)


@PLANTED.violation("6.response.3", "everyday")
def a_failure_with_an_object(trace: Trace) -> Trace:
    return edit(trace, _refused(trace), payload={"reason": "no such key"})


@PLANTED.violation("6.response.3", "everyday")
def a_failure_with_a_negative_errnum(trace: Trace) -> Trace:
    return edit(trace, _refused(trace), errnum=-2)


@PLANTED.violation("6.response.4", "everyday")
def an_error_text_of_two_lines(trace: Trace) -> Trace:
    return edit(trace, _refused(trace), payload="no\nsuch key")


@PLANTED.violation("6.response.4", "everyday")
def a_long_error_text(trace: Trace) -> Trace:
    return edit(trace, _refused(trace), payload="no such key " * 7)


@PLANTED.violation("6.request.5", "everyday")
def a_service_answers_what_wants_no_response(trace: Trace) -> Trace:
    cancel = find(trace, topics.SCHED_CANCEL, "request")
    return insert(trace, cancel, *made("sched", "job-manager", Response(topics.SCHED_CANCEL)))


@PLANTED.violation("3.routing.3", "calls")
def the_broker_answers_what_wants_no_response(trace: Trace) -> Trace:
    silent = next(each for each in find_all(trace, NOBODY, "request") if not each.message.matchtag)
    answer = Response(NOBODY, "nobody is there", int(Errno.ENOSYS))
    return insert(trace, silent, *made("broker", silent.party, answer))


@PLANTED.violation("6.cancel.2", "calls")
def a_cancel_that_wants_a_response(trace: Trace) -> Trace:
    return edit(trace, find(trace, topics.KVS_OWN.cancel, "request"), flags=0)


@PLANTED.violation("6.cancel.2", "calls")
def a_cancel_that_gets_a_response(trace: Trace) -> Trace:
    cancel = find(trace, topics.KVS_OWN.cancel, "request")
    return insert(trace, cancel, *made("kvs", cancel.party, Response(topics.KVS_OWN.cancel)))


@PLANTED.violation("3.routing.1", "everyday")
def a_request_that_goes_astray(trace: Trace) -> Trace:
    return _taken_up_by(trace, find(trace, topics.SCHED_CANCEL, "request"), "job-exec")


def _enosys(trace: Trace) -> Record:
    return find(trace, NOBODY, "response")


@PLANTED.violation("3.routing.2", "calls")
def a_request_that_is_dropped(trace: Trace) -> Trace:
    return drop(trace, _enosys(trace))


@PLANTED.violation("6.errors.1", "calls")
def another_errnum_for_enosys(trace: Trace) -> Trace:
    return edit(trace, _enosys(trace), errnum=39)


@PLANTED.violation("6.request.3", "everyday")
def a_service_that_is_there_is_unreachable(trace: Trace) -> Trace:
    return edit(trace, _refused(trace), errnum=int(Errno.EHOSTUNREACH))


@PLANTED.violation("3.routing.5", "everyday")
def a_message_overtakes_another(trace: Trace) -> Trace:
    """Two sched.alloc requests are taken up in the other order."""
    taken = [receipt(trace, each) for each in find_all(trace, topics.SCHED_ALLOC, "request")]
    first, second = taken[0], taken[1]
    place = {first.n: second, second.n: first}
    return renumber([place.get(each.n, each) for each in trace])
