"""The events of eventlogs in a trace of modules: which there are, and where each one belongs.

The job manager tells the followers of its journal of an event after it has acted on it, on a busy
machine some time after. So an event goes before what the job manager sent because of it: before
the requests that need it, and before those that are stamped with a later time than the event.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.messages import Request, topics
from flux_trio.trace.kvs import job_with, operations_of
from flux_trio.trace.record import Kind, Record
from flux_trio.trace.routed import (
    EXITED,
    MODULE_STATUS,
    STAMP_LAG_S,
    Logged,
    Moment,
    Passed,
    Routed,
    is_about,
)

HELD_MAX: Final = 2048
"""So many messages and events are kept back, since an event may belong before some of them."""
SEEN_MAX: Final = 65536
"""Events that are remembered, to tell the copies for other followers of the journal."""
ROUNDED_S: Final = 0.001
"""Stamps are printed in milliseconds."""
_ANNOTATIONS: Final = "annotations"
"""What flux-core tells the followers of the journal beside events: no eventlog has it."""
_EVENTLOG: Final = "eventlog"
_END_OF_PAST: Final = -1
"""The job id with which the journal says that a follower has been told of all that was."""
_DISCONNECT: Final = topics.disconnect_of(topics.JOB_MANAGER)
_NEEDED: Final = {
    topics.SCHED_ALLOC: frozenset({"priority"}),
    topics.SCHED_PRIORITIZE: frozenset({"priority"}),
    topics.SCHED_CANCEL: frozenset({"exception", "priority"}),
    topics.SCHED_FREE: frozenset({"free"}),
}
"""By topic of a request of the job manager about a job: the events because of which it is sent."""
_FOR_START: Final = frozenset({"alloc", "prolog-finish"})


class Event(NamedTuple):
    """An event of a job; `t` is when it was posted."""

    jobid: int
    t: float
    name: str
    context: dict[str, Any]

    @property
    def key(self) -> tuple[int, float, str]:
        return self[:3]


class _Followed:
    """The events that were told so far, each once, and since when nobody may have heard."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, float, str]] = set()
        self._order: deque[tuple[int, float, str]] = deque()
        self._at = 0.0
        """When the journal told its followers something last."""
        self._since = math.inf
        """Past events that are told count if they happened after this time."""
        self._is_alone = False
        """Whether the job manager has ended, and its successor has no follower yet."""
        self._may_be_alone = False
        """Whether a follower may have gone, and nobody has been told anything since."""
        self._unheard: deque[Event] = deque(maxlen=SEEN_MAX)
        """Events that were stored meanwhile. The journal still tells them if a follower is left."""

    def ended(self, t: float, *, is_manager: bool) -> None:
        """The job manager has ended, or one with which the journal may have lost a follower."""
        self._since = min(self._since, self._at or t)
        self._is_alone = self._is_alone or is_manager
        self._may_be_alone = True

    def events(self, each: Routed) -> Iterator[Event]:
        """Yield the new events that a message has."""
        if is_journal(each):
            found = list(_events_told(each, self._since))
            self._is_alone = self._may_be_alone = self._is_alone and not found
            self._at = each.t if found else self._at
            self._unheard.clear()
        else:
            found = self._stored(each) if self._may_be_alone else []
        for event in found:
            if event.key not in self._seen:
                self._remember(event)
                yield event
        if is_journal(each) and _payload(each).get("id") == _END_OF_PAST:
            self._since = math.inf

    def _stored(self, each: Routed) -> list[Event]:
        """Return what surely nobody else tells of what is stored with a message, or was before."""
        if any(is_of_manager(each, topic) for topic in topics.COMMITS):
            self._unheard += [
                event for event in events_stored(each) if event.t > self._since - STAMP_LAG_S
            ]
        if not self._is_alone:
            return []
        found = list(self._unheard)
        self._unheard.clear()
        return found

    def _remember(self, event: Event) -> None:
        if len(self._order) == SEEN_MAX:
            self._seen.remove(self._order.popleft())
        self._seen.add(event.key)
        self._order.append(event.key)


def with_events(messages: Iterable[Passed | Moment]) -> Iterator[Passed | Moment]:
    """Add each event once, where the journal first has it.

    An event that happens is alone in its response. One with several, or without one, is of the
    past, which the journal sends to a new follower. Of these, only those count that happened while
    nobody followed: after the job manager, a module that was traced, or a client of the job manager
    had ended. What a job manager stores before anybody follows it has happened by then, and so has
    what the one before it had stored since then.
    """
    followed = _Followed()
    for each in messages:
        if isinstance(each, Record) and each.kind == Kind.MODULE:
            if (each.data or {}).get("what") != "started":
                followed.ended(each.t, is_manager=False)
        elif isinstance(each, Routed):
            if is_of_manager(each, MODULE_STATUS) and _payload(each).get("status") == EXITED:
                followed.ended(each.t, is_manager=True)
            elif getattr(each.message, "topic", "") == _DISCONNECT:
                followed.ended(each.t, is_manager=False)
            for event in followed.events(each):
                yield Logged(each.t, event.jobid, event.name, event.context, event.t)
        yield each


