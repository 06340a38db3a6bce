"""A client that follows the output of jobs, and signals them."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from flux_trio.cores.stored_jobs import OUTPUT
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.formats import parse_event
from flux_trio.lab.world.clients import Client
from flux_trio.messages import Errno, Flag, Request, Response, topics

WITHIN_S: Final = 20.0  # most worlds have their faults in this time
SIGNALS: Final = (9, 10, 15)

Output = dict[tuple[int, str], bytes]
"""By number of the task and stream."""


@dataclass
class Followed:
    """One stream: what it has told of a job's output, and the error that ended it."""

    jobid: int
    credit: int | None
    told: Output = field(default_factory=lambda: defaultdict(bytes))
    errnum: int = 0


class Reader(Client):
    """Opens streams at chance moments for jobs of `ids`; some it cancels."""

    comes_back = True

    def __init__(self, seed: int, ids: dict[int, int]) -> None:
        self.ended: list[Followed] = []
        self.open: dict[int, Followed] = {}  # by matchtag
        self._draw = Random(f"reader {seed}")
        self._ids = ids
        self._matchtag = 0

    def start(self, now: float) -> list[Any]:
        """See `Core`."""
        count = self._draw.choice((0, 3, 20))
        return [SetTimer(n, now + WITHIN_S * self._draw.random()) for n in range(count)]

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        """See `Core`."""
        actions: list[Any] = []
        for each in inputs:
            match each:
                case TimerFired() if self._ids:
                    actions += self._ask(self._draw.choice(list(self._ids.values())))
                case Response(topic=topics.INFO_WATCH):
                    actions += self._told(each)
        return actions

    def connection_lost(self) -> None:
        self.open.clear()

    def _ask(self, jobid: int) -> list[Request]:
        self._matchtag += 1
        followed = self.open[self._matchtag] = Followed(jobid, self._draw.choice((None, 1, 3)))
        bound = {} if followed.credit is None else {"credit": followed.credit}
        wanted = {"id": jobid, "path": OUTPUT, **bound}
        asked = [Request(topics.INFO_WATCH, wanted, self._matchtag, int(Flag.STREAMING))]
        if self._draw.random() < 0.1:
            asked.append(_silently(topics.INFO_WATCH_CANCEL, matchtag=self._matchtag))
        if self._draw.random() < 0.2:
            self._matchtag += 1
            signal = {"id": jobid, "signum": self._draw.choice(SIGNALS)}
            asked.append(Request(topics.EXEC_KILL, signal, self._matchtag))
        return asked

    def _told(self, response: Response) -> list[Request]:
        followed = self.open.get(response.matchtag)
        if followed is None:
            return []
        if response.errnum:
            followed.errnum = response.errnum
            self.ended.append(self.open.pop(response.matchtag))
            return []
        assert isinstance(response.payload, dict)
        event = parse_event(response.payload["event"])
        if event.name == "data":
            add_piece(followed.told, event.context or {})
        if followed.credit is None:
            return []
        topic = topics.credit_of(topics.INFO_WATCH)
        return [_silently(topic, matchtag=response.matchtag, credit=1)]

    @property
    def whole(self) -> list[Followed]:
        """The streams that have ended with ENODATA."""
        return [each for each in self.ended if each.errnum == Errno.ENODATA]


def _silently(topic: str, **payload: int) -> Request:
    return Request(topic, payload, 0, int(Flag.NORESPONSE))


def add_piece(output: Output, piece: Mapping[str, Any]) -> None:
    """Add the data of a piece (RFC 24), which may have none."""
    text = piece.get("data", "")
    data = base64.b64decode(text) if piece.get("encoding") == "base64" else text.encode()
    if data:
        output[int(piece["rank"]), piece["stream"]] += data
