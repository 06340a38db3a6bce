"""What the bridge sends in a turn, to the core and to the broker, and its open calls. Data.

A call is a value that says what its answer is for.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from flux_trio.formats.meanings import JobId
from flux_trio.messages import ROLE_OWNER, Calls, Event, Level, Payload, Request, Response
from flux_trio.messages.types import NORESPONSE

TAGS_AFTER: Final = 1 << 31
"""Matchtags up to it are of the handle, which may have calls of its own."""
GUEST: Final = "guest-rooms"
"""The sender of the bridge's own requests to the core."""

Passed: TypeAlias = Request | Response | Event
Object: TypeAlias = dict[str, Any]


class Step(Enum):
    """What a room asks the broker; a room has one of these calls open at a time, but for WRITE."""

    FIND = "what is at its place below the job"
    MAKE = "a new namespace"
    READ_LOG = "the exec eventlog that an earlier program has left"
    READ_PLACES = "how much output an earlier program has left"
    LINK = "the link to the namespace"
    WRITE = "events and output"
    ROOT = "the root of the namespace"
    MOVE = "the content at its place below the job"
    REMOVE = "the end of the namespace"


class RoomCall(msgspec.Struct, frozen=True):
    """Answers a request of a job's room."""

    id: JobId
    step: Step
    npieces: int = 0  # of output, in a WRITE


class Forwarded(msgspec.Struct, frozen=True):
    """Answers a request of the core that only has another matchtag here."""

    request: Request


class ValueRead(msgspec.Struct, frozen=True):
    """Answers the lookup of `key`, for a request of the core about one key."""

    request: Request
    key: str


class OneValueRead(msgspec.Struct, frozen=True):
    """Answers the lookup of one of the keys of `reads`."""

    reads: Reads
    key: str


class Leftover(msgspec.Struct, frozen=True):
    """A job whose room an earlier program has left."""

    id: JobId


class Reads(msgspec.Struct, eq=False):
    """Several keys that are read; `values` has those that were read.

    It is None after an error, which was the answer. `to` is a request of the core, or a job.
    """

    to: Request | Leftover
    keys: list[str]
    values: dict[str, str | None] | None = msgspec.field(default_factory=dict)


class NamespacesListed(msgspec.Struct, frozen=True):
    """Answers the question for all namespaces of the kvs."""


class Told(msgspec.Struct, frozen=True):
    """Answers a request whose only bad news is an error, which goes to the log."""

    what: str


Call: TypeAlias = RoomCall | Forwarded | ValueRead | OneValueRead | NamespacesListed | Told


class OutputOf(msgspec.Struct, frozen=True):
    """A piece of the output of a job, or its end."""

    id: JobId


class InputOf(msgspec.Struct, frozen=True):
    """The tasks of a job have taken input, or have refused it."""

    id: JobId


CoreCall: TypeAlias = OutputOf | InputOf


class Mail:
    """The messages of one turn; `now` is its time in seconds since the Unix epoch."""

    def __init__(self, owner: int) -> None:
        self.now = 0.0
        self.to_core: list[Passed] = []
        self.to_broker: list[Passed] = []
        self.logs: list[tuple[Level, str]] = []
        self.end = ""
        self.calls: Calls[Call] = Calls(TAGS_AFTER)
        self.core_calls: Calls[CoreCall] = Calls()
        self._owner = owner

    def ask(self, topic: str, payload: Payload, call: Call, flags: int = 0) -> None:
        """Send a request to the broker."""
        self.to_broker.append(Request(topic, payload, self.calls.open(call), flags))

    def ask_core(self, topic: str, payload: Payload, call: CoreCall, flags: int = 0) -> int:
        """Send a request of the instance's owner to the core; return its matchtag."""
        matchtag = self.core_calls.open(call)
        self.request_core(topic, payload, matchtag, flags)
        return matchtag

    def tell_core(self, topic: str, payload: Payload) -> None:
        """Send a request to the core that wants no response."""
        self.request_core(topic, payload, flags=NORESPONSE)

    def request_core(self, topic: str, payload: Payload, tag: int = 0, flags: int = 0) -> None:
        """Send a request of the instance's owner to the core, with a matchtag or without."""
        owner, role = self._owner, ROLE_OWNER
        request = Request(topic, payload, tag, flags, userid=owner, rolemask=role, routes=(GUEST,))
        self.to_core.append(request)

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
