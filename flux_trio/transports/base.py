"""What every transport offers: a `Connection`, and the ways in which one ends.

A connection carries messages between two peers in the order sent (RFC 3, Message Routing).
Who the peer is was settled before there was a connection: `Credentials`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from flux_trio.messages import Message

# What may wait for a peer that does not read. A scheduler's burst of a few thousand answers fits
# many times over; beyond it the peer is stuck, and whoever sends decides to drop it.
QUEUE_MESSAGES_MAX: Final = 65_536
QUEUE_BYTES_MAX: Final = 64 * 2**20
# Beyond these a peer is behind: more than a socket's buffer waits besides what is in that.
BEHIND_MESSAGES: Final = 1024
BEHIND_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who is at the other end: a userid, the RFC 12 role bits, and a name for the log."""

    userid: int
    rolemask: int
    name: str


class TransportError(Exception):
    """A connection cannot do what was asked; the text is for the person who reads it."""


class ConnectionClosed(TransportError):
    """Nothing more can be sent: this end was closed, or the other end is gone."""


class ConnectionOverflow(TransportError):
    """The peer reads too slowly: what waits for it has reached its bound. Nothing was queued."""


class EndOfConnection(TransportError):
    """The stream ended in good order, by either side; the text is the reason given."""


class ConnectionLost(TransportError):
    """The connection broke, or was closed because the other side did not keep to the protocol."""


class ConnectionRefused(TransportError):
    """There is nobody at that address, or the token was not accepted."""


class Connection(Protocol):
    """One peer's two-way, ordered stream of messages."""

    def send_nowait(self, message: Message) -> None:
        """Queue `message`.

        Raises ConnectionClosed; ConnectionOverflow when QUEUE_MESSAGES_MAX messages or
        QUEUE_BYTES_MAX bytes wait already; LocalProtocolError for what may not travel.
        """

    @property
    def is_behind(self) -> bool:
        """The peer reads more slowly than it is sent to: more waits than BEHIND_MESSAGES."""

    async def receive(self) -> list[Message]:
        """What came, in order, at least one message; one task at a time may wait here.

        Raises EndOfConnection once all was read, ConnectionLost when it broke.
        """

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued, say goodbye with `reason`, and end; again does nothing.

        Takes a few seconds at most, whatever the peer does and even when cancelled.
        """
