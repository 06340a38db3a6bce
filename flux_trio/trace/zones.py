"""The times of a printed trace, since the epoch: flux prints local times without a zone.

How far they are from UTC shows where the job manager's journal tells of an event, which has its
time since the epoch and has just happened. A trace without such an event is taken to be in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from flux_trio.messages import topics
from flux_trio.trace.printed import Line

HEAD_MAX: Final = 4096
"""So many messages are read before the first is passed on, until one tells of an event."""
LOOK_S: Final = 60.0
"""So often it is looked at again: clocks are set for summer and back."""
LATE_S: Final = 5.0
"""An event is told within this time."""
_ZONE_STEP_S: Final = 900.0
_ZONE_MAX_S: Final = 14 * 3600.0


class _Event(msgspec.Struct):
    timestamp: float


class _TracedEvents(msgspec.Struct):
    events: list[_Event]


_decode: Final = msgspec.json.Decoder(_TracedEvents).decode


def in_utc(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the messages with their times since the epoch."""
    held: list[Line] = []
    ahead_s = 0.0
    looked: float | None = None
    for line in lines:
        if looked is None or not 0 <= line.t - looked < LOOK_S:
            found = _ahead(line)
            if found is not None:
                ahead_s, looked = found, line.t
        held.append(line)
        if looked is not None or len(held) >= HEAD_MAX:
            yield from _moved(held, ahead_s)
            held.clear()
    yield from _moved(held, ahead_s)


def _moved(lines: Iterable[Line], ahead_s: float) -> Iterable[Line]:
    return [line._replace(t=line.t - ahead_s) for line in lines] if ahead_s else lines


def _ahead(line: Line) -> float | None:
    """Return by how many seconds local time is ahead of UTC; None if the message does not show it.

    An event that happens is alone in its response; several are of the past.
    """
    if line.topic != topics.JOB_EVENTS or line.type != "response" or line.errnum:
        return None
    try:
        events = _decode(line.body).events
    except msgspec.MsgspecError:
        return None
    if len(events) != 1:
        return None
    late_s = line.t - events[0].timestamp
    ahead_s = round(late_s / _ZONE_STEP_S) * _ZONE_STEP_S
    is_zone = abs(late_s - ahead_s) <= LATE_S and abs(ahead_s) <= _ZONE_MAX_S
    return ahead_s if is_zone else None
