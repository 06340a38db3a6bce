"""The output of a job as Flux's own programs read it: an event of RFC 24 for each line.

They write the task's number before the data of an event (`flux run -l`), and count events (`flux
job attach --tail`). So the pieces in which output is read and stored become lines here, and the
beginning of a line of standard output waits for its rest. Standard error does not wait, as in
flux-core: it may be a question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.editions import rfc24
from flux_trio.formats import Event

LINE_BYTES_MAX: Final = 1 << 16  # a longer line is several events
BUFFERED: Final = "stdout"


class OutputLines(msgspec.Struct):
    """What one reader has got of a job's output, as far as it ends within lines."""

    rests: dict[str, bytes] = {}  # by task: what there is of its last line
    waits: bool = True  # for whole lines of standard output

    def of_stored(self, event: Event) -> list[Event]:
        """Return the events for one of the stored log."""
        context = event.context or {}
        if event.name == rfc24.HEADER:
            self.waits = not rfc24.is_unbuffered(context)
        if event.name == rfc24.LOG:
            return [*self.end(event.timestamp), event]
        if event.name != rfc24.DATA:
            return [event]
        if not rfc24.has_data(context):
            return [*self.end(event.timestamp), event]
        return self._lines(event.timestamp, context)

    def end(self, now: float) -> list[Event]:
        """Return the events for lines without an end: no more output comes."""
        rests, self.rests = self.rests, {}
        return [_event(now, BUFFERED, rank, data) for rank, data in rests.items()]

    def _lines(self, now: float, context: Mapping[str, Any]) -> list[Event]:
        stream, rank = rfc24.place_in(context)
        try:
            data = rfc24.bytes_of(context)
        except ValueError:  # damaged in the store: its reader says so
            return [Event(now, rfc24.DATA, dict(context))]
        if is_buffered := stream == BUFFERED and self.waits:
            data = self.rests.pop(rank, b"") + data
        *whole, rest = data.split(b"\n")
        lines = [line + b"\n" for line in whole]
        if rest and is_buffered and len(rest) < LINE_BYTES_MAX:
            self.rests[rank] = rest
        elif rest:
            lines.append(rest)
        return [_event(now, stream, rank, line) for line in lines]


def _event(now: float, stream: str, rank: str, data: bytes) -> Event:
    return Event(now, rfc24.DATA, rfc24.write(rfc24.output(stream, rank, data)))
