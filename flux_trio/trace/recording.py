"""Recordings of flux-core: one JSON object with the messages of a scenario and the jobs' eventlogs.

`messages` is in router order. `jobs[].eventlog` has the events. All times are in seconds since the
first message. Other keys of the object are for other readers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from flux_trio.formats import LESS_DEEP, FormatError
from flux_trio.messages import topics
from flux_trio.trace.record import Record
from flux_trio.trace.routed import Logged, Routed, make_message, name_disconnected_peers, records_of

STAMP_LAG_S: Final = 0.02
"""A router stamps a message with the time when its loop began, at most this much too early.

Events are stamped when they are posted. So an event may precede messages that the job manager sent
up to this long before it according to the stamps, but it follows messages that the job manager
received about the job.
"""

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


def read_recording(text: str) -> Iterator[Record]:
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
    return records_of(
        _merge(name_disconnected_peers(messages), sorted(logged, key=lambda each: each.t))
    )


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
    is_cause = topics.JOB_MANAGER in message.receivers and _is_about(message, event.jobid)
    return not is_cause and message.t > event.t - STAMP_LAG_S


def _is_about(message: Routed, jobid: int) -> bool:
    """Return whether a message may concern the job: it has the job's id or no id."""
    payload = getattr(message.message, "payload", None)
    if not isinstance(payload, dict):
        return True
    if isinstance(payload.get("jobs"), list):
        return any(job.get("id") == jobid for job in payload["jobs"])
    return bool(payload.get("id", jobid) == jobid)


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
    return Logged(found.t_rel, jobid, found.name, found.context)


def _decode(text: str | msgspec.Raw, shape: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error).at(where) from None
    except RecursionError:
        raise FormatError(LESS_DEEP, text, where) from None
