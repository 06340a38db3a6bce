"""Views of RFC 6: open RPCs, ended streams, and cancels.

A client and a matchtag identify an RPC. It is open from the request until the client receives its
last response, or until the client's disconnect is sent. A request without a matchtag is not an RPC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from flux_trio.judge.engine.selector import (
    ANY_CANCEL,
    ANY_DISCONNECT,
    ANY_TOPIC,
    CANCEL,
    ERROR,
    OWN,
    message,
    payload,
    received,
    request_of,
    response_of,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Live, Mark, Place, Seen, Selector, Trait, view
from flux_trio.messages import NODEID_ANY, Request, Response, service_of, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import CLIENT, Kind, Record

ENDS: Final = ("removed", "crashed", "returned")  # what happened to a module that is gone
ENDED_MAX: Final = 16  # ended streams kept per client
_DISCONNECT: Final = f".{topics.DISCONNECT}"

REQUESTS: Final = sent("request", ANY_TOPIC)
ANSWERS: Final = received("response", ANY_TOPIC)
DROP: Final[str] = Kind.DROP.value
DROPPED: Final = [Selector(DROP, "response", ANY_TOPIC)]
"""Responses that no client receives: the client is gone, or the sender does not serve it."""


class Call(Live, frozen=True, gc=False):
    """An RPC whose client waits for a response."""

    n: Place
    topic: str
    is_streaming: bool
    is_anywhere: bool
    """Whether the request may be served on any node."""
    asked: int = 1
    """The number of requests that the client has sent with this matchtag."""
    routes: tuple[str, ...] = ()
    """The routes of the request. If there is a second hop, it distinguishes the client from earlier
    clients with the same name."""
    is_begun: bool = False
    """For a stream: whether its first response was sent."""

    @property
    def is_awaited(self) -> bool:
        """Whether its client may have to wait for a response before it can go on."""
        return not (self.is_streaming and self.is_begun)

    def is_answered_by(self, response: Response) -> bool:
        """Whether `response` has the topic of this call, and is for this client and not for an
        earlier one of its name.
        """
        is_of_another = len(self.routes) > 1 and response.routes != self.routes
        return response.topic == self.topic and not is_of_another


def client_of(record: Record) -> str:
    """Return the client of an RPC's message."""
    routes = getattr(record.message, "routes", ())
    return routes[0] if routes else ""


def call_key(record: Record) -> tuple[str, int]:
    """Return client and matchtag of a request or response."""
    return (client_of(record), getattr(record.message, "matchtag", 0))


def is_disconnect(request: Request) -> bool:
    """Whether the broker reports that the sender has disconnected."""
    topic = request.topic
    return topic.endswith(_DISCONNECT) and topic == service_of(topic) + _DISCONNECT


def left_open(seen: Seen, client: str, services: Sequence[str] = ()) -> list[tuple[Any, Call]]:
    """Return a client's open calls, all or those to `services`."""
    return [
        (key, call)
        for key, call in seen.all(OPEN).items()
        if key[0] == client and (not services or service_of(call.topic) in services)
    ]


def is_waiting(seen: Seen, client: str, services: Sequence[str] = ()) -> bool:
    """Return whether a client may have to wait for an answer, of any service or of `services`."""
    return any(call.is_awaited for _, call in left_open(seen, client, services))


def _call(record: Record) -> tuple[str, int] | None:
    found: Any = record.message
    if not found.matchtag or (type(found) is Request and found.flags & NORESPONSE):
        return None
    return (found.routes[0] if found.routes else "", found.matchtag)


def _calls_of_gone(record: Record, seen: Seen) -> Iterable[tuple[Any, None]]:
    found = request_of(record)
    if is_disconnect(found):
        return [(key, None) for key, _ in left_open(seen, found.sender, [service_of(found.topic)])]
    key = _call(record)
    return [] if key is None else [(key, None)]


def _fold_call(call: Call | None, _part: None, record: Record, _seen: Seen) -> Call | None:
    found = record.message
    if type(found) is Response:  # isinstance of a Struct costs several times as much
        if record.kind == DROP and record.party != client_of(record):
            return call  # a party said it that does not serve this any more: the answer comes yet
        if call is None or not call.is_answered_by(found):
            return call
        if found.ends_rpc:
            return None
        return call if call.is_begun else call.but(is_begun=True)
    if type(found) is not Request or is_disconnect(found):
        return None
    if call is not None:
        return call.but(asked=call.asked + 1)
    is_anywhere = found.nodeid == NODEID_ANY
    is_streaming = bool(found.flags & STREAMING)
    return Call(record.n, found.topic, is_streaming, is_anywhere, routes=found.routes)


