"""A connection with bounds and a pace, over any wire.

A `Wire` is one way for messages to travel: it encodes them and moves the bytes. A `PacedConnection`
adds what all of them need: a bounded queue for a peer that reads slowly, rests after work that took
long, turns among the connections of a guest, and an end that takes limited time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final, NoReturn, Protocol, TypeVar

import trio

from flux_trio.messages import Message, RemoteProtocolError
from flux_trio.messages.codec import join
from flux_trio.process.groups import error_of_block
from flux_trio.transports.base import (
    BEHIND_BYTES,
    BEHIND_MESSAGES,
    QUEUE_BYTES_MAX,
    QUEUE_MESSAGES_MAX,
    UNREAD,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOverflow,
    EndOfConnection,
    TransportError,
    ended_because,
)
from flux_trio.transports.inbox import Inbox
from flux_trio.transports.share import LONG_REST_FACTOR, SLICE_MESSAGES_MAX, Share

CLOSE_S_MAX: Final = 2.0  # to send queued messages and say goodbye; then the wire is cut
DECODE_S_MAX: Final = 0.005  # for one slice; after a longer slice the peer's reader rests


class Wire(Protocol):
    """Carries messages between two peers, without bounds or pace."""

    def encode(self, message: Message) -> bytes:
        """Return `message` in bytes. Raises LocalProtocolError if it cannot travel."""

    async def send(self, piece: bytes) -> None:
        """Send messages that are joined. Raises ConnectionClosed if the connection is gone."""

    async def receive(self) -> Iterator[Message]:
        """Return the next messages, decoded while the caller reads them.

        Raises ConnectionClosed if the connection is gone, and RemoteProtocolError, as the iterator
        does, if the peer violates the protocol.
        """

    async def aclose(self, reason: str, violation: RemoteProtocolError | None = None) -> None:
        """Say goodbye with `reason`, and close; a cancel cuts the wire."""

    def end(self) -> TransportError:
        """Return how the connection ended: regularly by the peer, or by a failure."""


class PacedConnection:
    """One end of a wire, a `Connection`, which lives in a block of `opened`.

    A guest's connection has the `share` of that guest.
    """

    def __init__(self, wire: Wire, share: Share | None = None) -> None:
        self._wire = wire
        self._share = share
        self._queue: Inbox[bytes] = Inbox()
        self._queued_messages = 0  # including those of the piece that is being sent
        self._queued_bytes = 0
        self._room = trio.lowlevel.ParkingLot()  # tasks that wait until the peer is not behind
        self._written = trio.Event()  # set when `write_all` has ended
        self._ended: TransportError | None = None  # set once, when this end closes
        self._arriving: Iterator[Message] | None = None  # the rest of what the wire has received
        self._rest_s = 0.0  # to wait before the next slice is decoded

    def send_nowait(self, message: Message) -> None:
        self._send_encoded(self._wire.encode(message))

    def _send_encoded(self, data: bytes) -> None:
        if self._queue.closed:
            raise ConnectionClosed(str(self._end()))
        if (
            self._queued_messages >= QUEUE_MESSAGES_MAX
            or self._queued_bytes + len(data) > QUEUE_BYTES_MAX
        ):
            raise ConnectionOverflow(
                f"{self._queued_messages} messages of {self._queued_bytes} bytes {UNREAD}"
            )
        if self._share is not None and not self._share.has_room(len(data)):
            raise ConnectionOverflow(
                f"{self._share.queued_bytes} bytes wait for the connections of this user to be read"
            )
        self._count_queued(1, len(data))
        self._queue.put(data)

    def _count_queued(self, messages: int, size: int) -> None:
        self._queued_messages += messages
        self._queued_bytes += size
        if self._share is not None:
            self._share.queued_bytes += size

    @property
    def is_behind(self) -> bool:
        return self._queued_messages > BEHIND_MESSAGES or self._queued_bytes > BEHIND_BYTES

    async def wait_room(self) -> None:
        await trio.lowlevel.checkpoint()
        while self.is_behind and not self._queue.closed:
            await self._room.park()

    async def receive(self) -> list[Message]:
        """See `Connection`; returns a slice of what the wire has received at once.

        After a slice that took long to decode, the connection rests, so that others are served. A
        guest's slices take turns with those of the guest's other connections.
        """
        messages: list[Message] = []
        while not messages:
            if self._arriving is None:
                self._arriving = await self._received()
            if self._share is not None:
                async with self._share.turn():
                    messages = await self._decode(self._share.slice_messages)
            else:
                await trio.sleep(self._rest_s)
                began = time.thread_time()  # CPU time: the peer does not pay for a busy machine
                messages = await self._decode(SLICE_MESSAGES_MAX)
                took = time.thread_time() - began
                self._rest_s = LONG_REST_FACTOR * took if took > DECODE_S_MAX else 0.0
        return messages

    async def _received(self) -> Iterator[Message]:
        try:
            arriving = await self._wire.receive()
        except ConnectionClosed:
            self._close_queue()
            raise self._end() from None
        except RemoteProtocolError as error:
            await self._refuse(error)
        if self._ended is not None:
            raise self._ended
        return arriving

    async def _decode(self, count: int) -> list[Message]:
        """Return the next messages that came, at most `count`; no checkpoint unless invalid."""
        assert self._arriving is not None
        try:
            messages = list(islice(self._arriving, count))
        except RemoteProtocolError as error:
            await self._refuse(error)
        if len(messages) < count:
            self._arriving = None
        return messages

    async def aclose(self, reason: str = "") -> None:
        """See `Connection`; takes at most CLOSE_S_MAX seconds."""
        if self._ended is None:
            self._ended = EndOfConnection(ended_because(reason))
            await self._close_wire(reason)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def write_all(self) -> None:
        """Send queued messages until this end is closed or the connection is gone."""
        try:
            while True:
                for count, piece in join(await self._queue.get_batch()):
                    await self._wire.send(piece)
                    self._count_queued(-count, -len(piece))
                    if self._room and not self.is_behind:
                        self._room.unpark_all()
        except trio.EndOfChannel:
            pass
        except ConnectionClosed:
            self._close_queue()
        finally:
            self._count_queued(-self._queued_messages, -self._queued_bytes)  # the rest is lost
            self._room.unpark_all()
            self._written.set()

    def _close_queue(self) -> None:
        self._queue.close()
        self._room.unpark_all()

    async def _refuse(self, violation: RemoteProtocolError) -> NoReturn:
        """Close the connection, since the peer violated the protocol."""
        if self._ended is None:
            self._ended = ConnectionLost(str(violation))
            await self._close_wire(str(violation), violation)
        raise self._ended

    async def _close_wire(self, reason: str, violation: RemoteProtocolError | None = None) -> None:
        self._close_queue()
        with trio.move_on_after(CLOSE_S_MAX, shield=True):
            try:
                await self._written.wait()
            finally:  # after the timeout, this cuts the wire
                await self._wire.aclose(reason, violation)

    def _end(self) -> TransportError:
        """Return how the connection ended: by this end, regularly by the peer, or by a failure."""
        return self._ended or self._wire.end()


Paced = TypeVar("Paced", bound=PacedConnection)


@asynccontextmanager
async def opened(connection: Paced) -> AsyncIterator[Paced]:
    """Write what is queued on `connection`; close it at the end of the block.

    A cancel from outside does not stop the writer: what was queued before the end is sent first.
    """
    writing = trio.CancelScope(shield=True)
    with error_of_block():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write, connection, writing)
            try:
                yield connection
            finally:
                await connection.aclose()
                writing.cancel()


async def _write(connection: PacedConnection, writing: trio.CancelScope) -> None:
    with writing:
        await connection.write_all()
