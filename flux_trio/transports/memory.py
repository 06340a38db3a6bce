"""Two connected ends in one process: the receiver gets the sender's own objects."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from flux_trio.messages import Message
from flux_trio.transports.base import (
    BEHIND_MESSAGES,
    QUEUE_MESSAGES_MAX,
    UNREAD,
    ConnectionClosed,
    ConnectionOverflow,
    EndOfConnection,
    ended_because,
)
from flux_trio.transports.inbox import Inbox


@dataclass(eq=False, slots=True)
class _Pair:
    """State that the two ends share."""

    bound: int
    closed: bool = False  # by either end
    reason: str = ""  # given by the end that closed first
    inboxes: tuple[Inbox[Message], Inbox[Message]] = field(
        default_factory=lambda: (Inbox(), Inbox())
    )
    room: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    """Tasks of both ends that wait until the other end has read."""


class MemoryConnection:
    """One end of a `memory_pair`: a `Connection` that never breaks."""

    def __init__(self, pair: _Pair, end: int) -> None:
        self._pair = pair
        self._incoming = pair.inboxes[end]
        self._outgoing = pair.inboxes[1 - end]
        self._closed = False  # by this end: it will not read the waiting messages

    def send_nowait(self, message: Message) -> None:
        """See `Connection`; the bound counts only messages."""
        if self._pair.closed:
            raise ConnectionClosed(ended_because(self._pair.reason))
        if len(self._outgoing) >= self._pair.bound:
            raise ConnectionOverflow(f"{self._pair.bound} messages {UNREAD}")
        self._outgoing.put(message)

    @property
    def is_behind(self) -> bool:
        return len(self._outgoing) > min(BEHIND_MESSAGES, self._pair.bound - 1)  # a full one is

    async def wait_room(self) -> None:
        await trio.lowlevel.checkpoint()
        while self.is_behind and not self._pair.closed:
            await self._pair.room.park()

    async def receive(self) -> list[Message]:
        try:
            messages = await self._incoming.get_batch()
            self._pair.room.unpark_all()
        except trio.EndOfChannel:
            messages = []
        if self._closed or not messages:
            raise EndOfConnection(ended_because(self._pair.reason))
        return messages

    async def aclose(self, reason: str = "") -> None:
        """See `Connection`; the other end can still read the messages sent before."""
        self._closed = True
        if not self._pair.closed:
            self._pair.closed = True
            self._pair.reason = reason
            self._incoming.close()
            self._outgoing.close()
            self._pair.room.unpark_all()
        await trio.lowlevel.cancel_shielded_checkpoint()


def memory_pair(bound: int = QUEUE_MESSAGES_MAX) -> tuple[MemoryConnection, MemoryConnection]:
    """Return two connected ends; `bound` messages may wait in each direction."""
    pair = _Pair(bound)
    return MemoryConnection(pair, 0), MemoryConnection(pair, 1)
