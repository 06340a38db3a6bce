"""What stands between a core of this project and a broker of flux-core. Pure.

Most messages pass as they are; calls of the core have matchtags of the bridge's own at the broker.
One lookup there reads one key; the core may ask for as many as it wants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from flux_trio.cores.kvs_calls import value_in
from flux_trio.editions import flux_kvs, kvs
from flux_trio.messages import (
    Calls,
    Event,
    FluxError,
    Level,
    Message,
    Payload,
    Request,
    Response,
    topics,
)

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


class Sent(NamedTuple):
    """The messages of a turn for either side, and lines for the log of the instance."""

    to_core: list[Passed]
    to_broker: list[Passed]
    logs: list[tuple[Level, str]]
    end: str  # why the service has to end; "" if it goes on


class Bridge(ABC, Generic[CallT]):
    """Gives messages of the core to the broker, and back.

    `calls` are open at the broker, each with what its answer is for. A subclass says which messages
    are in another shape on the two sides, and has `CallT`, the calls of its own.
    """

    def __init__(self) -> None:
        self.to_core: list[Passed] = []
        self.to_broker: list[Passed] = []
        self.logs: list[tuple[Level, str]] = []
        self.end = ""
        self.calls: Calls[Forwarded | OneValueRead | CallT] = Calls(TAGS_AFTER)

    def from_core(self, message: Passed) -> Sent:
        """Take a message of the core."""
        match message:
            case Request(topic=topics.STORE_OWN.lookup_all):
                self.read_keys(Reads(message, kvs.LOOKUP_ALL.read(message).keys))
            case Request():
                self.core_asks(message)
            case Response():
                self.core_answers(message)
            case Event():
                self.to_broker.append(message)
        return self.pop_sent()

    def from_broker(self, message: Message) -> Sent:
        """Take a message of the broker."""
        match message:
            case Request():
                self.broker_asks(message)
            case Response():
                self._broker_answers(message)
            case Event():
                self.event(message)
        return self.pop_sent()

    def pop_sent(self) -> Sent:
        """Return what was sent since the last call, in order."""
        sent = Sent(self.to_core, self.to_broker, self.logs, self.end)
        self.to_core, self.to_broker, self.logs = [], [], []
        return sent

    # What a subclass may do otherwise

    def core_asks(self, request: Request) -> None:
        """Take a request of the core."""
        if request.wants_response and request.matchtag:
            self.ask(request.topic, request.payload, Forwarded(request), request.flags)
        else:
            self.to_broker.append(request)

    def core_answers(self, response: Response) -> None:
        """Take an answer of the core."""
        self.to_broker.append(response)

    def broker_asks(self, request: Request) -> None:
        """Take a request for the service."""
        self.to_core.append(request)

    def event(self, event: Event) -> None:
        """Take an event."""
        self.to_core.append(event)

    def pass_answer(self, request: Request, response: Response) -> None:
        """Take the broker's answer to a request that was only forwarded."""
        self.answer_core(request, response.payload, response.errnum, response.flags)

    @abstractmethod
    def answered(self, call: CallT, response: Response) -> None:
        """Take the broker's answer to a call of the subclass."""

    def values_read(self, to: Any, values: list[str | None] | FluxError) -> None:
        """Take the values that were read for `to`, or the first error."""
        if isinstance(values, FluxError):
            self.answer_core(to, values.text, values.errnum)
        else:
            self.answer_core(to, kvs.VALUES.write(kvs.Values(values)))

    def _broker_answers(self, response: Response) -> None:
        match self.calls.match(response):
            case None:
                pass  # no open call has this matchtag
            case Forwarded(request):
                self.pass_answer(request, response)
            case OneValueRead(reads, key):
                if (values := reads.take(key, response)) is not None:
                    self.values_read(reads.to, values)
            case call:
                self.answered(call, response)

    # What is sent

    def ask(
        self, topic: str, payload: Payload, call: Forwarded | OneValueRead | CallT, flags: int = 0
    ) -> None:
        """Send a request to the broker."""
        self.to_broker.append(Request(topic, payload, self.calls.open(call), flags))

    def read_keys(self, reads: Reads) -> None:
        """Ask the broker for the values of all keys of `reads`."""
        for key in reads.keys:
            look_up = flux_kvs.look_up(kvs.Lookup(key))
            self.ask(topics.KVS_LOOKUP, look_up, OneValueRead(reads, key))

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
