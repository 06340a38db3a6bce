"""What a bridge sends in a turn, to the core and to the broker, and its open calls. Data.

A call is a value that says what its answer is for.
"""

from __future__ import annotations

from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from flux_trio.cores.kvs_calls import value_in
from flux_trio.editions import flux_kvs, kvs
from flux_trio.messages import Calls, Event, FluxError, Level, Payload, Request, Response, topics

TAGS_AFTER: Final = 1 << 31
"""Matchtags up to it are of the handle, which may have calls of its own."""

Passed: TypeAlias = Request | Response | Event
CallT = TypeVar("CallT")


class Forwarded(msgspec.Struct, frozen=True):
    """Answers a request of the core that only has another matchtag here."""

    request: Request


class Reads(msgspec.Struct, eq=False):
    """Several keys that are read, one lookup each; `values` has those that were read.

    It is None after an error, which was the answer. `to` is a request of the core, or whatever else
    the values are for.
    """

    to: Any
    keys: list[str]
    values: dict[str, str | None] | None = msgspec.field(default_factory=dict)

    def take(self, key: str, response: Response) -> list[str | None] | FluxError | None:
        """Take the answer for `key`; return all values when all are there, or the first error."""
        if self.values is None:
            return None
        try:
            self.values[key] = value_in(response)
        except FluxError as error:
            self.values = None
            return FluxError(error.errnum, f"{key}: {error.text}")
        is_whole = len(self.values) == len(self.keys)
        return [self.values[each] for each in self.keys] if is_whole else None


class OneValueRead(msgspec.Struct, frozen=True):
    """Answers the lookup of one of the keys of `reads`."""

    reads: Reads
    key: str


class Mail(Generic[CallT]):
    """The messages of one turn; `now` is its time in seconds since the Unix epoch."""

    def __init__(self) -> None:
        self.now = 0.0
        self.to_core: list[Passed] = []
        self.to_broker: list[Passed] = []
        self.logs: list[tuple[Level, str]] = []
        self.end = ""
        self.calls: Calls[CallT] = Calls(TAGS_AFTER)

    def ask(self, topic: str, payload: Payload, call: CallT, flags: int = 0) -> None:
        """Send a request to the broker."""
        self.to_broker.append(Request(topic, payload, self.calls.open(call), flags))

    def read_keys(self, reads: Reads) -> None:
        """Ask the broker for the values of all keys of `reads`."""
        for key in reads.keys:
            look_up = flux_kvs.look_up(kvs.Lookup(key))
            call: Any = OneValueRead(reads, key)  # every bridge has this one
            self.ask(topics.KVS_LOOKUP, look_up, call)

    def answer_broker(self, response: Response | None) -> None:
        """Answer a request of the broker, if it wants a response."""
        if response is not None:
            self.to_broker.append(response)

    def answer_core(
        self, request: Request, payload: Payload = None, errnum: int = 0, flags: int = 0
    ) -> None:
        """Answer a request of the core."""
        if request.wants_response:
            matchtag = request.matchtag
            self.to_core.append(Response(request.topic, payload, errnum, matchtag, flags))

    def log(self, level: Level, text: str) -> None:
        """Write to the log of the instance."""
        self.logs.append((level, text))

    def pop_sent(self) -> Sent:
        """Return what was sent since the last call, in order."""
        sent = Sent(self.to_core, self.to_broker, self.logs, self.end)
        self.to_core, self.to_broker, self.logs = [], [], []
        return sent


class Sent(NamedTuple):
    """The messages of a turn for either side, and lines for the log of the instance."""

    to_core: list[Passed]
    to_broker: list[Passed]
    logs: list[tuple[Level, str]]
    end: str  # why the service has to end; "" if it goes on
