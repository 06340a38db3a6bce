"""What the bridge of the execution service asks of the broker and of the core. Data."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.attach.mail import Forwarded, Mail, OneValueRead
from flux_trio.formats.meanings import JobId
from flux_trio.messages import ROLE_OWNER, Calls, Payload, Request
from flux_trio.messages.types import NORESPONSE

GUEST: Final = "guest-namespaces"
"""The sender of the bridge's own requests to the core."""

Object: TypeAlias = dict[str, Any]


class Step(Enum):
    """What a namespace asks the broker. It has one of these calls open at a time, but for WRITE."""

    FIND = "what is at its place below the job"
    MAKE = "a new namespace"
    READ_LOG = "the exec eventlog that an earlier program has left"
    READ_PLACES = "how much output an earlier program has left"
    LINK = "the link to the namespace"
    WRITE = "events and output"
    ROOT = "the root of the namespace"
    MOVE = "the content at its place below the job"
    REMOVE = "the end of the namespace"


class NamespaceCall(msgspec.Struct, frozen=True):
    """Answers a request of a job's namespace."""

    id: JobId
    step: Step
    npieces: int = 0  # of output, in a WRITE


class ValueRead(msgspec.Struct, frozen=True):
    """Answers the lookup of `key`, for a request of the core about one key."""

    request: Request
    key: str


class Leftover(msgspec.Struct, frozen=True):
    """A job whose namespace an earlier program has left."""

    id: JobId


class NamespacesListed(msgspec.Struct, frozen=True):
    """Answers the question for all namespaces of the kvs."""


class Acknowledged(msgspec.Struct, frozen=True):
    """Answers a request whose only bad news is an error, which goes to the log."""

    what: str


Call: TypeAlias = (
    NamespaceCall | Forwarded | ValueRead | OneValueRead | NamespacesListed | Acknowledged
)


class OutputOf(msgspec.Struct, frozen=True):
    """A piece of the output of a job, or its end."""

    id: JobId


class InputOf(msgspec.Struct, frozen=True):
    """The tasks of a job have taken input, or have refused it."""

    id: JobId


CoreCall: TypeAlias = OutputOf | InputOf


class ExecMail(Mail[Call]):
    """The messages of one turn of the execution service, whose core gets requests of the bridge."""

    def __init__(self, owner: int) -> None:
        super().__init__()
        self.core_calls: Calls[CoreCall] = Calls()
        self._owner = owner

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
