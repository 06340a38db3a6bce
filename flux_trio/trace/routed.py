"""Messages in the order in which one router passed them on, as records.

A router sees each message once: it becomes a SEND and, right behind it, its RECV. What crossed on
the way to or from a party cannot be told, nor can matchtags, flags and userids. Who is gone when a
service is told `disconnect` is not in the message either, but mostly follows from who falls silent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.messages import Event, Message, Request, Response, service_of, topics
from flux_trio.trace.record import Kind, Record

CLIENT: Final = "client"  # any program that is no module
BROKER: Final = "broker"

# What a module says first in a new life.
_FIRST_WORDS: Final = {topics.RESOURCE_ACQUIRE, topics.SCHED_HELLO, topics.EXEC_HELLO}


class Routed(NamedTuple):
    """One message: time in seconds, who sent it, who takes it up, and itself."""

    t: float
    sender: str
    receivers: tuple[str, ...]
    message: Message


class Logged(NamedTuple):
    """One event of a job's eventlog, posted by the job manager at `t`."""

    t: float
    jobid: int
    name: str
    context: dict[str, Any]


def records_of(passed: Iterable[Routed | Logged]) -> Iterator[Record]:
    """The records of what was passed on and logged, in that order, numbered from 1."""
    n = 0
    for each in passed:
        n += 1
        if isinstance(each, Logged):
            data = {"id": each.jobid, "name": each.name, "context": each.context}
            yield Record(n, each.t, Kind.EVENT.value, topics.JOB_MANAGER, data=data)
            continue
        ref = n
        to = each.receivers[0] if len(each.receivers) == 1 else ""
        yield Record(n, each.t, Kind.SEND.value, each.sender, to, 0, each.message)
        for receiver in each.receivers:
            n += 1
            yield Record(n, each.t, Kind.RECV.value, receiver, each.sender, ref, each.message)


def make_message(
    type_: str, topic: str, payload: Any, errnum: int, sender: str, receiver: str
) -> Message:
    """A message without what a router does not show; KeyError for a type there is not."""
    match type_:
        case "request":
            return Request(topic, payload, routes=(sender,))
        case "response":
            return Response(topic, payload, errnum, routes=(receiver,))
        case "event":
            return Event(topic, payload)
    raise KeyError(type_)


def name_the_gone(passed: Sequence[Routed]) -> list[Routed]:
    """With the sender of each `disconnect` that the broker sent, where it can be told.

    The one that is gone is a module that had called the service, says nothing from there on until
    its first words in a new life, and is sent nothing: the one that was told to shut down, if there
    are several.
    """
    said, heard = _places(passed, sent=True), _places(passed, sent=False)
    named = list(passed)
    gone: set[tuple[str, str, int]] = set()  # peer, service, life: each tells a service once
    for place, each in enumerate(passed):
        service = _left(each.message)
        if each.sender != BROKER or not service:
            continue
        silent = [
            (peer, service, _next(places, place))
            for peer, places in said.items()
            if _has_called(passed, places, place, service)
            and _is_silent(passed, places, heard.get(peer, []), place)
        ]
        silent = [one for one in silent if one not in gone]
        told = [one for one in silent if _was_told(passed, heard.get(one[0], []), place)]
        found = told or silent
        if len(found) == 1 or told:
            gone.add(found[0])
            routes = (found[0][0],)
            named[place] = each._replace(
                message=msgspec.structs.replace(each.message, routes=routes)
            )
    return named


def _left(message: Message) -> str:
    """The service that is told of somebody's end, "" for other messages."""
    if isinstance(message, Request) and message.topic.endswith(f".{topics.DISCONNECT}"):
        return service_of(message.topic)
    return ""


def _places(passed: Sequence[Routed], *, sent: bool) -> dict[str, list[int]]:
    """For each module, where in the order it sent or took up a message."""
    found: dict[str, list[int]] = {}
    for place, each in enumerate(passed):
        for party in (each.sender,) if sent else each.receivers:
            if party not in (CLIENT, BROKER, ""):
                found.setdefault(party, []).append(place)
    return found


def _next(places: list[int], after: int) -> int:
    """The first of `places` beyond `after`, -1 if there is none."""
    at = bisect_right(places, after)
    return places[at] if at < len(places) else -1


def _has_called(passed: Sequence[Routed], said: list[int], place: int, service: str) -> bool:
    """Whether it had sent the service a request by then."""
    messages = (passed[at].message for at in said[: bisect_right(said, place)])
    return any(
        isinstance(message, Request) and service_of(message.topic) == service
        for message in messages
    )


def _is_silent(passed: Sequence[Routed], said: list[int], heard: list[int], place: int) -> bool:
    says = _next(said, place)
    if says != -1 and getattr(passed[says].message, "topic", "") not in _FIRST_WORDS:
        return False
    hears = _next(heard, place)
    return hears == -1 or (says != -1 and hears > says) or _is_shutdown(passed[hears].message)


def _is_shutdown(message: Message) -> bool:
    return isinstance(message, Request) and message.topic.endswith(".shutdown")


def _was_told(passed: Sequence[Routed], heard: list[int], place: int) -> bool:
    """Whether the last that it heard was to shut down."""
    at = bisect_right(heard, place)
    return at > 0 and _is_shutdown(passed[heard[at - 1]].message)
