"""A module's access to the broker: its inbox, its service names, its clock.

A `Handle` looks the same to a module wherever it runs. Messages travel through the router of this
process (`LocalHandle`), or over a connection (`flux_trio.broker.remote`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import trio

from flux_trio.broker.log import LogBook, LogEntry
from flux_trio.broker.router import BATCH_MAX, Peer, Router
from flux_trio.clock import Now, passing
from flux_trio.cores.pages import page_size
from flux_trio.messages import (
    NODEID_ANY,
    Calls,
    Errno,
    Event,
    Flag,
    FluxError,
    Message,
    Payload,
    Request,
    Response,
    expect_payload,
)
from flux_trio.transports import Inbox

Clock = Now
C = TypeVar("C")


class Handle(ABC):
    """One module's end of the broker: received messages, sent messages, and the time."""

    def __init__(self, name: str, userid: int, clock: Clock) -> None:
        self.name = name
        self.userid = userid  # the instance owner's: the module has the owner's rights
        self.now = clock  # seconds since the Unix epoch
        self.passed = passing(clock)  # monotonic seconds, for durations
        self.t_active = clock()  # when the module last received a message or made a call
        # (place of the send, message), or (-1, value) for a value that the module posted to itself
        self._inbox: Inbox[tuple[int, Any]] = Inbox()
        self._taken: list[tuple[int, Any]] = []  # the last batch, if turns are recorded
        self._calls: Calls[trio.MemorySendChannel[Response]] = Calls()
        self._abandoned: set[int] = set()  # matchtags of calls that the caller left before the end

    @abstractmethod
    def register(self, service: str) -> None:
        """Claim a service name; FluxError(EEXIST) if another peer holds it."""

    @abstractmethod
    def subscribe(self, pattern: str) -> None:
        """Receive events whose topic matches the glob `pattern`."""

    @abstractmethod
    def send(self, message: Request | Response | Event) -> None:
        """Send `message`; never blocks."""

    def answer(self, response: Response | None) -> None:
        """Send what `respond` or `respond_error` returns: None if the request wants no response."""
        if response is not None:
            self.send(response)

    @abstractmethod
    def log(self, level: int, text: str) -> None:
        """Write to the instance's log; `level` is a syslog severity."""

    @abstractmethod
    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Put a record of this module into the trace."""

    def note_all(self, notes: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Put several records of this module, each (kind, data), into the trace."""
        for kind, data in notes:
            self.note(kind, data)

    def turn_sink(self) -> Callable[[dict[str, Any]], None] | None:
        """Return what puts this core's turns into the trace; None if no turn is recorded."""
        return None

    def places_of_taken(self) -> dict[int, int]:
        """Return where the messages received last were sent, by their `id`."""
        return {id(message): ref for ref, message in self._taken if ref >= 0}

    async def receive(self) -> list[Any]:
        """Wait; return waiting messages and posted values, at least one and at most BATCH_MAX."""
        return self._unwrap(await self._inbox.get_batch(page_size(BATCH_MAX)))

    async def receive_until(self, deadline: float) -> list[Any]:
        """Like `receive`, but returns [] if `deadline` (seconds since the epoch) comes first."""
        return await self.receive_for(max(0.0, deadline - self.now()))

    async def receive_for(self, seconds: float) -> list[Any]:
        """Like `receive`, but returns [] if `seconds` pass first."""
        deadline = trio.current_time() + seconds
        return self._unwrap(await self._inbox.get_batch_until(deadline, page_size(BATCH_MAX)))

    def post(self, value: Any) -> None:
        """Append `value`, the result of work in another task, to the waiting messages."""
        self._inbox.put((-1, value))

    def adopt(self, core: C) -> C:
        """Return the core that runs here: `core`, or its substitute in a simulated world."""
        return core

    def waiting(self) -> int:
        """Return how many messages and values wait to be received."""
        return len(self._inbox)

    async def call(
        self, topic: str, payload: Payload = None, nodeid: int = NODEID_ANY
    ) -> dict[str, Any]:
        """Send one request and return its response; FluxError with errnum and text of a failure.

        Responses bypass the inbox, so a module may call this while no task receives.
        """
        async with self.stream(topic, payload, Flag.NONE, nodeid) as responses:
            async for response in responses:
                return response
        raise FluxError(Errno.ENODATA, f"{topic}: answered ENODATA")

    @asynccontextmanager
    async def stream(
        self,
        topic: str,
        payload: Payload = None,
        flags: int = Flag.STREAMING,
        nodeid: int = NODEID_ANY,
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Iterate over a stream of responses; ENODATA ends it, another error is raised.

        FluxError(EPROTO) too for a payload that is no object, which flux-core can send.
        After the block, further responses are dropped; the service is not notified.
        """
        answers, incoming = trio.open_memory_channel[Response](math.inf)  # bounded by the sender
        matchtag = self._calls.open(answers)
        self.t_active = self.now()
        self.send(Request(topic, payload, matchtag, int(flags), nodeid))
        try:
            async with aclosing(_payloads(incoming)) as payloads:
                yield payloads
        finally:
            if self._calls.close(matchtag) is not None:
                self._abandoned.add(matchtag)

    def _trace_received(self, ref: int, message: Message) -> None:  # noqa: B027 - see `LocalHandle`
        """Trace that `message`, sent at place `ref`, was received, if the trace is here."""

    def _trace_received_all(self, batch: list[tuple[int, Any]]) -> None:  # noqa: B027
        """Trace a batch; posted values have no place and are not traced."""

    def _trace_dropped(self, ref: int, message: Message, reason: str) -> None:  # noqa: B027
        """Trace that `message`, sent at place `ref`, will not be received, if the trace is here."""

    def _take_in(self, ref: int, message: Message) -> None:
        if isinstance(message, Response) and message.matchtag:
            waiter = self._calls.match(message)
            if waiter is not None:
                self._trace_received(ref, message)
                waiter.send_nowait(message)
                return
            if message.matchtag in self._abandoned:
                self._trace_dropped(ref, message, "the caller has left")
                if message.ends_rpc:
                    self._abandoned.remove(message.matchtag)
                return
        self._inbox.put((ref, message))

    def _unwrap(self, batch: list[tuple[int, Any]]) -> list[Any]:
        self.t_active = self.now()
        self._trace_received_all(batch)
        if self.turn_sink() is not None:
            self._taken = batch
        return [item for _, item in batch]


class LocalHandle(Handle):
    """A handle in the broker's process; the supervisor creates it and closes it with the module."""

    def __init__(
        self,
        name: str,
        router: Router,
        clock: Clock,
        log: LogBook,
        userid: int,
        rolemask: int,
        nbefore: int = 0,
    ) -> None:
        super().__init__(name, userid, clock)
        self.process: trio.Process | None = None  # the module's own process, if it has one
        self.ask_to_end: Callable[[], float] | None = None  # returns how many seconds to wait
        self.abandoned: list[str] = []  # names of what goes on when the module has ended
        self._router = router
        self._log = log
        self.peer = Peer(name, userid, rolemask, self._take_in, self._inbox.__len__, nbefore)
        router.add(self.peer)

    def register(self, service: str) -> None:
        self._router.register(self.peer, service)

    def subscribe(self, pattern: str) -> None:
        self.peer.subscriptions.add(pattern)

    def send(self, message: Request | Response | Event) -> None:
        self._router.route(self.peer, message)

    def log(self, level: int, text: str) -> None:
        self._log.write(LogEntry(self.now(), level, self.name, text))

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self._router.trace.note(kind, self.name, data)

    def note_all(self, notes: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._router.trace.note_all(self.name, notes)

    def turn_sink(self) -> Callable[[dict[str, Any]], None] | None:
        return self._note_turn if self._router.trace.has_turn_sinks else None

    def _note_turn(self, data: dict[str, Any]) -> None:
        self._router.trace.turn(self.name, data)

    def is_traced(self) -> bool:
        """Return whether the instance's trace has a reader."""
        return self._router.trace.has_sinks

    @contextmanager
    def beside(self, name: str) -> Iterator[Handle]:
        """Yield a second peer of the same user, for the duration of the block.

        Its calls have matchtags and an order of their own; a core sends and receives here. No other
        peer may have the `name`.
        """
        rolemask = self.peer.rolemask
        other = LocalHandle(name, self._router, self.now, self._log, self.userid, rolemask)
        try:
            yield other
        finally:
            other.close()

    def close(self, reason: str = "") -> None:
        """Leave the broker; synchronous, so that no message can arrive in between.

        `reason` says why the module ended by itself, for later callers of its services.
        """
        self._inbox.close()
        undelivered = [item for item in self._inbox.drain() if item[0] >= 0]
        self._router.remove(self.peer, undelivered, reason)

    def _trace_received(self, ref: int, message: Message) -> None:
        self._router.trace.received(self.name, "", message, ref)

    def _trace_received_all(self, batch: list[tuple[int, Any]]) -> None:
        self.peer.guests.clear()
        self._router.trace.received_all(self.name, batch)

    def _trace_dropped(self, ref: int, message: Message, reason: str) -> None:
        self._router.trace.dropped(self.name, message, ref, reason)


async def _payloads(
    incoming: trio.MemoryReceiveChannel[Response],
) -> AsyncGenerator[dict[str, Any], None]:
    async for response in incoming:
        if response.errnum == Errno.ENODATA:
            return
        if response.errnum:
            raise FluxError(response.errnum, response.error_text)
        yield expect_payload(response, dict[str, Any])
        if response.ends_rpc:
            return
