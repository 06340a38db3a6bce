"""RFC 6 and RFC 3: requests, their responses, and the routing of both.

Matchtags, flags and routes are headers: a trace that does not show them exercises none of it. Left
out: how messages are framed as bytes (RFC 3), which no trace shows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ANY_CANCEL,
    ANY_DISCONNECT,
    ANY_TOPIC,
    BROKER,
    ERROR,
    errnum,
    message,
    once,
    received,
    request_of,
    response_of,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.calls import (
    ANSWER,
    ANSWERS,
    ASKING,
    OPEN,
    OUTCOME,
    REQUESTS,
    SILENT,
    UNSERVED,
    Answer,
    Asking,
    Outcome,
    call_key,
    call_of,
    client_of,
    is_cancel,
    is_disconnect,
    silent_at,
)
from flux_trio.judge.views.presence import ARRIVAL, SERVES, Arrival
from flux_trio.messages import Errno, Event, Request, service_of, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import CLIENT, Record

RULES: Final = Rules()

RESPONSES: Final = sent("response", ANY_TOPIC)
ERRORS: Final = sent("response", ANY_TOPIC, mark=ERROR)
TEXT_MAX: Final = 80


# --- what a request is


@RULES.by(ASKING, "6.request.2", REQUESTS)
def a_request_has_a_topic(asking: Asking, _record: Record, _seen: Seen) -> Finding:
    is_named = bool(asking.topic) and "." in asking.topic.strip(".")
    return is_named or Broken(f"expected a topic service.method, got {asking.topic!r}")


@RULES.by(ASKING, "invariant.payload-is-object", REQUESTS, sent("event", ANY_TOPIC))
def payloads_are_objects(asking: Asking | None, record: Record, _seen: Seen) -> Finding:
    if asking is not None and asking.payload is dict:
        return True
    found = message(record)
    assert isinstance(found, (Request, Event))
    if found.payload is None or found.topic == topics.LOG_APPEND:
        return None
    return isinstance(found.payload, dict) or Broken(
        f"{found.topic}: expected an object as payload, got {found.payload!r:.80}"
    )


@RULES.by(ASKING, "6.matchtag.3", REQUESTS, needs_headers=True)
def no_matchtag_without_response(asking: Asking, record: Record, _seen: Seen) -> Finding:
    if not asking.is_silent:
        return None
    if not asking.has_matchtag:
        return True
    text = f"{asking.topic} wants no response and has matchtag {request_of(record).matchtag}"
    return Broken(f"{text}; expected 0")


@RULES.by(ASKING, "6.matchtag.4", REQUESTS, views=[OPEN], needs_headers=True)
def matchtags_of_open_calls_are_not_reused(asking: Asking, record: Record, seen: Seen) -> Finding:
    if not asking.has_matchtag or asking.is_silent:
        return None
    if not asking.is_reusing:
        return True
    found, call = request_of(record), call_of(record, seen)
    assert call is not None
    text = f"matchtag {found.matchtag} of {found.sender} is in use by {call.topic}"
    return Broken(text, (call.n,))


# --- what a response answers


@RULES.by(ANSWER, "6.response.1", ANSWERS, views=[OPEN], needs_headers=True)
def a_response_has_topic_and_matchtag_of_a_request(
    answer: Answer, record: Record, seen: Seen
) -> Finding:
    if not answer.has_matchtag or answer.is_late or answer.is_crossing:
        return None
    if answer.is_of_topic:
        return True
    found, call = response_of(record), call_of(record, seen)
    asked = f"that matchtag is of {call.topic}" if call else "nothing was asked with that matchtag"
    text = f"response {found.topic} to {client_of(record)}, matchtag {found.matchtag}: {asked}"
    return Broken(text, (call.n,) if call else ())


@RULES.by(ANSWER, "6.matchtag.1", ANSWERS, views=[OPEN], needs_headers=True)
def the_matchtag_is_echoed(answer: Answer, record: Record, seen: Seen) -> Finding:
    if not answer.has_matchtag or answer.is_late or answer.is_crossing or answer.is_asked:
        return answer.has_matchtag and answer.is_asked
    found = response_of(record)
    for (client, matchtag), other in seen.all(OPEN).items():
        if client == client_of(record) and other.topic == found.topic:
            text = f"{found.topic}: matchtag {found.matchtag}, but {client} asked with {matchtag}"
            return Broken(text, (other.n,))
    return None


@RULES.by(ANSWER, "6.request.1", ANSWERS, views=[OPEN], needs_headers=True)
def a_response_is_of_one_request(answer: Answer, record: Record, seen: Seen) -> Finding:
    if not answer.is_asked:
        return None
    if answer.is_asked_once:
        return True
    call = call_of(record, seen)
    assert call is not None
    text = f"{call.topic}: {call.asked} requests with matchtag {call_key(record)[1]} are open"
    return Broken(f"{text}: this could answer any of them", (call.n,))


@RULES.by(ANSWER, "3.routing.4", ANSWERS, needs_headers=True)
def a_response_comes_to_who_asked(answer: Answer, record: Record, _seen: Seen) -> Finding:
    if not answer.is_addressed:
        return None
    if answer.is_here:
        return True
    text = f"the response is for {client_of(record)}, and {record.party} got it"
    return Broken(f"{response_of(record).topic}: {text}", (record.ref,))


# --- success and failure


@RULES.by(OUTCOME, "6.response.3", RESPONSES)
def failure_has_an_errnum_and_text_or_nothing(
    outcome: Outcome, _record: Record, _seen: Seen
) -> Finding:
    topic, errnum = outcome.topic, outcome.errnum
    if not errnum:
        return None
    if errnum < 0:
        return Broken(f"{topic}: expected a positive errnum, got {errnum}")
    return outcome.payload is not dict or Broken(
        f"{topic}: errnum {errnum} with an object as payload; expected text"
    )


@RULES.judge("6.response.4", ERRORS)
def error_text_is_one_short_line(record: Record, _seen: Seen) -> Finding:
    found = response_of(record)
    if not found.error_text or not found.errnum:
        return None
    if "\n" in found.error_text or "\r" in found.error_text:
        return Broken(f"{found.topic}: the error text has line terminators")
    if len(found.error_text) < TEXT_MAX:
        return True
    length = len(found.error_text)
    text = f"{found.topic}: the error text has {length} characters, not under {TEXT_MAX}"
    return Broken(f"{text}: {found.error_text[:40]!r}...")


# --- requests that want no response


def _is_answered_though_silent(record: Record, seen: Seen, what: str) -> Finding:
    n = silent_at(record, seen)
    if n is None:
        return None
    text = f"{response_of(record).topic}: {what} wants no response and got one"
    return Broken(text, (n,), party=record.party)


def _is_silent(record: Record) -> bool:
    found = message(record)
    return isinstance(found, Request) and bool(found.flags & NORESPONSE)


@RULES.by(
    ASKING,
    "6.request.5",
    REQUESTS,
    while_live(SILENT, RESPONSES),
    views=[SILENT],
    needs_headers=True,
)
def services_keep_silent_when_asked_to(
    asking: Asking | None, record: Record, seen: Seen
) -> Finding:
    if asking is not None:
        return asking.is_silent and asking.is_served
    return None if record.party == BROKER else _is_answered_though_silent(record, seen, "a request")


@RULES.by(ASKING, "3.routing.3", REQUESTS, ERRORS, views=[SILENT], needs_headers=True)
def the_broker_keeps_silent_when_asked_to(
    asking: Asking | None, record: Record, seen: Seen
) -> Finding:
    if asking is not None:
        return asking.is_silent and not asking.is_served
    return _is_answered_though_silent(record, seen, "a request") if record.party == BROKER else None


@RULES.judge(
    "6.cancel.2",
    sent("request", ANY_CANCEL),
    sent("response", ANY_CANCEL),
    views=[SILENT],
    needs_headers=True,
)
def cancels_are_not_answered(record: Record, seen: Seen) -> Finding:
    found = message(record)
    if isinstance(found, Request):
        if not is_cancel(found):
            return None
        return _is_silent(record) or Broken(f"{found.topic} has no noresponse flag")
    return _is_answered_though_silent(record, seen, "a cancel")


# --- the way of a message


@RULES.by(ARRIVAL, "3.routing.1", received("request", ANY_TOPIC), views=[SERVES])
def the_service_is_the_topic_up_to_its_first_period(
    arrival: Arrival, record: Record, seen: Seen
) -> Finding:
    if not arrival.is_served:
        return None
    if arrival.is_here:
        return True
    topic = request_of(record).topic
    service = service_of(topic)
    holder = seen.at(SERVES, service)
    if holder == CLIENT or not seen.facts.has_come(holder):
        return None  # it may have left: nobody knows what it has called
    text = f"{topic} was delivered to {record.party}, but {service} is served by {holder}"
    return Broken(text, (record.ref,))


def _dropped(seen: Seen) -> list[Broken]:
    return [
        Broken(f"{topic}, for which there is no service, was not answered", (n,))
        for (_client, topic, _matchtag), n in seen.all(UNSERVED).items()
    ]


def _unserved_at(record: Record, seen: Seen) -> int | None:
    found = response_of(record)
    n: int | None = seen.at(UNSERVED, (client_of(record), found.topic, found.matchtag))
    return n


@RULES.judge("3.routing.2", ERRORS, views=[UNSERVED], needs_headers=True, debts=_dropped)
def what_nobody_serves_is_answered(record: Record, seen: Seen) -> Finding:
    return _unserved_at(record, seen) is not None


@RULES.judge("6.errors.1", ERRORS, views=[UNSERVED], needs_headers=True)
def what_nobody_serves_is_enosys(record: Record, seen: Seen) -> Finding:
    n = _unserved_at(record, seen)
    if n is None:
        return None
    if errnum(record) in (Errno.ENOSYS, Errno.EHOSTUNREACH):
        return True
    text = f"{response_of(record).topic}, for which there is no service: expected error "
    return Broken(f"{text}{int(Errno.ENOSYS)} (ENOSYS), got {errnum(record)}", (n,))


@RULES.by(ANSWER, "6.request.3", ANSWERS, views=[OPEN], needs_headers=True)
def nodeid_any_reaches_the_service(answer: Answer, record: Record, seen: Seen) -> Finding:
    if not answer.is_anywhere:
        return None
    if answer.errnum != Errno.EHOSTUNREACH:
        return True
    call = call_of(record, seen)
    assert call is not None
    text = f"{call.topic}, which any node may serve, got error {int(Errno.EHOSTUNREACH)}"
    return Broken(f"{text} (EHOSTUNREACH)", (call.n,), party=record.party)


def _pairs_of_gone(record: Record, seen: Seen) -> Iterable[tuple[Any, None]]:
    found = message(record)
    gone = found.sender if isinstance(found, Request) and is_disconnect(found) else None
    return [(key, None) for key in seen.all(ORDER) if gone in key] if gone else []


@once
def _ends_of(record: Record) -> tuple[str, str]:
    """A response's sender is known by its service: a trace does not say it otherwise."""
    found: Any = record.message
    if type(found) is Request:
        return (found.routes[0] if found.routes else "", record.party)
    return (_servers_of(found.topic), record.party)


@functools.lru_cache(maxsize=1024)
def _servers_of(topic: str) -> str:
    return f"{service_of(topic)}.*"


ORDER: Final = view(
    "order",
    received("request", ANY_TOPIC),
    received("response", ANY_TOPIC),
    key=_ends_of,
    parts=_pairs_of_gone,
    many=sent("request", ANY_DISCONNECT),
    fold=lambda _old, _part, record, _seen: record.ref or None,  # a send has none
    state=Place,
)
"""By sender and receiver: the record of the send of the last message that was received."""


@RULES.judge(
    "3.routing.5",
    received("request", ANY_TOPIC),
    received("response", ANY_TOPIC),
    views=[ORDER],
    needs_crossing=True,
)
def messages_of_two_come_in_order(record: Record, seen: Seen) -> Finding:
    ends = _ends_of(record)
    last = seen.states[ORDER].get(ends)
    if last is None or not record.ref:
        return None
    if last < record.ref:
        return True
    sender, receiver = ends
    text = f"{receiver} takes up what {sender} has sent, before what it took up last"
    return Broken(text, (last,))
