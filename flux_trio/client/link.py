"""One connection of a client: outgoing requests, incoming messages, and the tasks that wait.

Two tasks run it, `read` and `write`; the client's users call everything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import anyio

from flux_trio.client.credit import CreditPool
from flux_trio.client.errors import ConnectionLost, check_process
from flux_trio.client.responses import STREAM_QUEUE_MAX, Answer, Queue, Reply
from flux_trio.client.websocket import WebSocket
from flux_trio.formats.glob import glob_matches
from flux_trio.messages import (
    Calls,
    Errno,
    Event,
    FluxError,
    LocalProtocolError,
    Message,
    Payload,
    RemoteProtocolError,
    Request,
    Response,
)
from flux_trio.messages.codec import decode_frame, encode, join

OUTGOING_BYTES_MAX: Final = 4 * 2**20  # with more queued, senders wait

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Counts of one connection since it was opened, and the calls and streams open now."""

    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    calls_waiting: int
    streams_open: int


class Link:
    """A WebSocket that matches responses with requests."""

    def __init__(self, socket: WebSocket, uri: str) -> None:
        self._socket = socket
        self._uri = uri
        self._pid = os.getpid()
        self.calls: Calls[Answer | Queue[dict[str, Any]]] = Calls()
        self.subscriptions: list[tuple[str, Queue[Event]]] = []
        self.credit = CreditPool()
        self._answers: set[Answer] = set()  # calls that wait for their only response
        self._queues: set[Queue[Any]] = set()  # of responses, and of events
        self._lost: ConnectionLost | None = None  # set once, when the reader ends
        self._reader_ended = anyio.Event()
        self._pause: anyio.CancelScope | None = None  # around the reader while it waits for room
        self._closing = False
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0  # including those that are being written
        self._wake_writer = anyio.Event()  # replaced when the writer has no work
        self._written = anyio.Event()  # replaced after each write
        self._messages_sent = 0
        self._messages_received = 0

    @property
    def is_lost(self) -> bool:
        """Return whether the connection is lost, so that no more can be sent."""
        return self._lost is not None

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(
            self._messages_sent,
            self._messages_received,
            self._socket.bytes_sent,
            self._socket.bytes_received,
            len(self._answers),
            len(self._queues),
        )

    # Sending

    def send(self, request: Request) -> None:
        """Queue `request`. Raises ConnectionLost, LocalProtocolError."""
        check_process(self._pid)
        if self._lost is not None:
            raise ConnectionLost(str(self._lost))
        data = encode(request)
        self._messages_sent += 1
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)
        if len(self._outgoing) == 1:
            self._wake_writer.set()

    async def wait_for_room(self) -> None:
        """Wait while more than OUTGOING_BYTES_MAX bytes are queued."""
        while self._outgoing_bytes > OUTGOING_BYTES_MAX and self._lost is None:
            await self._written.wait()

    def open_call(self, topic: str, payload: Payload) -> Answer:
        """Send a request with one response; the caller must wait for the answer, then close it."""
        answer = Answer(self._uri)
        answer.matchtag = self.calls.open(answer)
        self._answers.add(answer)
        try:
            self.send(Request(topic, payload, answer.matchtag))
        except (ConnectionLost, LocalProtocolError):
            self.close_call(answer)
            raise
        self._end_pause()
        return answer

    def close_call(self, answer: Answer) -> None:
        """Stop waiting for `answer`; a second call has no effect."""
        self.calls.close(answer.matchtag)
        self._answers.discard(answer)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()

    @contextmanager
    def open_queue(self) -> Iterator[Queue[Any]]:
        """Yield a queue that ends with the connection."""
        queue: Queue[Any] = Queue()
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)
            queue.close()

    async def write(self) -> None:
        """Write queued messages; after `close`, write the rest and the close frame."""
        try:
            while self._outgoing or not self._closing:
                if self._outgoing:
                    await self._write_queued()
                else:
                    self._wake_writer = anyio.Event()
                    await self._wake_writer.wait()
            await self._socket.send_close()
        except ConnectionLost:
            pass  # the reader gets the same error and tells all waiting tasks

    async def _write_queued(self) -> None:
        encoded, self._outgoing = self._outgoing, []
        for _, frame in join(encoded):
            await self._socket.send(frame)
            self._outgoing_bytes -= len(frame)
        written, self._written = self._written, anyio.Event()
        written.set()

    async def close(self) -> None:
        """Write the queued messages and a close frame, and wait for the instance's close frame."""
        self._closing = True
        self._end_pause()
        self._wake_writer.set()
        await self._reader_ended.wait()

    # Receiving

    async def read(self) -> None:
        """Deliver messages until the connection ends; then end all calls and streams."""
        try:
            while True:
                for message in decode_frame(await self._socket.receive()):
                    self._messages_received += 1
                    await self._handle(message)
        except ConnectionLost as lost:
            self._end("this client is closed" if self._closing else str(lost))
        except RemoteProtocolError as error:
            self._end(f"the instance sent an invalid message: {error}")
            await self._socket.aclose()

    def _end(self, text: str) -> None:
        self._lost = ConnectionLost(text)
        for answer in self._answers:
            answer.end(self._lost)
        for queue in self._queues:
            queue.end(ConnectionLost(text))
        self._written.set()
        self._reader_ended.set()

    async def _handle(self, message: Message) -> None:
        if isinstance(message, Response):
            waiting = self.calls.match(message)
            if isinstance(waiting, Answer):
                self._answers.discard(waiting)
                waiting.end(message)
            elif waiting is not None:
                await self._deliver_streamed(waiting, message)
        elif isinstance(message, Event):
            for pattern, queue in list(self.subscriptions):
                if glob_matches(pattern, message.topic):
                    await self._put(queue, message)

    async def _deliver_streamed(self, queue: Queue[dict[str, Any]], response: Response) -> None:
        if response.errnum == 0:
            await self._put(queue, Reply(response.payload, response.topic, self._uri))
        if response.errnum not in (0, Errno.ENODATA):
            queue.end(FluxError(response.errnum, response.error_text))
        elif response.ends_rpc:
            queue.end()

    async def _put(self, queue: Queue[T], item: T) -> None:
        """Queue `item`; if the queue is full, pause reading until there is room.

        A pause would delay the response of a waiting call, for ever if the reader of this queue
        made that call. In that case the queue ends instead.
        """
        if queue.put_nowait(item):
            return
        if not self._answers and not self._closing:
            with anyio.CancelScope() as self._pause:
                await queue.put(item)
            if not self._pause.cancelled_caught:
                return
        queue.end(FluxError(Errno.EOVERFLOW, f"{STREAM_QUEUE_MAX} responses wait to be read"))
