"""RFC 6 and RFC 3: requests, the responses that answer them, and the way of both.

Matchtags, flags and routes are headers: a trace that does not show them exercises none of it. Left
out: how messages are framed as bytes (RFC 3), which no trace shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.conformance.calls import (
    ENDED,
    GONE,
    OPEN,
    SERVES,
    SILENT,
    UNSERVED,
    call_key,
    call_of,
    client_of,
    ended_at,
    is_disconnect,
    silent_at,
)
from flux_trio.conformance.leg import ANY_CANCEL, ANY_DISCONNECT, ERROR, STREAMED, UNTAGGED, once
from flux_trio.conformance.rule import (
    ANY_TOPIC,
    ODD,
    PLAIN,
    Broken,
    Rules,
    Said,
    Seen,
    errnum,
    message,
    received,
    sent,
    view,
    while_live,
)
from flux_trio.messages import Errno, Event, Request, Response, service_of
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import Record

RULES: Final = Rules()

PLAIN_REQUESTS: Final = sent("request", ANY_TOPIC, mark=PLAIN)
ODD_REQUESTS: Final = sent("request", ANY_TOPIC, mark=ODD)
PLAIN_ANSWERS: Final = [
    *received("response", ANY_TOPIC, mark=PLAIN),
    *received("response", ANY_TOPIC, mark=STREAMED),
]
UNTAGGED_ANSWERS: Final = received("response", ANY_TOPIC, mark=UNTAGGED)
UNTAGGED_REQUESTS: Final = sent("request", ANY_TOPIC, mark=UNTAGGED)
ODD_ANSWERS: Final = received("response", ANY_TOPIC, mark=ODD)
RESPONSES: Final = sent("response", ANY_TOPIC)
ERRORS: Final = sent("response", ANY_TOPIC, mark=ERROR)
TEXT_MAX: Final = 80
BROKER: Final = "broker"


def _response(record: Record) -> Response:
    found = message(record)
    assert isinstance(found, Response)
    return found


def _request(record: Record) -> Request:
    found = message(record)
    assert isinstance(found, Request)
    return found


# --- what a request is


@RULES.judge("6.request.2", ODD_REQUESTS, kept_on=[*PLAIN_REQUESTS, *UNTAGGED_REQUESTS])
def a_request_has_a_topic(record: Record, _seen: Seen) -> Said:
    topic = _request(record).topic
    is_named = bool(topic) and "." in topic.strip(".")
    return is_named or Broken(f"expected a topic service.method, got {topic!r}")


@RULES.judge(
    "3.payload.1",
    ODD_REQUESTS,
    sent("event", ANY_TOPIC),
    kept_on=[*PLAIN_REQUESTS, *UNTAGGED_REQUESTS],
)
def payloads_are_objects(record: Record, _seen: Seen) -> Said:
    found = message(record)
    assert isinstance(found, (Request, Event))
    if found.payload is None:
        return None
    return isinstance(found.payload, dict) or Broken(
        f"{found.topic}: expected an object as payload, got {found.payload!r:.80}"
    )


@RULES.judge("6.matchtag.3", ODD_REQUESTS, needs_headers=True)
def no_matchtag_without_response(record: Record, _seen: Seen) -> Said:
    found = _request(record)
    if not found.flags & NORESPONSE:
        return None
    if not found.matchtag:
        return True
    text = f"{found.topic} wants no response and has matchtag {found.matchtag}; expected 0"
    return Broken(text)


@RULES.judge("6.matchtag.4", ODD_REQUESTS, views=[OPEN], needs_headers=True, kept_on=PLAIN_REQUESTS)
def matchtags_of_open_calls_are_not_reused(record: Record, seen: Seen) -> Said:
    found = _request(record)
    if not found.matchtag or found.flags & NORESPONSE:
        return None
    call = call_of(record, seen)
    if call is None:
        return True
    text = f"matchtag {found.matchtag} of {found.sender} is in use by {call.topic}"
    return Broken(text, (call.n,))


# --- what a response answers


@RULES.judge(
    "6.response.1", ODD_ANSWERS, views=[OPEN, ENDED], needs_headers=True, kept_on=PLAIN_ANSWERS
)
def a_response_has_topic_and_matchtag_of_a_request(record: Record, seen: Seen) -> Said:
    found, call = _response(record), call_of(record, seen)
    if not found.matchtag or (call is None and ended_at(record, seen)):
        return None
    if call is not None and call.topic == found.topic:
        return True
    asked = f"that matchtag is of {call.topic}" if call else "nothing was asked with that matchtag"
    text = f"response {found.topic} to {client_of(record)}, matchtag {found.matchtag}: {asked}"
    return Broken(text, (call.n,) if call else ())


@RULES.judge(
    "6.matchtag.1", ODD_ANSWERS, views=[OPEN, ENDED], needs_headers=True, kept_on=PLAIN_ANSWERS
)
def the_matchtag_is_echoed(record: Record, seen: Seen) -> Said:
    found, call = _response(record), call_of(record, seen)
    if not found.matchtag or call is not None or ended_at(record, seen):
        return call is not None
    for (client, matchtag), other in seen.all(OPEN).items():
        if client == client_of(record) and other.topic == found.topic:
            text = f"{found.topic}: matchtag {found.matchtag}, but {client} asked with {matchtag}"
            return Broken(text, (other.n,))
    return None


@RULES.judge("6.request.1", ODD_ANSWERS, views=[OPEN], needs_headers=True, kept_on=PLAIN_ANSWERS)
def a_response_is_of_one_request(record: Record, seen: Seen) -> Said:
    call = call_of(record, seen)
    if call is None:
        return None
    if call.asked == 1:
        return True
    text = f"{call.topic}: {call.asked} requests with matchtag {call_key(record)[1]} are open"
    return Broken(f"{text}: this could answer any of them", (call.n,))


@RULES.judge(
    "3.routing.4", ODD_ANSWERS, UNTAGGED_ANSWERS, needs_headers=True, kept_on=PLAIN_ANSWERS
)
def a_response_comes_to_who_asked(record: Record, _seen: Seen) -> Said:
    to = client_of(record)
    if not to:
        return None
    if to == record.party:
        return True
    topic = _response(record).topic
    return Broken(f"{topic}: the response is for {to}, and {record.party} got it", (record.ref,))


# --- success and failure


@RULES.judge(
    "6.response.2",
    sent("response", ANY_TOPIC, mark=ODD),
    kept_on=[
        leg
        for mark in (PLAIN, STREAMED, UNTAGGED)
        for leg in sent("response", ANY_TOPIC, mark=mark)
    ],
)
def success_has_an_object_or_nothing(record: Record, _seen: Seen) -> Said:
    found = _response(record)
    if found.errnum:
        return None
    return not isinstance(found.payload, str) or Broken(
        f"{found.topic}: errnum 0 with text {found.payload!r:.80}; expected an errnum"
    )


@RULES.judge("6.response.3", ERRORS)
def failure_has_an_errnum_and_text_or_nothing(record: Record, _seen: Seen) -> Said:
    found = _response(record)
    if not found.errnum:
        return None
    if found.errnum < 0:
        return Broken(f"{found.topic}: expected a positive errnum, got {found.errnum}")
    return not isinstance(found.payload, dict) or Broken(
        f"{found.topic}: errnum {found.errnum} with an object as payload; expected text"
    )


@RULES.judge("6.response.4", ERRORS)
def error_text_is_one_short_line(record: Record, _seen: Seen) -> Said:
    found = _response(record)
    if not found.error_text or not found.errnum:
        return None
    if "\n" in found.error_text or "\r" in found.error_text:
        return Broken(f"{found.topic}: the error text has line terminators")
    if len(found.error_text) < TEXT_MAX:
        return True
    length = len(found.error_text)
    return Broken(f"{found.topic}: the error text has {length} characters, not under {TEXT_MAX}")


# --- requests that want no response


def _is_answered_though_silent(record: Record, seen: Seen, what: str) -> Said:
    n = silent_at(record, seen)
    if n is None:
        return None
    text = f"{_response(record).topic}: {what} wants no response and got one"
    return Broken(text, (n,), party=record.party)


def _is_silent(record: Record) -> bool:
    found = message(record)
    return isinstance(found, Request) and bool(found.flags & NORESPONSE)


@RULES.judge(
    "6.request.5",
    ODD_REQUESTS,
    while_live(SILENT, RESPONSES),
    views=[SILENT],
    needs_headers=True,
)
def services_keep_silent_when_asked_to(record: Record, seen: Seen) -> Said:
    if isinstance(record.message, Request):
        return _is_silent(record) and bool(record.peer)
    return None if record.party == BROKER else _is_answered_though_silent(record, seen, "a request")


@RULES.judge("3.routing.3", ODD_REQUESTS, ERRORS, views=[SILENT], needs_headers=True)
def the_broker_keeps_silent_when_asked_to(record: Record, seen: Seen) -> Said:
    if isinstance(record.message, Request):
        return _is_silent(record) and not record.peer
    return _is_answered_though_silent(record, seen, "a request") if record.party == BROKER else None


@RULES.judge(
    "6.cancel.2",
    sent("request", ANY_CANCEL),
    sent("response", ANY_CANCEL),
    views=[SILENT],
    needs_headers=True,
)
def cancels_are_not_answered(record: Record, seen: Seen) -> Said:
    found = message(record)
    if isinstance(found, Request):
        return _is_silent(record) or Broken(f"{found.topic} has no noresponse flag")
    return _is_answered_though_silent(record, seen, "a cancel")


# --- the way of a message


@RULES.judge(
    "3.routing.1",
    received("request", ANY_TOPIC, mark=ODD),
    views=[SERVES, GONE],
    kept_on=received("request", ANY_TOPIC, mark=PLAIN),
)
def the_service_is_the_topic_up_to_its_first_period(record: Record, seen: Seen) -> Said:
    found = _request(record)
    holder = seen.at(SERVES, service_of(found.topic))
    if holder is None:
        return None
    if holder == record.party:
        return True
    text = f"{found.topic} was delivered to {record.party}, but {service_of(found.topic)}"
    return Broken(f"{text} is served by {holder}", (record.ref,))


def _dropped(seen: Seen) -> list[Broken]:
    return [
        Broken(f"{topic}, for which there is no service, was not answered", (n,))
        for (_client, topic, _matchtag), n in seen.all(UNSERVED).items()
    ]


def _unserved_at(record: Record, seen: Seen) -> int | None:
    found = _response(record)
    n: int | None = seen.at(UNSERVED, (client_of(record), found.topic, found.matchtag))
    return n


@RULES.judge("3.routing.2", ERRORS, views=[UNSERVED], needs_headers=True, owing=_dropped)
def what_nobody_serves_is_answered(record: Record, seen: Seen) -> Said:
    return _unserved_at(record, seen) is not None


@RULES.judge("6.errors.1", ERRORS, views=[UNSERVED], needs_headers=True)
def what_nobody_serves_is_enosys(record: Record, seen: Seen) -> Said:
    n = _unserved_at(record, seen)
    if n is None:
        return None
    if errnum(record) in (Errno.ENOSYS, Errno.EHOSTUNREACH):
        return True
    text = f"{_response(record).topic}, for which there is no service: expected error "
    return Broken(f"{text}{int(Errno.ENOSYS)} (ENOSYS), got {errnum(record)}", (n,))


@RULES.judge("6.request.3", ODD_ANSWERS, views=[OPEN], needs_headers=True, kept_on=PLAIN_ANSWERS)
def nodeid_any_reaches_the_service(record: Record, seen: Seen) -> Said:
    call = call_of(record, seen)
    if call is None or not call.is_anywhere:
        return None
    if errnum(record) != Errno.EHOSTUNREACH:
        return True
    text = f"{call.topic}, which any node may serve, got error {int(Errno.EHOSTUNREACH)}"
    return Broken(f"{text} (EHOSTUNREACH)", (call.n,), party=record.party)


def _pairs_of_gone(record: Record, seen: Seen) -> Iterable[tuple[Any, None]]:
    found = message(record)
    gone = found.sender if isinstance(found, Request) and is_disconnect(found) else None
    return [(key, None) for key in seen.all(ORDER) if gone in key] if gone else []


@once
def _ends_of(record: Record) -> tuple[str, str]:
    """A response's sender is known by its service: a trace does not say it otherwise."""
    found = message(record)
    topic = getattr(found, "topic", "")
    sender = client_of(record) if isinstance(found, Request) else f"{service_of(topic)}.*"
    return (sender, record.party)


ORDER: Final = view(
    "order",
    received("request", ANY_TOPIC),
    received("response", ANY_TOPIC),
    key=_ends_of,
    parts=_pairs_of_gone,
    many=sent("request", ANY_DISCONNECT),
    fold=lambda _old, _part, record, _seen: record.ref or None,  # a send has none
)
"""By sender and receiver: where the last message that was taken up was sent."""


@RULES.judge(
    "3.routing.5",
    received("request", ANY_TOPIC),
    received("response", ANY_TOPIC),
    views=[ORDER],
    needs_crossing=True,
)
def messages_of_two_come_in_order(record: Record, seen: Seen) -> Said:
    ends = _ends_of(record)
    last = seen.at(ORDER, ends)
    if last is None or not record.ref:
        return None
    if last < record.ref:
        return True
    sender, receiver = ends
    text = f"{receiver} takes up what {sender} has sent, before what it took up last"
    return Broken(text, (last,))
