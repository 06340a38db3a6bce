"""Converts the output of flux-core's `flux module trace --full` to records (flux-module(1), TRACE).

The output has a line for each message that a module sent to the broker (`tx`) or received from it
(`rx`), then its payload as indented JSON, or the text of its error. A message between two traced
modules appears as a `tx` and the `rx` that follows it; here it is one message. Times are wall-clock
times without a zone and are taken as UTC. Eventlogs come from the job manager's journal, if a
client followed it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.formats import LESS_DEEP, FormatError, Words
from flux_trio.messages import Errno, service_of, topics
from flux_trio.trace.record import Record
from flux_trio.trace.routed import (
    BROKER,
    CLIENT,
    Logged,
    Routed,
    make_message,
    name_disconnected_peers,
    records_of,
)

HEADER: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d\.\d+)\s+(\S+) (tx|rx) "
    r"(request|response|event|control) (.*) \[([\d.]+)[KMGTPE]?\](?: (success|E\w+|errno \d+))?"
)
_FORM: Final = "YYYY-MM-DDTHH:MM:SS.mmm MODULE tx|rx TYPE TOPIC [SIZE]"

# Requests to a traced module from an untraced one: topic -> sender.
_CALLERS: Final = {
    topics.SCHED_ALLOC: topics.JOB_MANAGER,
    topics.SCHED_FREE: topics.JOB_MANAGER,
    topics.SCHED_CANCEL: topics.JOB_MANAGER,
    topics.SCHED_PRIORITIZE: topics.JOB_MANAGER,
    topics.SCHED_EXPIRATION: topics.JOB_MANAGER,
}
_CALLERS_BY_METHOD: Final = {
    topics.START_METHOD: topics.JOB_MANAGER,
    topics.DISCONNECT: BROKER,
    "shutdown": BROKER,
}


class Line(NamedTuple):
    """One message as one module saw it; `payload` is an object, an error's text or None."""

    t: float
    module: str
    is_sent: bool
    type: str
    topic: str
    is_empty: bool
    errnum: int
    payload: Any

    def is_same(self, other: Line) -> bool:
        """Return whether `other` is the same message, seen at its other end."""
        return self[3:] == other[3:]


class ModuleTrace(NamedTuple):
    """The records, and whether they include events of eventlogs."""

    records: Iterator[Record]
    has_events: bool


def read_module_trace(lines: Iterable[str]) -> ModuleTrace:
    """Parse the output; FormatError names the line and what was expected."""
    seen = list(_parse(lines))
    if seen and all(line.is_empty or line.payload is None for line in seen):
        raise FormatError("payloads, as `flux module trace --full` prints them", Words("none"))
    routed = name_disconnected_peers(list(_pair(seen)))
    has_events = any(_events(each) for each in routed)
    return ModuleTrace(records_of(_with_events(routed)), has_events)


# --- lines


def _parse(lines: Iterable[str]) -> Iterator[Line]:
    head: re.Match[str] | None = None
    at, body = 0, list[str]()
    for number, line in enumerate(lines, 1):
        match = HEADER.fullmatch(line.rstrip())
        if match is None:
            if head is None and line.strip():
                raise FormatError(_FORM, line.rstrip(), f"line {number}")
            body.append(line)
            continue
        if head is not None:
            yield _line(head, body, at)
        head, at, body = match, number, []
    if head is not None:
        yield _line(head, body, at)


def _line(head: re.Match[str], body: Sequence[str], number: int) -> Line:
    year, month, day, hour, minute, second, module, way, type_, topic, size, result = head.groups()
    seconds = _days(int(year), int(month), int(day)) * 86400 + int(hour) * 3600
    t = seconds + int(minute) * 60 + float(second)
    errnum = _errnum(result or "success", number)
    text = "".join(body).strip()
    payload = (text or None) if errnum else _payload(text, number)
    return Line(t, module, way == "tx", type_, topic, size == "0", errnum, payload)


def _payload(text: str, number: int) -> Any:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        expected = "a JSON object, or the next message"
    except RecursionError:
        expected = LESS_DEEP
    raise FormatError(expected, text, f"line {number + 1}")


def _errnum(result: str, number: int) -> int:
    if result == "success":
        return 0
    if result.startswith("errno "):
        return int(result.removeprefix("errno "))
    found = Errno.__members__.get(result, getattr(errno, result, None))
    if found is None:
        raise FormatError("success or the name of an error", result, f"line {number}")
    return int(found)


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 in the Gregorian calendar; years begin in March here."""
    year -= month < 3
    month = (month + 9) % 12
    return (
        365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
    )


# --- messages


def _pair(lines: Sequence[Line]) -> Iterator[Routed]:
    """Yield each message once, with both its ends if they are known."""
    asked: dict[str, str] = {}  # topic → sender of the last request
    at = 0
    while at < len(lines):
        first = lines[at]
        at += 1
        takers = [] if first.is_sent else [first.module]
        many = first.type == "event"
        while at < len(lines) and _shows_same_message(first, lines[at]) and (many or not takers):
            takers.append(lines[at].module)
            at += 1
        sender = first.module if first.is_sent else _sender(first)
        receivers = tuple(takers) or _receivers(first, asked)
        if first.type == "request":
            asked[first.topic] = sender
        if first.type == "control":
            continue  # between the broker and its module
        message = make_message(
            first.type, first.topic, first.payload, first.errnum, sender, "".join(receivers[:1])
        )
        yield Routed(first.t, sender, receivers, message)


def _shows_same_message(first: Line, line: Line) -> bool:
    """Return whether the line shows another end of the message `first`."""
    return not line.is_sent and line.is_same(first) and line.t - first.t < 1.0


def _sender(line: Line) -> str:
    """Return the untraced sender of a message that a traced module received."""
    if line.type == "event":
        return BROKER
    if line.type == "response":
        return service_of(line.topic)
    method = line.topic.rpartition(".")[2]
    return _CALLERS.get(line.topic) or _CALLERS_BY_METHOD.get(method, CLIENT)


def _receivers(line: Line, asked: dict[str, str]) -> tuple[str, ...]:
    """Return the untraced receivers of a message that a traced module sent."""
    if line.type == "event":
        return ()
    if line.type == "request":
        return (service_of(line.topic),)
    return (asked.get(line.topic, CLIENT),)


# --- events


def _with_events(routed: Iterable[Routed]) -> Iterator[Routed | Logged]:
    """Add each event once, where the journal first has it."""
    seen: set[tuple[int, float, str]] = set()
    for each in routed:
        for jobid, timestamp, name, context in _events(each):
            if (jobid, timestamp, name) not in seen:
                seen.add((jobid, timestamp, name))
                yield Logged(each.t, jobid, name, context)
        yield each


def _events(each: Routed) -> list[tuple[int, float, str, dict[str, Any]]]:
    message = each.message
    payload = getattr(message, "payload", None)
    if getattr(message, "topic", "") != topics.JOB_JOURNAL or not isinstance(payload, dict):
        return []
    found, events = payload.get("id"), payload.get("events")
    if type(found) is not int or not isinstance(events, list):
        return []
    return [
        (found, float(event["timestamp"]), str(event["name"]), event.get("context") or {})
        for event in events
        if isinstance(event, dict) and {"timestamp", "name"} <= event.keys()
    ]
