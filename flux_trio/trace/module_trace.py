"""Converts to records what was seen of a running instance: messages, each once, in their order.

It is what `flux module trace --full` prints, or tells (flux-module(1), TRACE), or what a program
beside the instance has recorded in our own form. Eventlogs come from the job manager's journal, if
a client follows it. Memory does not grow with the trace: a number of messages is kept back
(`pairing`), and the first ones until they show whether events are among them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from flux_trio.trace.logging import in_order, with_events
from flux_trio.trace.pairing import paired
from flux_trio.trace.printed import Line, parse_lines
from flux_trio.trace.record import Kind, Record
from flux_trio.trace.routed import Logged, Moment, Passed, Records, Routed, records_of
from flux_trio.trace.zones import HEAD_MAX, in_utc


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
    ordered = in_order(with_events(messages))
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


class _LiveRecords:
    """The records of a trace that goes on, as they become known, with numbers after `n`."""

    def __init__(self, passed: Iterable[Passed | Moment], records: Records) -> None:
        self._passed = in_order(with_events(passed))
        self._records = records

    def _until(self, moments: deque[Any], now: float) -> Iterator[Record]:
        """Yield the records that are complete when it is `now`, by the clock of the trace."""
        moments.append(Moment(now))
        for each in self._passed:
            if isinstance(each, Moment):
                return
            yield from self._records.of(each)


class LiveModuleTrace(_LiveRecords):
    """Those of what `flux module trace` tells."""

    def __init__(self, n: int = 0) -> None:
        self._waiting: deque[Line | Moment] = deque()
        super().__init__(paired(self._lines()), Records(n))

    def put(self, line: Line) -> None:
        """Take the next message."""
        self._waiting.append(line)

    def records(self, now: float) -> Iterator[Record]:
        """Yield the records that are complete when it is `now`, by the clock of the trace.

        FormatError says which payload is no JSON object.
        """
        return self._until(self._waiting, now)

    def _lines(self) -> Iterator[Line | Moment]:
        while True:  # `records` reads no further than to the moment that it has put
            yield self._waiting.popleft()


class LiveTap(_LiveRecords):
    """Those of what a tap writes."""

    def __init__(self, n: int = 0) -> None:
        self._waiting: deque[Record | Moment] = deque()
        super().__init__(self._messages_so_far(), Records(n, has_headers=True))

    def put(self, record: Record) -> None:
        """Take the next record."""
        self._waiting.append(record)

    def records(self, now: float) -> Iterator[Record]:
        """Yield the records that are complete when it is `now`, by the clock of the trace."""
        return self._until(self._waiting, now)

    def _messages_so_far(self) -> Iterator[Passed | Moment]:
        while True:  # as above
            each = self._waiting.popleft()
            if isinstance(each, Moment):
                yield each
            else:
                yield from _messages([each])