def in_order(passed: Iterable[Passed | Moment]) -> Iterator[Passed | Moment]:
    """Put each event before what the job manager sent because of it."""
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
    """Return the place of the first message that surely comes after the event.

    No message is stamped too late. So the event is before what has a later stamp, and before the
    requests that need it. It is after the event before it, and after what it may be due to.
    """
    found = len(held)
    for place in range(len(held) - 1, -1, -1):
        each = held[place]
        if isinstance(each, Logged) and each.jobid == event.jobid:
            break
        if not isinstance(each, Routed):
            continue
        if _is_received(each, event.jobid):
            if _is_cause(each, event):
                break
            found = place
        elif _is_caused(each, event):
            found = place
    return found


def _is_received(each: Routed, jobid: int) -> bool:
    """Whether the job manager receives a message about the job."""
    return topics.JOB_MANAGER in each.receivers and _names(each, jobid)


def _names(each: Routed, jobid: int) -> bool:
    """Whether a message has the id of the job."""
    has_ids = not _payload(each).keys().isdisjoint(("id", "jobs"))
    return has_ids and is_about(each.message, jobid)


def _is_cause(each: Routed, event: Logged) -> bool:
    """Whether the event may be due to a message about its job that the job manager receives.

    No message is followed by a priority at once: another event of the job is between them.
    """
    topic = getattr(each.message, "topic", "")
    match event.name:
        case "submit":
            return topic == topics.JOB_SUBMIT
        case "urgency":
            is_same = _payload(each).get("urgency") == event.context.get("urgency")
            return topic == topics.JOB_URGENCY and is_same
        case "priority":
            return False
    return each.t - event.timestamp <= ROUNDED_S


def _is_caused(each: Routed, event: Logged) -> bool:
    """Whether the job manager sends a request about the job after the event was posted.

    It asks for another expiration before it logs the update.
    """
    if not is_of_manager(each) or not isinstance(each.message, Request):
        return False
    topic = each.message.topic
    if topic in topics.COMMITS:
        key = (event.jobid, event.timestamp, event.name)
        return any(stored.key == key for stored in events_stored(each))
    if topic == topics.SCHED_EXPIRATION or not _names(each, event.jobid):
        return False
    is_start = topic.endswith(f".{topics.START_METHOD}")
    needed = _FOR_START if is_start else _NEEDED.get(topic, frozenset())
    return event.timestamp - each.t < STAMP_LAG_S or event.name in needed


def is_of_manager(each: Routed, topic: str = "") -> bool:
    """Whether the job manager sent the message, with this topic if one is given."""
    is_of_topic = topic in ("", getattr(each.message, "topic", ""))
    return is_of_topic and each.sender == topics.JOB_MANAGER


def is_journal(each: Routed) -> bool:
    """Whether a message is what the journal tells."""
    return is_of_manager(each, topics.JOB_EVENTS)


def _payload(each: Routed) -> dict[str, Any]:
    found = getattr(each.message, "payload", None)
    return found if isinstance(found, dict) else {}


def _events_told(each: Routed, since: float) -> Iterator[Event]:
    """Yield the events in a response of the journal; of past ones, those after `since`."""
    if getattr(each.message, "topic", "") != topics.JOB_EVENTS:
        return
    payload = _payload(each)
    jobid, events = payload.get("id"), payload.get("events")
    if type(jobid) is not int or not isinstance(events, list):
        return
    for found in events:
        event = _event_of(jobid, found)
        is_new = event is not None and (len(events) == 1 or event.t > since - STAMP_LAG_S)
        if event is not None and is_new and event.name != _ANNOTATIONS:
            yield event


def _event_of(jobid: int, found: Any) -> Event | None:
    if not isinstance(found, dict) or not {"timestamp", "name"} <= found.keys():
        return None
    return Event(jobid, float(found["timestamp"]), str(found["name"]), found.get("context") or {})


def events_stored(each: Routed) -> Iterator[Event]:
    """Yield the events of jobs in a kvs.commit request."""
    for how, key, text in operations_of(_payload(each)):
        jobid = job_with(key, _EVENTLOG) if how == "append" else None
        if jobid is None or not isinstance(text, str):
            continue
        for line in text.splitlines():
            if (event := _event_of(jobid, _decoded(line))) is not None:
                yield event


def _decoded(line: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
