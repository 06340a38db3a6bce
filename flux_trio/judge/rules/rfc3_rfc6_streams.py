"""RFC 6: streams of responses, cancellation, and disconnected clients."""

from __future__ import annotations

from typing import Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ANY_CANCEL,
    ANY_DISCONNECT,
    ANY_TOPIC,
    BROKER,
    ERROR,
    errnum,
    message,
    noted,
    payload,
    received,
    response_of,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.calls import (
    ANSWER,
    ANSWERS,
    CANCELS,
    ENDS,
    OPEN,
    Answer,
    call_key,
    call_of,
    client_of,
    ended_at,
    is_cancel,
    left_open,
)
from flux_trio.judge.views.presence import GONE, SERVES
from flux_trio.judge.views.resources import AS_RECEIVED
from flux_trio.judge.views.scheduling import LINK, link_of
from flux_trio.messages import Errno, Request, service_of, topics
from flux_trio.trace import KILLED, Kind, Record

RULES: Final = Rules()

STREAMS: Final = (topics.SCHED_HELLO, topics.RESOURCE_ACQUIRE)
RESPONSES: Final = sent("response", ANY_TOPIC)
ERRORS: Final = sent("response", ANY_TOPIC, mark=ERROR)


# --- streaming


@RULES.judge("6.request.4", sent("request", *STREAMS), needs_headers=True)
def requests_for_streams_have_the_flag(record: Record, _seen: Seen) -> Finding:
    found = message(record)
    if isinstance(found, Request) and found.is_streaming:
        return True
    return Broken(f"{getattr(found, 'topic', '')} has no streaming flag")


@RULES.judge("6.streaming.1", received("response", *STREAMS), views=[OPEN], needs_headers=True)
def requests_without_the_flag_are_refused(record: Record, seen: Seen) -> Finding:
    call = call_of(record, seen)
    if call is None or call.is_streaming:
        return None
    if errnum(record) in (Errno.EPROTO, Errno.ENOSYS):
        return errnum(record) == Errno.EPROTO
    text = f"{call.topic} without the streaming flag: expected error {int(Errno.EPROTO)} (EPROTO)"
    return Broken(f"{text}, got {errnum(record)}", (call.n,))


def _unended(seen: Seen) -> list[Broken]:
    """An acquire goes on; of streams that end, RFC 27 has hello."""
    return [
        Broken(f"{call.topic} of {client} was not ended with an error response", (call.n,))
        for (client, _), call in seen.all(OPEN).items()
        if call.topic == topics.SCHED_HELLO and call.is_streaming
    ]


@RULES.by(ANSWER, "6.streaming.2", ANSWERS, needs_headers=True, debts=_unended)
def a_stream_ends_once(answer: Answer, record: Record, seen: Seen) -> Finding:
    if answer.is_asked:
        return answer.is_streaming and answer.errnum != 0
    if not answer.is_late or not answer.has_matchtag:
        return None
    text = f"{response_of(record).topic}: a response after the error that ended the stream"
    return Broken(text, (ended_at(record, seen),))


@RULES.by(ANSWER, "6.streaming.4", ANSWERS, needs_headers=True, views=[SERVES])
def responses_of_a_stream_have_the_flag(answer: Answer, record: Record, seen: Seen) -> Finding:
    if not answer.is_streaming or answer.errnum:
        return None
    if answer.has_flag:
        return True
    call = call_of(record, seen)
    assert call is not None
    text = f"{call.topic}: a response of the stream has no streaming flag"
    server = seen.at(SERVES, service_of(call.topic)) or ""
    return Broken(text, (call.n,), party=server)


@RULES.judge(
    "6.streaming.3",
    noted(Kind.MODULE),
    sent("request", topics.SCHED_READY),
    views=[LINK, AS_RECEIVED],
    needs_crossing=True,
)
def enodata_is_no_failure(record: Record, seen: Seen) -> Finding:
    """ENODATA ends a stream and is no failure. Only a scheduler is judged: it must not end by
    itself when all that it has just received is the ENODATA that ends the answers to its hello.
    """
    link = link_of(seen)
    if isinstance(record.message, Request):
        return link.hello_done > 0
    content = payload(record)
    if content.get("module") != seen.facts.scheduler or content.get("what") == "removed":
        return None
    if KILLED in str(content.get("reason", "")):
        return None
    if (
        not link.hello_done > max(link.ready_sent, link.hello_sent)
        or content.get("what") not in ENDS
    ):
        return None
    had = seen.at(AS_RECEIVED, content["module"])
    has_reason = had is not None and (had.failed or had.unreadable)
    if has_reason or seen.knew(str(content["module"]), link.hello_done):
        return None
    text = f"{content['module']} left after ENODATA, which only says that hello is complete"
    return Broken(text, (link.hello_done,), party=str(content["module"]))


