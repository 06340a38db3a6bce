"""Converts to records what was seen of a running instance: messages, each once, in their order.

It is what `flux module trace --full` prints, or tells (flux-module(1), TRACE), or what a program
beside the instance has recorded in our own form. Eventlogs come from the job manager's journal, if
a client follows it. Memory does not grow with the trace: a number of messages is kept back
(`pairing`), and the first ones until they show whether events are among them.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from flux_trio.messages import Request, topics
from flux_trio.trace.pairing import paired
from flux_trio.trace.printed import Line, parse_lines
from flux_trio.trace.record import Kind, Record
from flux_trio.trace.routed import (
    STAMP_LAG_S,
    Logged,
    Moment,
    Passed,
    Records,
    Routed,
    is_about,
    records_of,
)
from flux_trio.trace.zones import HEAD_MAX, in_utc

HELD_MAX: Final = 64
"""So many messages and events are kept back, since an event may belong before some of them."""
SEEN_MAX: Final = 65536
"""Events that are remembered, to tell the copies for other followers of the journal."""
_ANNOTATIONS: Final = "annotations"
"""What flux-core tells the followers of the journal beside events: no eventlog has it."""


class ModuleTrace(NamedTuple):
    """The records, and whether they have payloads and the events of eventlogs."""

    records: Iterator[Record]
    has_payloads: bool
    has_events: bool


def read_module_trace(
    lines: Iterable[str], cut: Callable[[int], object] = lambda _: None
) -> ModuleTrace:
    """Parse the output; FormatError names the line and what was expected.

    A last message that is incomplete is left out, and `cut` is called with the number of its line.
    """
    return _whole(paired(in_utc(parse_lines(lines, cut))), has_headers=False)


def read_beside(records: Iterable[Record], *, has_headers: bool) -> ModuleTrace:
    """Read the messages that a program beside the instance has recorded (`Kind.SOURCE`)."""
    return _whole(_messages(records), has_headers=has_headers)


def _messages(records: Iterable[Record]) -> Iterator[Passed]:
    """Yield each message once, where it was sent, and notes as they are."""
    for each in records:
        if each.kind == Kind.SEND and each.message is not None:
            yield Routed(each.t, each.party, (each.peer,) if each.peer else (), each.message)
        elif each.kind != Kind.RECV:
            yield each


def _whole(messages: Iterable[Passed | Moment], *, has_headers: bool) -> ModuleTrace:
    ordered = _in_order(_with_events(messages))
    passed = (each for each in ordered if not isinstance(each, Moment))
    head: list[Passed] = []
    for each in itertools.islice(passed, HEAD_MAX):
        head.append(each)
        if isinstance(each, Logged):
            break
    has_events = any(isinstance(each, Logged) for each in head)
    has_payloads = any(
        isinstance(each, Logged) or isinstance(getattr(each.message, "payload", None), dict)
        for each in head
    )
    rest = (each for each in passed if has_events or not isinstance(each, Logged))
    records = records_of(itertools.chain(head, rest), has_headers=has_headers)
    return ModuleTrace(records, has_payloads, has_events)


class LiveModuleTrace:
    """The records of a trace that goes on, as they become known, with numbers after `n`."""

    def __init__(self, n: int = 0) -> None:
        self._waiting: deque[Line | Moment] = deque()
        self._passed = _in_order(_with_events(paired(self._lines())))
        self._records = Records(n)

    def put(self, line: Line) -> None:
        """Take the next message."""
        self._waiting.append(line)

    def records(self, now: float) -> Iterator[Record]:
        """Yield the records that are complete when it is `now`, by the clock of the trace.

        FormatError says which payload is no JSON object.
        """
        self._waiting.append(Moment(now))
        for each in self._passed:
            if isinstance(each, Moment):
                return
            yield from self._records.of(each)

    def _lines(self) -> Iterator[Line | Moment]:
        while True:  # `records` reads no further than to the moment that it has put
            yield self._waiting.popleft()


def _with_events(messages: Iterable[Passed | Moment]) -> Iterator[Passed | Moment]:
    """Add each event once, where the journal first has it.

    An event that happens is alone in its response. One with several, or without one, is of the
    past, which the journal sends to a new follower. Of these, only those count that happened while
    nobody followed: after a module that was traced had ended.
    """
    seen: set[tuple[int, float, str]] = set()
    order: deque[tuple[int, float, str]] = deque()
    followed, since = 0.0, math.inf
    for each in messages:
        if isinstance(each, Record) and each.kind == Kind.MODULE:
            has_ended = (each.data or {}).get("what") != "started"
            since = min(since, followed) if has_ended else since
        for event in _events(each, since) if isinstance(each, Routed) else ():
            followed = each.t
            if event[:3] in seen:
                continue
            if len(order) == SEEN_MAX:
                seen.remove(order.popleft())
            seen.add(event[:3])
            order.append(event[:3])
            yield Logged(each.t, event[0], event[2], event[3], event[1])
        yield each


def _in_order(passed: Iterable[Passed | Moment]) -> Iterator[Passed | Moment]:
    """Put each event before what the job manager sent because of it.

    flux-core acts on an event before it tells the followers of the journal.
    """
    held: deque[Passed] = deque()
    for each in passed:
        if isinstance(each, Moment):
            while held and each.settles(held[0].t):
                yield held.popleft()
            yield each
            continue
        if len(held) == HELD_MAX:
            yield held.popleft()
        if isinstance(each, Logged):
            held.insert(_place_of(each, held), each)
        else:
            held.append(each)
    yield from held


def _place_of(event: Logged, held: Sequence[Passed]) -> int:
    """Return the place of the first request of its turn that the job manager sent about the job."""
    found = len(held)
    for place in range(len(held) - 1, -1, -1):
        each = held[place]
        if event.t - each.t > STAMP_LAG_S or _comes_before(each, event.jobid):
            break
        if isinstance(each, Routed) and _is_request_about(each, event.jobid):
            found = place
    return found


def _comes_before(each: Passed, jobid: int) -> bool:
    """Whether it is surely before an event of the job: another one, or what the event is due to."""
    if isinstance(each, Logged):
        return each.jobid == jobid
    if isinstance(each, Record):
        return False
    payload = getattr(each.message, "payload", None)
    names_jobs = isinstance(payload, dict) and not payload.keys().isdisjoint(("id", "jobs"))
    return names_jobs and topics.JOB_MANAGER in each.receivers and is_about(each.message, jobid)


def _is_request_about(each: Routed, jobid: int) -> bool:
    """Whether the job manager sends a request because of an event of the job.

    It asks for another expiration before it logs the update.
    """
    message = each.message
    if getattr(message, "topic", "") == topics.SCHED_EXPIRATION:
        return False
    payload = message.payload if isinstance(message, Request) else None
    is_its = isinstance(payload, dict) and payload.get("id") == jobid
    return is_its and each.sender == topics.JOB_MANAGER


def _events(each: Routed, since: float) -> Iterator[tuple[int, float, str, dict[str, Any]]]:
    """Yield the events in a response of the journal; of past ones, those after `since`."""
    message = each.message
    payload = getattr(message, "payload", None)
    if getattr(message, "topic", "") != topics.JOB_JOURNAL or not isinstance(payload, dict):
        return
    found, events = payload.get("id"), payload.get("events")
    if type(found) is not int or not isinstance(events, list):
        return
    for event in events:
        if not isinstance(event, dict) or not {"timestamp", "name"} <= event.keys():
            continue
        t, name = float(event["timestamp"]), str(event["name"])
        if name != _ANNOTATIONS and (len(events) == 1 or t > since - STAMP_LAG_S):
            yield found, t, name, event.get("context") or {}
