"""The four message types and their header fields (RFC 3, Common Message Format).

The codecs do byte-level framing; here a message is a value. The flags that say which parts a frame
has (topic, payload, route) follow from the value and are not stored in it.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import lru_cache
from typing import Any, Final, final

import msgspec

from flux_trio.formats.meanings import Matchtag

NODEID_ANY: Final = 0xFFFFFFFF
MATCHTAG_NONE: Final = 0
USERID_UNKNOWN: Final = 0xFFFFFFFF

ROLE_OWNER: Final = 1  # RFC 12: the instance owner
ROLE_USER: Final = 2  # RFC 12: a guest
ROLE_LOCAL: Final = 4  # RFC 12: connected on this host

# An object, the text of an error response, or None. Do not change a payload after sending it:
# within one process the receiver gets the sender's own object.
Payload = dict[str, Any] | str | None


class Flag(IntFlag):
    """Header flags (RFC 3, flag-*)."""

    NONE = 0
    TOPIC = 0x01
    PAYLOAD = 0x02
    NORESPONSE = 0x04
    ROUTE = 0x08
    UPSTREAM = 0x10
    PRIVATE = 0x20
    STREAMING = 0x40
    USER1 = 0x80


# Plain integers for the hot paths: an IntFlag operation costs a microsecond.
NORESPONSE: Final = int(Flag.NORESPONSE)
PRIVATE: Final = int(Flag.PRIVATE)
STREAMING: Final = int(Flag.STREAMING)


@final
class Request(msgspec.Struct, frozen=True, gc=False):
    """A call of `topic` at the provider of the service (RFC 3, Request Message Type).

    `routes` names the hops so far, the sender first. The broker fills in routes, userid and
    rolemask when it accepts the request from a connection.
    """

    topic: str
    payload: Payload = None
    matchtag: Matchtag = MATCHTAG_NONE
    flags: int = 0
    nodeid: int = NODEID_ANY
    userid: int = USERID_UNKNOWN
    rolemask: int = 0
    routes: tuple[str, ...] = ()

    @property
    def sender(self) -> str:
        """Return the identity of the sender (RFC 6); "" before the broker has set it."""
        return self.routes[0] if self.routes else ""

    @property
    def is_streaming(self) -> bool:
        return bool(self.flags & STREAMING)

    @property
    def wants_response(self) -> bool:
        return not self.flags & NORESPONSE

    @property
    def is_owner(self) -> bool:
        return bool(self.rolemask & ROLE_OWNER)

    @property
    def is_of_guest(self) -> bool:
        """Whether the rolemask is known, and is not the owner's."""
        return self.rolemask != 0 and not self.is_owner


@final
class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer: errnum 0 and an optional object, or an errnum and optional text (RFC 6)."""

    topic: str
    payload: Payload = None
    errnum: int = 0
    matchtag: Matchtag = MATCHTAG_NONE
    flags: int = 0
    userid: int = USERID_UNKNOWN
    rolemask: int = 0
    routes: tuple[str, ...] = ()

    @property
    def ends_rpc(self) -> bool:
        """Return whether this response is the last of its RPC and frees its matchtag (RFC 6)."""
        return self.errnum != 0 or not self.flags & STREAMING

    @property
    def error_text(self) -> str:
        """Return the text of an error response, "" without a text."""
        return self.payload if isinstance(self.payload, str) else ""


@final
class Event(msgspec.Struct, frozen=True, gc=False):
    """A message published to every subscriber of `topic` (RFC 3, Event Message Type)."""

    topic: str
    payload: Payload = None
    sequence: int = 0
    flags: int = 0
    userid: int = USERID_UNKNOWN
    rolemask: int = 0


@final
class Control(msgspec.Struct, frozen=True, gc=False):
    """A message between direct peers, never routed (RFC 3, Control Message Type)."""

    type: int
    status: int
    flags: int = 0
    userid: int = USERID_UNKNOWN
    rolemask: int = 0


Message = Request | Response | Event | Control


@lru_cache(maxsize=1024)  # for each message; an instance has about 150 topics
def service_of(topic: str) -> str:
    """Return the service name: the topic up to its first period (RFC 3, Request Message Type)."""
    return topic.partition(".")[0]


class Level(IntEnum):
    """Severity of a log message, as syslog's (RFC 5424); 0 is the worst."""

    EMERG = 0
    ALERT = 1
    CRIT = 2
    ERR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6
    DEBUG = 7
