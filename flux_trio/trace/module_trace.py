"""Converts what `flux module trace --full` prints to records (flux-module(1), TRACE).

It prints a line for each message that a module sent to the broker (`tx`) or received from it
(`rx`), then its payload as indented JSON, or the text of its error. A payload that is no JSON
object is not printed. A message between two traced modules appears as a `tx` and the `rx` that
follows it; here it is one message. Times are wall-clock times without a zone and are taken as UTC.
Eventlogs come from the job manager's journal, if a client follows it.

Memory does not grow with the trace: a message is passed on when the next line shows that it has no
other end. Only the first messages are kept, until they show whether events are among them.
"""

from __future__ import annotations

import errno
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.formats import LESS_DEEP, FormatError
from flux_trio.messages import Errno, Message, Request, service_of, topics
from flux_trio.trace.record import Record
from flux_trio.trace.routed import (
    BROKER,
    CLIENT,
    STAMP_LAG_S,
    Logged,
    Routed,
    is_about,
    make_message,
    records_of,
)

HEADER: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:)(\d\d\.\d{3}) +(\S+) (tx|rx) ([><ec]) (.*) "
    r"\[([\d.]+)([KMGTPE]?)\](?: (success|E\w+|errno \d+))?"
)
FORM: Final = "YYYY-MM-DDTHH:MM:SS.mmm MODULE tx|rx >|<|e|c TOPIC [SIZE]"
HUMAN: Final = re.compile(r"(?:\x1b|\[).* (?:tx|rx) [><ec] .*", re.DOTALL)
"""A line that `--human` or `--color` has changed."""
_GAP: Final = re.compile(r"\(\d+ messages are missing here: .*\)")
_TYPES: Final = {">": "request", "<": "response", "e": "event", "c": "control"}

HEAD_MAX: Final = 4096
"""So many messages are read before the first is passed on, until one is an event of a job."""
_ANNOTATIONS: Final = "annotations"
"""What flux-core tells the followers of the journal beside events: no eventlog has it."""
SEEN_MAX: Final = 65536
"""Events that are remembered, to tell the copies for other followers of the journal."""

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
HELD_MAX: Final = 64
"""So many messages and events are kept back, since an event may belong before some of them."""
_ANSWERED_IN_ORDER: Final = {topics.KVS_COMMIT, topics.KVS_LOOKUP}
"""Requests that the KVS answers in order, so that each answer has its request."""
_MODULE_STATUS: Final = "module.status"
_RUNNING: Final = 1
_EXITED: Final = 3
"""The status that a module of flux-core sends when it ends, also after an error."""
_CALLED_BY_SERVICES: Final = {topics.JOB_MANAGER, topics.RESOURCE}
"""Services that schedulers and execution services call."""


class Line(NamedTuple):
    """One message as one module saw it; `body` is its payload as it is printed."""

    t: float
    module: str
    is_sent: bool
    type: str
    topic: str
    is_empty: bool
    errnum: int
    body: str
    number: int

    @property
    def content(self) -> tuple[str, str, int, str]:
        """What both ends of a message show."""
        return self.type, self.topic, self.errnum, self.body

    @property
    def payload(self) -> Any:
        """Return the object, the text of the error, or None."""
        return (self.body or None) if self.errnum else _payload(self.body, self.number)


class ModuleTrace(NamedTuple):
    """The records, and whether they have payloads and the events of eventlogs."""

    records: Iterator[Record]
    has_payloads: bool
    has_events: bool


def is_module_trace(line: str) -> bool:
    """Whether `line` is the first of such a trace. Raises FormatError for other forms of it."""
    if HUMAN.match(line):
        wanted = "`flux module trace --full` without --human and --color"
        raise FormatError(wanted, line.rstrip(), "line 1")
    return HEADER.fullmatch(line.rstrip()) is not None


