"""Recordings of flux-core: one JSON object with the messages of a scenario and the jobs' eventlogs.

`messages` is in router order. `jobs[].eventlog` has the events. All times are in seconds since the
first message. Other keys of the object are for other readers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.formats import LESS_DEEP, FormatError
from flux_trio.messages import Request, topics
from flux_trio.trace.record import Record
from flux_trio.trace.routed import (
    STAMP_LAG_S,
    Logged,
    Routed,
    is_about,
    make_message,
    name_disconnected_peers,
    records_of,
)

STARTED_IN_S: Final = 0.3
"""An instance starts its execution service sooner after the first message."""

_TYPES: Final = "request, response or event"


class _Message(msgspec.Struct):
    t_rel: float
    sender: str = msgspec.field(name="from")
    to: str
    type: str
    topic: str
    errnum: int = 0
    errstr: str | None = None
    payload: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    t_rel: float
    name: str
    context: dict[str, Any] = msgspec.field(default_factory=dict)


class _Job(msgspec.Struct):
    id: int
    eventlog: list[msgspec.Raw] = []


class _Recording(msgspec.Struct):
    messages: list[msgspec.Raw]
    jobs: list[_Job] = []


class Recorded(NamedTuple):
    """The records of a recording, and whether it begins with the instance."""

    records: Iterator[Record]
    begins: bool


def read_recording(text: str) -> Recorded:
    """Return the records of a recording, with the events among the messages.

    Raises FormatError with the path of the invalid value.
    """
    recording: _Recording = _decode(text, _Recording, "")
    messages = [_routed(raw, f"messages[{at}]") for at, raw in enumerate(recording.messages)]
    logged = [
        _logged(job.id, raw, f"jobs[{of}].eventlog[{at}]")
        for of, job in enumerate(recording.jobs)
        for at, raw in enumerate(job.eventlog)
    ]
    passed = _merge(name_disconnected_peers(messages), sorted(logged, key=lambda each: each.t))
    return Recorded(records_of(passed), not messages or _begins(messages[0]))


def _begins(first: Routed) -> bool:
    """Whether the first message is that of the execution service that starts with the instance.

    Times count from the first message of all; recordings leave out what comes before that one.
    """
    message = first.message
    is_hello = isinstance(message, Request) and message.topic == topics.EXEC_HELLO
    return is_hello and first.t < STARTED_IN_S


def _merge(messages: list[Routed], logged: list[Logged]) -> Iterator[Routed | Logged]:
    """Yield the messages in order, and each event where the job manager must have posted it."""
    times = [message.t for message in messages]
    events: list[list[Logged]] = [[] for _ in range(len(messages) + 1)]
    last = 0
    for event in logged:
        place = bisect_right(times, event.t)
        while place > last and _may_follow(messages[place - 1], event):
            place -= 1
        events[place].append(event)
        last = place
    for place, message in enumerate(messages):
        yield from events[place]
        yield message
    yield from events[-1]


def _may_follow(message: Routed, event: Logged) -> bool:
    """Return whether the message may follow the event although its stamp is earlier."""
    is_cause = topics.JOB_MANAGER in message.receivers and is_about(message.message, event.jobid)
    return not is_cause and message.t > event.t - STAMP_LAG_S


def _routed(raw: msgspec.Raw, where: str) -> Routed:
    found: _Message = _decode(raw, _Message, where)
    payload = found.errstr if found.errnum else found.payload
    try:
        message = make_message(
            found.type, found.topic, payload, found.errnum, found.sender, found.to
        )
    except KeyError:
        raise FormatError(_TYPES, found.type, f"{where}.type") from None
    return Routed(found.t_rel, found.sender, (found.to,), message)


def _logged(jobid: int, raw: msgspec.Raw, where: str) -> Logged:
    found: _Event = _decode(raw, _Event, where)
    return Logged(found.t_rel, jobid, found.name, found.context, found.t_rel)


def _decode(text: str | msgspec.Raw, shape: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error).at(where) from None
    except RecursionError:
        raise FormatError(LESS_DEEP, text, where) from None
