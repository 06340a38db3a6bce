"""Messages in the order in which one router forwarded them, as records.

A router sees each message once: it becomes a SEND and, directly after it, its RECV. Messages that
crossed on the way cannot be recognised, and matchtags, flags and userids are missing. A
`disconnect` request does not say which peer is gone; usually this follows from the peer that falls
silent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.messages import Event, Message, Request, Response, service_of, topics
from flux_trio.trace.record import Kind, Record

CLIENT: Final = "client"  # any program that is not a module
BROKER: Final = "broker"

MODULE_STATUS: Final = "module.status"
"""How a module of flux-core tells its broker that it has begun, and that it ends."""
EXITED: Final = 3
"""The status that it sends when it ends, also after an error."""

_ANSWERED_IN_ORDER: Final = {
    *(*topics.COMMITS, topics.KVS_LOOKUP, topics.JOB_SUBMIT, topics.SCHED_EXPIRATION)
}
"""Requests whose answers come in their order, so that each answer has its request."""
_ANSWERED_ALONE: Final = {
    *(topics.INGEST_SUBMIT, topics.JOB_UPDATE, topics.JOB_RAISE, topics.JOB_URGENCY)
}
"""Requests of which one may be answered before an earlier one: an answer has its request if no
other one of its client is open."""
_NUMBERED: Final = _ANSWERED_IN_ORDER | _ANSWERED_ALONE
_UNANSWERED_MAX: Final = 1024

STAMP_LAG_S: Final = 0.02
"""A router stamps a message with the time when its loop began, at most this much too early.

Events are stamped when they are posted. So an event may precede messages that the job manager sent
up to this long before it according to the stamps, but it follows messages that the job manager
received about the job.
"""


class Routed(NamedTuple):
    """One message: time in seconds, sender, receivers, and the message itself."""

    t: float
    sender: str
    receivers: tuple[str, ...]
    message: Message


class Logged(NamedTuple):
    """One event of a job's eventlog, which the job manager told of at `t`."""

    t: float
    jobid: int
    name: str
    context: dict[str, Any]
    timestamp: float
    """When it was posted, as the eventlog says; that of submit is the time of the submission."""


class Moment(NamedTuple):
    """In a trace that is still going on: it is `t`, and nothing more has come so far.

    What is SETTLED_S old is passed on then, since nothing that comes belongs before it.
    """

    t: float

    def settles(self, t: float) -> bool:
        return t <= self.t - SETTLED_S

    def settled(self) -> Moment:
        """Return the moment for a later stage, which has only got what is settled here."""
        return Moment(self.t - SETTLED_S)


Passed = Routed | Logged | Record
"""A record is a note of something else."""

SETTLED_S: Final = 1.0
"""Both ends of a message and its events are traced sooner than this after one another."""


class _Matchtags:
    """Numbers requests whose answers can be told from each other, and these, for each sender."""

    def __init__(self) -> None:
        self._last = 0
        self._unanswered: dict[tuple[str, str], deque[int]] = {}

    def numbered(self, each: Routed) -> Message:
        """Return the message with its matchtag; as it is if answers may come in another order.

        A module that begins or ends has no open requests, whatever was sent under its name.
        """
        message = each.message
        if isinstance(message, Request) and message.topic == MODULE_STATUS:
            for topic in _NUMBERED:
                self._unanswered.pop((each.sender, topic), None)
        if isinstance(message, Request) and message.topic in _NUMBERED:
            self._last += 1
            key, matchtag = (each.sender, message.topic), self._last
            waiting = self._unanswered.setdefault(key, deque(maxlen=_UNANSWERED_MAX))
            if waiting and message.topic in _ANSWERED_ALONE:
                matchtag = 0
                for place in range(len(waiting)):
                    waiting[place] = 0  # whose the next answers are is not known
            waiting.append(matchtag)
            return msgspec.structs.replace(message, matchtag=matchtag)
        if isinstance(message, Response) and message.topic in _NUMBERED:
            asked = self._unanswered.get((each.receivers[0], message.topic))
            return msgspec.structs.replace(message, matchtag=asked.popleft() if asked else 0)
        return message


class Records:
    """Numbers messages and events after `n`, in the order in which they are taken."""

    def __init__(self, n: int = 0, *, has_headers: bool = False) -> None:
        self._n = n
        self._matchtags = None if has_headers else _Matchtags()

    def of(self, each: Passed) -> Iterator[Record]:
        """Yield the records of a forwarded message or a logged event; a note as it is."""
        self._n = n = self._n + 1
        if isinstance(each, Record):
            yield msgspec.structs.replace(each, n=n)
            return
        if isinstance(each, Logged):
            data: dict[str, Any] = {"id": each.jobid, "name": each.name, "context": each.context}
            if each.timestamp != each.t:
                data["timestamp"] = each.timestamp
            yield Record(n, each.t, Kind.EVENT.value, topics.JOB_MANAGER, data=data)
            return
        self._n += len(each.receivers)
        matchtags = self._matchtags
        ref, message = n, each.message if matchtags is None else matchtags.numbered(each)
        to = each.receivers[0] if len(each.receivers) == 1 else ""
        yield Record(n, each.t, Kind.SEND.value, each.sender, to, 0, message)
        for place, receiver in enumerate(each.receivers, n + 1):
            yield Record(place, each.t, Kind.RECV.value, receiver, each.sender, ref, message)


