"""The interface of every transport: a `Connection`, and the ways in which it ends.

A connection delivers messages between two peers in the order sent (RFC 3, Message Routing). The
transport identifies the peer (`Credentials`) before it makes the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

import msgspec

from flux_trio.messages import Message

# Limits of the queue for a peer that does not read. They are many times a scheduler's burst of a
# few thousand answers. A peer that reaches them is stuck, and the sender decides to drop it.
QUEUE_MESSAGES_MAX: Final = 65_536
QUEUE_BYTES_MAX: Final = 64 * 2**20
UNREAD: Final = "wait for the peer to read them"
"""How the text of a ConnectionOverflow goes on after what waits."""
# A peer is behind if more than this waits, in addition to the data in the socket's buffer.
BEHIND_MESSAGES: Final = 1024
BEHIND_BYTES: Final = 2**20


class Credentials(msgspec.Struct, frozen=True):
    """The identity of the peer: a userid, the RFC 12 role bits, and a name for the log.

    `token` is the digest of the token that identifies the peer, "" if something else does.
    """

    userid: int
    rolemask: int
    name: str
    token: str = ""


class TransportError(Exception):
    """A connection cannot do the requested operation; the text is for a person to read."""


class ConnectionClosed(TransportError):
    """Nothing more can be sent: one of the two ends has closed the connection."""


class ConnectionOverflow(TransportError):
    """The peer reads too slowly: its queue is full. The message was not queued."""


class EndOfConnection(TransportError):
    """The connection was closed regularly, by either side; the text is the reason given."""


class ConnectionLost(TransportError):
    """The connection broke, or this side closed it because the peer violated the protocol."""


class ConnectionRefused(TransportError):
    """Nobody listens at the address, or the server refused the token or the user."""


def ended_because(reason: str) -> str:
    """Return the text of an EndOfConnection."""
    return f"the connection was closed: {reason}" if reason else "the connection was closed"


class Connection(Protocol):
    """A two-way, ordered stream of messages with one peer."""

    def send_nowait(self, message: Message) -> None:
        """Queue `message`.

        Raises ConnectionClosed; ConnectionOverflow if QUEUE_MESSAGES_MAX messages or
        QUEUE_BYTES_MAX bytes already wait; LocalProtocolError for a message that cannot travel.
        """

    @property
    def is_behind(self) -> bool:
        """Return whether more than BEHIND_MESSAGES or BEHIND_BYTES wait for the peer to read."""

    async def wait_room(self) -> None:
        """Wait until the peer is not behind, or the connection is closed.

        After a ConnectionOverflow there is room for more messages then, unless the other
        connections of the same guest have taken it.
        """

    async def receive(self) -> list[Message]:
        """Return the messages that came, in order, at least one; only one task may wait here.

        Raises EndOfConnection after the last message, ConnectionLost if the connection broke.
        """

    async def aclose(self, reason: str = "") -> None:
        """Send the queued messages, then close with `reason`; a second call has no effect.

        Takes a few seconds at most, whatever the peer does and even when cancelled.
        """


OnConnection: TypeAlias = Callable[[Connection, Credentials], Awaitable[None]]
"""What a door does with a connection: it owns the connection while it runs."""