OPEN: Final = view(
    "open calls",
    REQUESTS,
    ANSWERS,
    DROPPED,
    key=_call,
    parts=_calls_of_gone,
    many=sent("request", ANY_DISCONNECT),
    fold=_fold_call,
)
"""The open calls (`Call`), by client and matchtag."""


def call_of(record: Record, seen: Seen) -> Call | None:
    """Return the open call of a response, or None."""
    found: Call | None = seen.at(OPEN, call_key(record))
    return found


def _clients(record: Record, seen: Seen) -> Iterable[tuple[str, Any]]:
    found = message(record)
    if isinstance(found, Request):
        return _given_up(found, record, seen) if is_disconnect(found) else []
    call = call_of(record, seen)
    if call is None or not call.is_streaming or not getattr(found, "errnum", 0):
        return []
    return [(client_of(record), (getattr(found, "matchtag", 0), call.topic, record.n, 0))]


def _given_up(farewell: Request, record: Record, seen: Seen) -> list[tuple[str, Any]]:
    """A client ends its streams by its own disconnect: what was sent before may still come."""
    client, service = farewell.sender, service_of(farewell.topic)
    streams = [
        (client, (key[1], call.topic, record.n, record.n))
        for key, call in left_open(seen, client, [service])
        if call.is_streaming
    ]
    return [(client, None), *streams]


ENDED: Final = view(
    "ended streams",
    sent("request", ANY_DISCONNECT),
    received("response", ANY_TOPIC, mark=ERROR),
    parts=_clients,
    fold=lambda old, ended, _record, _seen: (*(old or ()), ended)[-ENDED_MAX:] if ended else None,
    state=tuple[tuple[int, str, Place, Place], ...],
    reads=(OPEN,),
)
"""By client: matchtag, topic and end of the last streams that ended with an error. Beside them, the
record up to which responses that arrive later were sent in order; 0 if none may arrive."""


def ended_at(record: Record, seen: Seen) -> int:
    """Return the record at which the stream of a response ended; 0 if it has not."""
    found = _end(record, seen)
    return 0 if found is None or found[3] else found[2]


def has_crossed(record: Record, seen: Seen) -> bool:
    """Return whether a response was sent before its client ended the stream by a disconnect."""
    found = _end(record, seen)
    return found is not None and record.ref < found[3]


def _end(record: Record, seen: Seen) -> tuple[int, str, Place, Place] | None:
    key = (getattr(record.message, "matchtag", 0), getattr(record.message, "topic", ""))
    ended = seen.at(ENDED, client_of(record)) or ()
    return next((each for each in reversed(ended) if each[:2] == key), None)


# --- requests when sent, responses when received


class Asking(Live, frozen=True, gc=False):
    """The properties of a request at its send."""

    topic: str
    payload: type
    has_matchtag: bool
    is_reusing: bool
    """Whether its matchtag is that of an open call of the same client."""
    is_silent: bool
    """Whether it wants no response."""
    is_served: bool
    """Whether a service of its name is there."""
    role: str
    """The role of the party that sends it: exec, scheduler, or "" for any other party.

    In a trace of modules all other programs are one party, of which only one has the role.
    """


def _asking(record: Record, seen: Seen) -> Asking:
    found: Any = record.message
    matchtag, routes = found.matchtag, found.routes
    key = (routes[0] if routes else "", matchtag)
    return Asking(
        found.topic,
        type(found.payload),
        matchtag != 0,
        matchtag != 0 and key in seen.states[OPEN],
        found.flags & NORESPONSE != 0,
        record.peer != "",
        "" if record.party == CLIENT else seen.facts.role_of(record.party),
    )


ASKING: Final = Trait("asking", tuple(REQUESTS), _asking, lambda: (OPEN,))
SILENTLY: Final = Mark(ASKING, lambda asking: asking.is_silent)
IN_VAIN: Final = Mark(ASKING, lambda asking: not asking.is_served)


class Answer(Live, frozen=True, gc=False):
    """The properties of a response when a client receives it, and those of the client's call with
    the same matchtag.
    """

    errnum: int
    has_matchtag: bool
    has_flag: bool
    """Whether the response has the streaming flag."""
    is_addressed: bool
    """Whether the response has routes, which say to whom it goes."""
    is_here: bool
    """Whether the routes lead to the client that receives it."""
    is_late: bool
    """Whether there is no such call any more, since it was a stream that has ended."""
    is_asked: bool = False
    """Whether the client has an open call with this matchtag."""
    is_of_topic: bool = False
    """Whether the response has the topic of the call."""
    is_asked_once: bool = False
    """Whether only one request has this matchtag."""
    is_anywhere: bool = False
    """Whether the call may be served on any node."""
    is_streaming: bool = False
    """Whether the call is a streaming RPC."""
    is_crossing: bool = False
    """Whether the client ended the stream by its own disconnect after the response was sent."""