def read_module_trace(
    lines: Iterable[str], cut: Callable[[int], object] = lambda _: None
) -> ModuleTrace:
    """Parse the output; FormatError names the line and what was expected.

    A last message that is incomplete is left out, and `cut` is called with the number of its line.
    """
    passed = _in_order(_with_events(_Pairing().messages(_parse(lines, cut))))
    head: list[Routed | Logged] = []
    for each in itertools.islice(passed, HEAD_MAX):
        head.append(each)
        if isinstance(each, Logged):
            break
    has_events = any(isinstance(each, Logged) for each in head)
    has_payloads = any(
        isinstance(each, Logged) or isinstance(getattr(each.message, "payload", None), dict)
        for each in head
    )
    rest = (each for each in passed if has_events or isinstance(each, Routed))
    return ModuleTrace(records_of(itertools.chain(head, rest)), has_payloads, has_events)


# --- lines


def _parse(lines: Iterable[str], cut: Callable[[int], object]) -> Iterator[Line]:
    head: re.Match[str] | None = None
    minutes = _Minutes()
    at, body = 0, list[str]()
    is_cut = False
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            is_cut = True
            cut(number)
            break
        match = HEADER.fullmatch(line.rstrip()) if line[:1].isdigit() else None
        if match is None:
            if _GAP.match(line):
                raise FormatError("a trace without gaps", line.rstrip(), f"line {number}")
            if head is None and line.strip():
                raise FormatError(FORM, line.rstrip(), f"line {number}")
            body.append(line)
            continue
        if head is not None:
            yield _line(minutes, head, body, at)
        head, at, body = match, number, []
    if head is None:
        return
    last = _line(minutes, head, body, at)
    if _is_whole(last):
        yield last
    elif not is_cut:
        cut(number)


def _is_whole(last: Line) -> bool:
    """Whether the last message of a trace was surely printed to its end."""
    body = last.body
    if last.errnum or last.is_empty:
        return True
    return body.endswith("\n}") or (bool(body) and "\n" not in body and body != "{")


def _line(minutes: _Minutes, head: re.Match[str], body: Sequence[str], number: int) -> Line:
    minute, second, module, way, mark, topic, size, _, result = head.groups()
    t = minutes.of(minute) + float(second)
    errnum = 0 if result is None or result == "success" else _errnum(result, number)
    text = "".join(body).strip()
    return Line(t, module, way == "tx", _TYPES[mark], topic, size == "0", errnum, text, number)


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
    if result.startswith("errno "):
        return int(result.removeprefix("errno "))
    found = Errno.__members__.get(result, getattr(errno, result, None))
    if found is None:
        raise FormatError("success or the name of an error", result, f"line {number}")
    return int(found)