def records_of(passed: Iterable[Passed], *, has_headers: bool = False) -> Iterator[Record]:
    """Yield the records of forwarded messages and logged events in order, numbered from 1."""
    records = Records(has_headers=has_headers)
    for each in passed:
        yield from records.of(each)


def make_message(
    type_: str, topic: str, payload: Any, errnum: int, sender: str, receiver: str
) -> Message:
    """Build a message without the fields that a router does not show; KeyError for a wrong type."""
    match type_:
        case "request":
            return Request(topic, payload, routes=(sender,))
        case "response":
            return Response(topic, payload, errnum, routes=(receiver,))
        case "event":
            return Event(topic, payload)
    raise KeyError(type_)


def is_about(message: Message, jobid: int) -> bool:
    """Return whether a message may concern the job: it has the job's id or no id."""
    payload = getattr(message, "payload", None)
    if not isinstance(payload, dict):
        return True
    if isinstance(payload.get("jobs"), list):
        return any(_id_of(job) == jobid for job in payload["jobs"])
    return bool(payload.get("id", jobid) == jobid)


def _id_of(job: Any) -> Any:
    """Return the id of a job in a list: an object, or a pair as in sched.prioritize."""
    if isinstance(job, dict):
        return job.get("id")
    return job[0] if isinstance(job, list) and job else None


def name_disconnected_peers(passed: Sequence[Routed]) -> list[Routed]:
    """Add the missing sender to each `disconnect` that the broker sent, if it can be determined.

    The sender is a module that had called the service. The last message that it received told it to
    shut down; otherwise it sends nothing after this place until the first request after it is
    loaded again, and receives nothing; otherwise it sends such a request later, and had sent one.
    If several modules are the first of these, or no module is, no sender is added.
    """
    sent, received = _places(passed, sent=True), _places(passed, sent=False)
    named = list(passed)
    gone: set[tuple[str, str, int]] = set()  # (peer, service, first request): disconnects only once
    for place, each in enumerate(passed):
        service = _disconnected_service(each.message)
        if each.sender != BROKER or not service:
            continue
        found = {
            peer: (peer, service, _loaded_at(passed, places, place))
            for peer, places in sent.items()
            if _has_called(passed, places, place, service)
        }
        peers = [peer for peer, one in found.items() if one not in gone]
        shut_down = [
            peer for peer in peers if _was_shut_down(passed, received.get(peer, []), place)
        ]
        silent = [
            peer for peer in peers if _is_silent(passed, sent[peer], received.get(peer, []), place)
        ]
        back = [peer for peer in peers if _comes_back(passed, sent[peer], place)]
        likely = next((some for some in (shut_down, silent, back) if some), [])
        if len(likely) == 1 or shut_down:
            gone.add(found[likely[0]])
            routes = (likely[0],)
            named[place] = each._replace(
                message=msgspec.structs.replace(each.message, routes=routes)
            )
    return named


def _disconnected_service(message: Message) -> str:
    """Return the service that gets a `disconnect`; "" for another message."""
    if isinstance(message, Request) and message.topic.endswith(f".{topics.DISCONNECT}"):
        return service_of(message.topic)
    return ""


def _places(passed: Sequence[Routed], *, sent: bool) -> dict[str, list[int]]:
    """Return, for each module, the places where it sent or received a message."""
    found: dict[str, list[int]] = {}
    for place, each in enumerate(passed):
        for party in (each.sender,) if sent else each.receivers:
            if party not in (CLIENT, BROKER, ""):
                found.setdefault(party, []).append(place)
    return found


def _next(places: list[int], after: int) -> int:
    """Return the first of `places` after `after`, -1 if there is none."""
    at = bisect_right(places, after)
    return places[at] if at < len(places) else -1


def _has_called(passed: Sequence[Routed], sent: list[int], place: int, service: str) -> bool:
    """Return whether the module had sent the service a request before `place`."""
    messages = (passed[at].message for at in sent[: bisect_right(sent, place)])
    return any(
        isinstance(message, Request) and service_of(message.topic) == service
        for message in messages
    )


def _is_silent(passed: Sequence[Routed], sent: list[int], received: list[int], place: int) -> bool:
    next_sent = _next(sent, place)
    if next_sent != -1 and not _is_first(passed[next_sent].message):
        return False
    next_received = _next(received, place)
    return (
        next_received == -1
        or (next_sent != -1 and next_received > next_sent)
        or _is_shutdown(passed[next_received].message)
    )


def _is_shutdown(message: Message) -> bool:
    return isinstance(message, Request) and message.topic.endswith(".shutdown")


def _loaded_at(passed: Sequence[Routed], sent: list[int], place: int) -> int:
    """Return the place of the module's last first request before `place`, -1 if there is none."""
    before = sent[: bisect_right(sent, place)]
    return next((at for at in reversed(before) if _is_first(passed[at].message)), -1)


def _comes_back(passed: Sequence[Routed], sent: list[int], place: int) -> bool:
    """Return whether the module is loaded again after `place`."""
    after = sent[bisect_right(sent, place) :]
    was_loaded = _loaded_at(passed, sent, place) != -1
    return was_loaded and any(_is_first(passed[at].message) for at in after)


def _is_first(message: Message) -> bool:
    return isinstance(message, Request) and message.topic in topics.FIRST_REQUESTS


def _was_shut_down(passed: Sequence[Routed], received: list[int], place: int) -> bool:
    """Return whether the last message that the module received told it to shut down."""
    at = bisect_right(received, place)
    return at > 0 and _is_shutdown(passed[received[at - 1]].message)