def _answer(record: Record, seen: Seen) -> Answer:
    found: Any = record.message
    matchtag, errnum, routes = found.matchtag, found.errnum, found.routes
    client = routes[0] if routes else ""
    is_here, has_flag = client == record.party, found.flags & STREAMING != 0
    call: Call | None = seen.states[OPEN].get((client, matchtag)) if matchtag else None
    if call is None:
        is_late = matchtag != 0 and ended_at(record, seen) != 0
        is_crossing = matchtag != 0 and not is_late and has_crossed(record, seen)
        return Answer(
            errnum, matchtag != 0, has_flag, client != "", is_here, is_late, is_crossing=is_crossing
        )
    return Answer(
        errnum,
        True,
        has_flag,
        client != "",
        is_here,
        False,
        True,
        call.topic == found.topic,
        call.asked == 1,
        call.is_anywhere,
        call.is_streaming,
    )


ANSWER: Final = Trait("answer", tuple(ANSWERS), _answer, lambda: (OPEN, ENDED))


class Outcome(Live, frozen=True, gc=False):
    """The properties of a response at its send."""

    topic: str
    errnum: int
    payload: type


def _outcome(record: Record, _seen: Seen) -> Outcome:
    found: Any = record.message
    return Outcome(found.topic, found.errnum, type(found.payload))


OUTCOME: Final = Trait("outcome", tuple(sent("response", ANY_TOPIC)), _outcome)


# --- requests without response, and requests without a service


def _silent(record: Record, _seen: Seen) -> Iterable[tuple[Any, None]]:
    found = request_of(record)
    if found.matchtag and not found.flags & NORESPONSE:
        return []
    return [((found.sender, found.topic, found.matchtag), None)]


def _fold_silent(_n: int | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    found = message(record)
    is_silent = isinstance(found, Request) and found.flags & NORESPONSE and not is_disconnect(found)
    return record.n if is_silent else None


SILENT: Final = view(
    "without response",
    sent("request", ANY_TOPIC, mark=SILENTLY),
    while_live(OWN, REQUESTS),
    parts=_silent,
    fold=_fold_silent,
    reads=(OPEN,),
)
"""By client, topic and matchtag: the last request, if it has the noresponse flag."""


def silent_at(record: Record, seen: Seen) -> int | None:
    """Return the record of a response's request if that has the noresponse flag."""
    found = response_of(record)
    n: int | None = seen.at(SILENT, (client_of(record), found.topic, found.matchtag))
    return n


def _unserved(record: Record, _seen: Seen) -> Iterable[tuple[Any, None]]:
    found = message(record)
    if isinstance(found, Request) and (record.peer or found.flags & NORESPONSE):
        return []
    return [((client_of(record), getattr(found, "topic", ""), getattr(found, "matchtag", 0)), None)]


UNSERVED: Final = view(
    "unserved",
    sent("request", ANY_TOPIC, mark=IN_VAIN),
    while_live(OWN, REQUESTS, sent("response", ANY_TOPIC)),
    parts=_unserved,
    fold=lambda _n, _part, record, _seen: record.n if isinstance(record.message, Request) else None,
    state=Place,
)
"""The record of each open request for which no service was there, by client, topic and matchtag."""


# --- cancels


def _canceled(record: Record, seen: Seen) -> Iterable[tuple[Any, Any]]:
    found = message(record)
    if not isinstance(found, Request):
        ends = isinstance(found, Response) and found.ends_rpc
        return [(call_key(record), None)] if ends else []
    if is_disconnect(found):
        gone = [key for key in seen.all(CANCELS) if key[0] == found.sender]
        return [(key, None) for key in gone]
    key = (found.sender, payload(record).get("matchtag"))
    if not is_cancel(found) or type(key[1]) is not int:
        return []
    call: Call | None = seen.at(OPEN, key)
    is_open = call is not None and service_of(call.topic) == service_of(found.topic)
    return [(key, record.n)] if is_open else []


def is_cancel(request: Request) -> bool:
    """Whether a request cancels another one (RFC 6, Cancellation).

    A service may have other methods whose names end so: a cancel names a matchtag, or ends a
    method that is known to stream.
    """
    method, is_so_named = request.topic.removesuffix(CANCEL), request.topic.endswith(CANCEL)
    content = request.payload if isinstance(request.payload, dict) else {}
    return is_so_named and ("matchtag" in content or method in topics.STREAMS)


CANCELS: Final = view(
    "cancels",
    received("request", ANY_CANCEL, ANY_DISCONNECT),
    while_live(OWN, sent("response", ANY_TOPIC)),
    parts=_canceled,
    fold=lambda _old, n, _record, _seen: n,
    state=Place,
    reads=(OPEN,),
)
"""By client and matchtag: the record at which the service received an open call's cancel."""