class _Minutes:
    """The seconds since the epoch of a date with hour and minute; the last one is remembered."""

    def __init__(self) -> None:
        self._text = ""
        self._t = 0

    def of(self, text: str) -> int:
        if text != self._text:
            day, time = text[:10].split("-"), text[11:16].split(":")
            days = _days(*map(int, day))
            self._text, self._t = text, days * 86400 + int(time[0]) * 3600 + int(time[1]) * 60
        return self._t


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 in the Gregorian calendar; years begin in March here."""
    year -= month < 3
    month = (month + 9) % 12
    return (
        365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
    )


# --- messages


class _Pairing:
    """Finds the two ends of each message, and names the ends that are not traced."""

    def __init__(self) -> None:
        self._traced: set[str] = set()
        self._holders: dict[str, str] = {}
        """The module that takes the requests to a service."""
        self._asked: dict[str, str] = {}
        """By topic: the sender of the last request."""
        self._open: dict[tuple[Any, ...], int] = {}
        """How often a message was sent to a traced module that has not shown it yet."""
        self._calls: dict[str, set[str]] = {}
        """By traced module: the services that it has called since it was loaded."""
        self._known: set[str] = set()
        """The modules whose first requests the trace shows."""
        self._tags = 0
        self._unanswered: dict[tuple[str, str], deque[int]] = {}
        """By sender and topic: the matchtags of requests that were not answered."""
        self._gone: dict[str, str] = {}
        """By service: the module that has ended last, whose disconnect it has not got."""

    def messages(self, lines: Iterable[Line]) -> Iterator[Routed]:
        """Yield each message once, with both its ends if they are known."""
        first: Line | None = None
        takers: list[str] = []
        for line in itertools.dropwhile(_may_be_half, lines):
            self._traced.add(line.module)
            if first is not None and _shows_same_message(first, line, takers):
                takers.append(line.module)
                continue
            if first is not None:
                yield from self._routed(first, takers)
            first = None if self._was_shown(line) else line
            takers = [] if line.is_sent else [line.module]
        if first is not None:
            yield from self._routed(first, takers)

    def _was_shown(self, line: Line) -> bool:
        """Whether the message was shown when it was sent, with other messages since."""
        if line.type == "control":
            return True  # between the broker and its module
        key = (line.module, *line.content)
        if line.is_sent or key not in self._open:
            return False
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]
        return True

    def _routed(self, first: Line, takers: Sequence[str]) -> Iterator[Routed]:
        sender = first.module if first.is_sent else self._sender(first)
        receivers = tuple(takers) or self._receivers(first)
        payload = first.payload
        if first.type == "request":
            self._note_request(first, sender, receivers, payload)
        if first.is_sent and not takers:
            self._note_open(first, receivers)
        to = "".join(receivers[:1])
        tag = self._matchtag(first, sender, to) if first.topic in _ANSWERED_IN_ORDER else 0
        message = make_message(first.type, first.topic, payload, first.errnum, sender, to, tag)
        if sender == BROKER and first.topic.endswith(f".{topics.DISCONNECT}"):
            message = self._naming_the_peer(message, service_of(first.topic))
        yield Routed(first.t, sender, receivers, message)

    def _matchtag(self, line: Line, sender: str, receiver: str) -> int:
        """Number a request that is answered in order, and its response."""
        if line.type == "request":
            self._tags += 1
            self._unanswered.setdefault((sender, line.topic), deque(maxlen=HEAD_MAX)).append(
                self._tags
            )
            return self._tags
        waiting = self._unanswered.get((receiver, line.topic))
        return waiting.popleft() if waiting else 0

    def _sender(self, line: Line) -> str:
        """Return the untraced sender of a message that a traced module received."""
        if line.type == "event":
            return BROKER
        if line.type == "response":
            return service_of(line.topic)
        method = line.topic.rpartition(".")[2]
        return _CALLERS.get(line.topic) or _CALLERS_BY_METHOD.get(method, CLIENT)

    def _receivers(self, line: Line) -> tuple[str, ...]:
        """Return the receiver of a message that a traced module sent, if it is not shown yet."""
        if line.type == "event":
            return ()
        if line.type == "request":
            service = service_of(line.topic)
            return (self._holders.get(service, service),)
        return (self._asked.get(line.topic, CLIENT),)

    def _note_request(
        self, line: Line, sender: str, receivers: Sequence[str], payload: Any
    ) -> None:
        service = service_of(line.topic)
        self._asked[line.topic] = sender
        if not line.is_sent or receivers[0] in self._traced:
            self._holders[service] = receivers[0]
        if sender not in self._traced:
            return
        status = payload.get("status") if line.topic == _MODULE_STATUS else None
        if status == _EXITED:
            self._note_end(sender)
        elif status == _RUNNING:
            self._known.add(sender)
        self._calls.setdefault(sender, set()).add(service)

    def _note_open(self, line: Line, receivers: Sequence[str]) -> None:
        for receiver in receivers:
            if receiver in self._traced:
                key = (receiver, *line.content)
                if len(self._open) >= HEAD_MAX and key not in self._open:
                    del self._open[next(iter(self._open))]
                self._open[key] = self._open.get(key, 0) + 1

    def _note_end(self, module: str) -> None:
        """A module has ended: the broker tells the services that it has called."""
        called = self._calls.pop(module, set())
        if module not in self._known:
            called |= _CALLED_BY_SERVICES
        self._known.discard(module)
        self._gone |= dict.fromkeys(called, module)

    def _naming_the_peer(self, message: Message, service: str) -> Message:
        """Add to a disconnect whose it is, if it is that of a module."""
        gone = self._gone.pop(service, "")
        return msgspec.structs.replace(message, routes=(gone,)) if gone else message


def _may_be_half(line: Line) -> bool:
    """Whether a trace that begins with this line may have begun between the ends of its message."""
    return not line.is_sent and line.type != "response"


def _shows_same_message(first: Line, line: Line, takers: Sequence[str]) -> bool:
    """Whether the line shows another end of the message `first`; an event has many receivers."""
    is_next = not takers or (first.type == "event" and line.module not in takers)
    is_same = not line.is_sent and line.content == first.content
    return is_next and is_same and line.t - first.t < 1.0


# --- events


def _with_events(routed: Iterable[Routed]) -> Iterator[Routed | Logged]:
    """Add each event once, where the journal first has it.

    An event that happens is alone in its response; a response with several, or without one, is of
    the past, which the journal sends to a new follower.
    """
    seen: set[tuple[int, float, str]] = set()
    order: deque[tuple[int, float, str]] = deque()
    for each in routed:
        event = _event(each)
        if event is not None and event[:3] not in seen:
            if len(order) == SEEN_MAX:
                seen.remove(order.popleft())
            seen.add(event[:3])
            order.append(event[:3])
            yield Logged(each.t, event[0], event[2], event[3])
        yield each


def _in_order(passed: Iterable[Routed | Logged]) -> Iterator[Routed | Logged]:
    """Put each event before what the job manager sent because of it.

    flux-core acts on an event before it tells the followers of the journal.
    """
    held: deque[Routed | Logged] = deque()
    for each in passed:
        if len(held) == HELD_MAX:
            yield held.popleft()
        if isinstance(each, Logged):
            held.insert(_place_of(each, held), each)
        else:
            held.append(each)
    yield from held


def _place_of(event: Logged, held: Sequence[Routed | Logged]) -> int:
    """Return the place of the first request of its turn that the job manager sent about the job."""
    found = len(held)
    for place in range(len(held) - 1, -1, -1):
        each = held[place]
        if event.t - each.t > STAMP_LAG_S or _comes_before(each, event.jobid):
            break
        if isinstance(each, Routed) and _is_request_about(each, event.jobid):
            found = place
    return found


def _comes_before(each: Routed | Logged, jobid: int) -> bool:
    """Whether it is surely before an event of the job: another one, or what the event is due to."""
    if isinstance(each, Logged):
        return each.jobid == jobid
    return topics.JOB_MANAGER in each.receivers and is_about(each.message, jobid)


def _is_request_about(each: Routed, jobid: int) -> bool:
    message = each.message
    payload = message.payload if isinstance(message, Request) else None
    is_its = isinstance(payload, dict) and payload.get("id") == jobid
    return is_its and each.sender == topics.JOB_MANAGER


def _event(each: Routed) -> tuple[int, float, str, dict[str, Any]] | None:
    message = each.message
    payload = getattr(message, "payload", None)
    if getattr(message, "topic", "") != topics.JOB_JOURNAL or not isinstance(payload, dict):
        return None
    found, events = payload.get("id"), payload.get("events")
    if type(found) is not int or not isinstance(events, list) or len(events) != 1:
        return None
    event = events[0]
    if not isinstance(event, dict) or not {"timestamp", "name"} <= event.keys():
        return None
    if event["name"] == _ANNOTATIONS:
        return None
    return found, float(event["timestamp"]), str(event["name"]), event.get("context") or {}
