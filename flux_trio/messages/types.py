"""The four message types and their header fields (RFC 3, Common Message Format).

Byte-level framing belongs to the codecs; here a message is a value. Flags that say which
parts a frame has (topic, payload, route) follow from the value and are not stored in it.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any, Final

import msgspec

NODEID_ANY: Final = 0xFFFFFFFF
MATCHTAG_NONE: Final = 0
USERID_UNKNOWN: Final = 0xFFFFFFFF

ROLE_OWNER: Final = 1  # RFC 12: the instance owner
ROLE_USER: Final = 2  # RFC 12: a guest
ROLE_LOCAL: Final = 4  # RFC 12: connected on this host

# An object, the text of an error response, or nothing. Treated as immutable once sent:
# in one process the receiver is handed the sender's own object.
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


class Request(msgspec.Struct, frozen=True, gc=False):
    """A call of `topic` at whoever holds the service (RFC 3, Request Message Type).

    `routes` names the hops it came by, the sender first; the broker fills in routes, userid
    and rolemask at the door.
    """

    topic: str
    payload: Payload = None
    matchtag: int = MATCHTAG_NONE
    flags: int = 0
    nodeid: int = NODEID_ANY
    userid: int = USERID_UNKNOWN
    rolemask: int = 0
    routes: tuple[str, ...] = ()

    @property
    def sender(self) -> str:
        """The identity that RFC 6 keys per-request state by; "" before the door."""
        return self.routes[0] if self.routes else ""

    @property
    def is_streaming(self) -> bool:
        """Several responses are expected."""
        return bool(self.flags & STREAMING)

    @property
    def wants_response(self) -> bool:
        """The sender did not ask for responses to be suppressed."""
        return not self.flags & NORESPONSE

    @property
    def is_owner(self) -> bool:
        """The sender has the instance owner's role."""
        return bool(self.rolemask & ROLE_OWNER)


class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer: errnum 0 and an optional object, or an errnum and optional text (RFC 6)."""

    topic: str
    payload: Payload = None
    errnum: int = 0
    matchtag: int = MATCHTAG_NONE
    flags: int = 0
    userid: int = USERID_UNKNOWN
    rolemask: int = 0
    routes: tuple[str, ...] = ()

    @property
    def ends_rpc(self) -> bool:
        """No further response follows, so the matchtag is free again (RFC 6, Matchtag Field)."""
        return self.errnum != 0 or not self.flags & STREAMING

    @property
    def error_text(self) -> str:
        """The text of an error response, "" when it has none."""
        return self.payload if isinstance(self.payload, str) else ""


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something published to every subscriber of `topic` (RFC 3, Event Message Type)."""

    topic: str
    payload: Payload = None
    sequence: int = 0
    flags: int = 0
    userid: int = USERID_UNKNOWN
    rolemask: int = 0


class Control(msgspec.Struct, frozen=True, gc=False):
    """A word between direct peers, never routed (RFC 3, Control Message Type)."""

    type: int
    status: int
    flags: int = 0
    userid: int = USERID_UNKNOWN
    rolemask: int = 0


Message = Request | Response | Event | Control


def service_of(topic: str) -> str:
    """The service name: the topic up to its first period (RFC 3, Request Message Type)."""
    return topic.partition(".")[0]
