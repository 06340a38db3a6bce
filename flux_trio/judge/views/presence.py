"""Who is there and who leaves: the server of each service, the clients that are gone, the modules
that left while they waited, and those that were asked to leave.

Who was asked to leave answers no more than that it is going.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.engine.selector import (
    ANY_DISCONNECT,
    ANY_TOPIC,
    RECV,
    noted,
    payload,
    received,
    request_of,
    sent,
)
from flux_trio.judge.engine.view import Live, Mark, Place, Seen, Trait, View, view
from flux_trio.judge.views.calls import (
    DROP,
    DROPPED,
    ENDS,
    OPEN,
    client_of,
    is_disconnect,
    is_waiting,
)
from flux_trio.messages import Request, service_of, topics
from flux_trio.trace import Kind, Record


class Arrival(Live, frozen=True, gc=False):
    """The properties of a request when a service receives it."""

    is_served: bool
    """Whether a peer has received requests to this service before."""
    is_here: bool
    """Whether the peer that receives this request is the one that received the earlier ones."""
    is_of_gone: bool
    """Whether the request comes from the client whose disconnect the service received last."""


def _arrival(record: Record, seen: Seen) -> Arrival:
    found: Any = record.message
    service = service_of(found.topic)
    states = seen.states
    holder, gone = states[SERVES].get(service), states[GONE].get(service)
    is_of_gone = gone is not None and gone[0] == found.sender
    return Arrival(holder is not None, holder == record.party, is_of_gone)


def _serving(record: Record, seen: Seen) -> Iterable[tuple[str, str | None]]:
    found = record.message
    if found is None:
        content = payload(record)
        gone = content.get("module") if content.get("what") in ENDS else None
        return [(key, None) for key, party in seen.all(SERVES).items() if party == gone]
    assert isinstance(found, Request)
    if record.kind == RECV:
        return [(service_of(found.topic), record.party)]
    if not is_disconnect(found):
        return []
    return [(key, None) for key, party in seen.all(SERVES).items() if party == found.sender]


def _gone(record: Record, _seen: Seen) -> Iterable[tuple[Any, Any]]:
    found = request_of(record)
    is_gone = (found.sender, record.n) if is_disconnect(found) else None
    return [(service_of(found.topic), is_gone)]


ARRIVAL: Final = Trait("arrival", tuple(received("request", ANY_TOPIC)), _arrival, lambda: _PLACES)
ELSEWHERE: Final = Mark(ARRIVAL, lambda arrival: not arrival.is_here)
COME_BACK: Final = Mark(ARRIVAL, lambda arrival: arrival.is_of_gone)

SERVES: Final = view(
    "serves",
    received("request", ANY_TOPIC, mark=ELSEWHERE),
    sent("request", ANY_DISCONNECT),
    noted(Kind.MODULE),
    parts=_serving,
    fold=lambda _old, party, _record, _seen: party,
)
"""By service name: the peer that receives its requests."""

GONE: Final = view(
    "gone",
    received("request", ANY_DISCONNECT),
    received("request", ANY_TOPIC, mark=COME_BACK),
    parts=_gone,
    fold=lambda _old, gone, _record, _seen: gone,
    state=tuple[str, Place],
)
"""By service: the last disconnected client and the record, until it sends a request again."""

_PLACES: Final[tuple[View, ...]] = (SERVES, GONE)


def _cut_off(record: Record, seen: Seen) -> Iterable[tuple[str, Any]]:
    if record.message is None:
        return [(str(payload(record).get("module")), False)]
    client = getattr(record.message, "sender", "") or client_of(record)
    if record.kind == DROP and record.party != client:
        return []  # the client is there
    return [(client, True)] if is_waiting(seen, client) else []


CUT_OFF: Final = view(
    "cut off",
    DROPPED,
    sent("request", ANY_DISCONNECT),
    noted(Kind.MODULE),
    parts=_cut_off,
    fold=lambda _was, is_cut, _record, _seen: is_cut or None,
    state=bool,
    reads=(OPEN,),
)
"""By module: whether it has left while it waited for an answer."""


# --- modules that were asked to leave

SHUTDOWN: Final = "*.shutdown"


def _module(record: Record) -> str:
    if record.message is None:
        return str((record.data or {}).get("module"))
    is_first = getattr(record.message, "topic", "") in topics.FIRST_REQUESTS
    return record.party if is_first else record.peer


def _fold_asked_to_leave(_n: int | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    topic = getattr(record.message, "topic", "")
    return record.n if topic and topic not in topics.FIRST_REQUESTS else None


SHUTTING_DOWN: Final = view(
    "shutting down",
    sent("request", SHUTDOWN, *topics.FIRST_REQUESTS),
    noted(Kind.MODULE),
    key=_module,
    fold=_fold_asked_to_leave,
)
"""By module: the record at which it was asked to leave, until it comes again."""


def when_leaving(record: Record, seen: Seen) -> str:
    """Return words for a text about an answer: whether its sender had been asked to leave."""
    return " after it was asked to leave" if seen.at(SHUTTING_DOWN, record.party) else ""