# --- cancellation


@RULES.judge("6.cancel.1", sent("request", ANY_CANCEL), ERRORS, views=[OPEN, CANCELS])
def cancels_name_the_request(record: Record, seen: Seen) -> Finding:
    found = message(record)
    if isinstance(found, Request):
        if not is_cancel(found):
            return None
        matchtag = payload(record).get("matchtag")
        is_named = type(matchtag) is int
        return is_named or Broken(f"{found.topic}: expected an integer matchtag, got {matchtag!r}")
    call = call_of(record, seen)
    if errnum(record) != Errno.ECANCELED or call is None or not call.is_streaming:
        return None
    if seen.at(CANCELS, call_key(record)):
        return True
    return Broken(f"{call.topic} of {client_of(record)} is canceled, but not by it", (call.n,))


@RULES.judge("6.matchtag.2", ERRORS, views=[OPEN, CANCELS], needs_headers=True)
def a_cancel_is_of_its_sender(record: Record, seen: Seen) -> Finding:
    """A cancel ends the stream of its sender, and no stream of another client with the same
    matchtag.
    """
    call, (client, matchtag) = call_of(record, seen), call_key(record)
    if errnum(record) != Errno.ECANCELED or call is None:
        return None
    same = [
        (other, each)
        for (other, tag), each in seen.all(OPEN).items()
        if tag == matchtag and other != client
    ]
    if seen.at(CANCELS, (client, matchtag)):
        return bool(same)
    for other, _ in same:
        if n := seen.at(CANCELS, (other, matchtag)):
            text = f"{call.topic} of {client} is canceled, but {other} asked for it"
            return Broken(f"{text}, with the same matchtag", (n,))
    return None


def _uncanceled(seen: Seen) -> list[Broken]:
    """Requests that go on; the end of a stream may have crossed its cancel."""
    calls = seen.all(OPEN)
    return [
        Broken(f"the request of {key[0]} with matchtag {key[1]} was canceled, and goes on", (n,))
        for key, n in seen.all(CANCELS).items()
        if key in calls and calls[key].n < n
    ]


@RULES.judge(
    "6.cancel.3",
    while_live(CANCELS, RESPONSES),
    views=[CANCELS, OPEN],
    needs_headers=True,
    debts=_uncanceled,
)
def what_is_canceled_ends_with_ecanceled(record: Record, seen: Seen) -> Finding:
    n = seen.at(CANCELS, call_key(record))
    if n is None or not response_of(record).ends_rpc or not seen.knew(record.party, n):
        return n is not None and errnum(record) == Errno.ECANCELED
    if errnum(record) == Errno.ECANCELED:
        return True
    text = f"{response_of(record).topic} was canceled: expected error {int(Errno.ECANCELED)}"
    return Broken(f"{text} (ECANCELED), got {errnum(record)}", (n,))


# --- clients that are gone


@RULES.judge(
    "6.disconnect.1",
    sent("request", ANY_DISCONNECT),
    noted(Kind.MODULE),
    views=[OPEN],
    needs_headers=True,
)
def services_are_told_of_a_client_that_is_gone(record: Record, seen: Seen) -> Finding:
    """The services that a client has called get its disconnect, before the trace notes the end of
    the client's module.
    """
    found = record.message
    if isinstance(found, Request):
        return bool(left_open(seen, found.sender, [service_of(found.topic)]))
    content = payload(record)
    if content.get("what") not in ENDS:
        return None
    for _, call in left_open(seen, str(content.get("module"))):
        text = f"{content['module']} is gone, and {service_of(call.topic)}, where its {call.topic}"
        return Broken(f"{text} is open, was not sent a disconnect", (call.n,))
    return None


@RULES.judge("6.disconnect.2", while_live(GONE, RESPONSES), views=[GONE])
def who_is_gone_gets_no_response(record: Record, seen: Seen) -> Finding:
    topic = response_of(record).topic
    gone = seen.states[GONE].get(service_of(topic))
    if gone is None:
        return None
    client, n = gone
    if client != client_of(record) or record.party == BROKER:
        return True
    if not seen.knew(record.party, n):
        return None
    return Broken(f"{topic} was answered after {client} had gone", (n,))
