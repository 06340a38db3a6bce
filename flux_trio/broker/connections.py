"""Remote peers: a connection is read until it ends, and has one peer or several behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import trio

from flux_trio.broker.administration import Changes, WriteLog
from flux_trio.broker.guests import GuestRequests, OpenRequests
from flux_trio.broker.router import Peer, Router
from flux_trio.messages import (
    ROLE_OWNER,
    Errno,
    Level,
    LocalProtocolError,
    Message,
    Request,
    Response,
    payload_bytes,
)
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Trace
from flux_trio.transports import (
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOverflow,
    Credentials,
    EndOfConnection,
)

OPEN_MAX: Final = 4096  # RPCs of one connection of a guest: each uses a service's memory
OPEN_OF_OWNER_MAX: Final = 24_000  # the same, of the owner: programs hold one watch for each job
TOO_MANY: Final = "{} requests of this connection are open: wait for some of them to end"
CALLS_AHEAD: Final = 256  # with more unanswered calls, the broker stops reading,
PAUSE_S: Final = 0.05  # at most this long, since some calls are answered late by nature
BEHIND_S_MAX: Final = 10.0  # a peer that sends must read its answers within this time


async def serve_connection(
    router: Router, write_log: WriteLog, connection: Connection, credentials: Credentials
) -> None:
    """Route the messages of `connection` until it ends; then notify the services it called.

    A peer that does not read its messages is dropped, and the log names it. A peer that asks faster
    than services answer is read more slowly, so that other peers do not wait for it.
    """
    with opened_line(router, write_log, connection, credentials) as line:
        outgoing = Outgoing(line, line.name, Changes(credentials, write_log))
        peer = outgoing.make_peer(credentials.userid, credentials.rolemask)
        peer.drop, peer.token = line.drop, credentials.token
        router.add(peer)

        def take(message: Message) -> None:
            refusal = outgoing.refusal(message) if isinstance(message, Request) else ""
            if refusal and isinstance(message, Request):
                router.refuse(peer, message, Errno.EAGAIN, refusal)
            else:
                router.route(peer, message)

        try:
            await line.read(take)
        finally:
            router.remove(peer)
            await connection.aclose(line.dropped or router.ends)


@contextmanager
def _requests_of(router: Router, credentials: Credentials) -> Iterator[GuestRequests | None]:
    """Yield the state shared by the connections of one guest; None for the instance owner."""
    if credentials.rolemask & ROLE_OWNER:
        yield None
        return
    userid = credentials.userid
    guest = router.guests.setdefault(userid, GuestRequests(userid))
    guest.connections += 1
    try:
        yield guest
    finally:
        guest.connections -= 1
        if not guest.connections:
            del router.guests[userid]


@contextmanager
def opened_line(
    router: Router, write_log: WriteLog, connection: Connection, credentials: Credentials
) -> Iterator[Line]:
    """Yield what the peers behind `connection` share; their open RPCs are forgotten at the end."""
    name = router.unique_name(credentials.name)
    with _requests_of(router, credentials) as guest:
        open_rpcs = OpenRpcs(guest)
        try:
            yield Line(name, router.trace, write_log, connection, open_rpcs)
        finally:
            open_rpcs.forget_all()


class Line:
    """A connection, its reader, and what the peers behind it share; `name` is for the log."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        write_log: WriteLog,
        connection: Connection,
        open_rpcs: OpenRpcs,
    ) -> None:
        self.name = name
        self.trace = trace
        self.write_log = write_log
        self.connection = connection
        self.open = open_rpcs
        self.scope = trio.CancelScope()  # around the reader of the connection
        self.dropped = ""  # the reason, after the connection has been dropped
        self.reads_while_sending = True
        """Whether the peer reads answers while it sends; False for the owner's programs of Flux.

        libflux reads nothing while a send waits for room. It is read on without a pause, so that it
        comes to reading before the queue of its answers is full.
        """

    async def read(self, take: Callable[[Message], None]) -> None:
        """Hand each message that comes to `take`, until the connection ends or is dropped."""
        try:
            with self.scope:
                while not self.dropped:
                    for message in await self.connection.receive():
                        take(message)
                    await self._catch_up()
        except ConnectionLost as error:
            self.write_log(Level.WARNING, self.name, f"connection lost: {error}")
        except EndOfConnection:
            pass  # the peer closed the connection regularly

    async def _catch_up(self) -> None:
        """Pause reading until services have answered and the peer has read its messages."""
        with trio.move_on_after(PAUSE_S):
            await self.open.wait_fewer()
        if not self.reads_while_sending:
            return
        with trio.move_on_after(BEHIND_S_MAX) as scope:
            if self.connection.is_behind:  # rare: no checkpoint otherwise
                await self.connection.wait_room()
        if scope.cancelled_caught:
            self.drop(f"it sends requests and has not read its answers for {BEHIND_S_MAX:g} s")

    def drop(self, reason: str) -> None:
        """End the connection; nothing more is sent, and nothing that comes is routed."""
        self.dropped = reason
        self.write_log(Level.ERR, self.name, f"dropped: {reason}")
        self.scope.cancel()


class Outgoing:
    """The broker's messages to one peer. The first overflow ends it: no message follows a gap.

    `stack` is what a response has for a route on the connection: the hops that the request came
    with. None leaves the route of the router.
    """

    def __init__(
        self, line: Line, name: str, changes: Changes, stack: tuple[str, ...] | None = None
    ) -> None:
        self.line = line
        self.name = name
        self._changes = changes
        self._stack = stack

    def make_peer(self, userid: int, rolemask: int) -> Peer:
        """Return the peer that gets these messages."""
        return Peer(self.name, userid, rolemask, self.deliver, self.waiting)

    def refusal(self, request: Request) -> str:
        """Count `request` and return why it is refused, or ""; it gets an answer either way."""
        if request.matchtag and request.wants_response:
            self.line.open.begin(self.name, request)
            self._changes.begin(request)
        return self.line.open.refusal()

    def waiting(self) -> int:
        """Return 1 if the peer is behind; otherwise the queued messages are on their way."""
        return int(self.line.connection.is_behind)

    def deliver(self, ref: int, message: Message) -> None:
        """Queue `message`; if it cannot be sent, it is lost, and its sender is not affected."""
        line = self.line
        was_stream = False
        if isinstance(message, Response) and message.ends_rpc:
            was_stream = line.open.end(self.name, message)
            self._changes.end(message)
        if line.dropped:
            line.trace.dropped(self.name, message, ref, line.dropped)
            return
        try:
            line.connection.send_nowait(self._as_sent(message, was_stream=was_stream))
        except ConnectionOverflow as error:
            line.trace.dropped(self.name, message, ref, str(error))
            line.drop(str(error))
        except ConnectionClosed as error:
            line.trace.dropped(self.name, message, ref, str(error))
        except LocalProtocolError as error:
            line.trace.dropped(self.name, message, ref, str(error))
            line.write_log(Level.ERR, self.name, str(error))
            self._answer_unsendable(ref, message, str(error))
        else:
            line.trace.received(self.name, "", message, ref)

    def _as_sent(self, message: Message, *, was_stream: bool) -> Message:
        if self._stack is None or not isinstance(message, Response):
            return message
        return on_flux_wire(message, self._stack, was_stream=was_stream)

    def _answer_unsendable(self, ref: int, message: Message, text: str) -> None:
        """Send an error in place of an answer that fits into no frame, usually for its size."""
        if isinstance(message, Response) and message.errnum == 0:
            errnum = int(Errno.EMSGSIZE)
            routes = message.routes
            self.deliver(
                ref, Response(message.topic, text, errnum, message.matchtag, routes=routes)
            )


def on_flux_wire(response: Response, stack: tuple[str, ...], *, was_stream: bool) -> Response:
    """Return `response` as it travels on Flux's own wire, to the client with the `stack`.

    Flux wants the flag of a stream on its last response too. Its clients drop a response without a
    role.
    """
    flags = response.flags | (STREAMING if was_stream else 0)
    rolemask = response.rolemask or ROLE_OWNER
    return msgspec.structs.replace(response, routes=stack, flags=flags, rolemask=rolemask)


class OpenRpcs:
    """Open RPCs of the peers behind a connection; a matchtag of a peer may be in use twice.

    `guest` counts the RPCs of all connections of the user; None for the instance owner.
    """

    def __init__(self, guest: GuestRequests | None) -> None:
        self._guest = guest
        self._own = OpenRequests(CALLS_AHEAD)
        self._counts = (self._own,) if guest is None else (guest, self._own)
        # peer -> matchtag -> (is a stream, size)
        self._asked: dict[str, dict[int, list[tuple[bool, int]]]] = {}

    def refusal(self) -> str:
        """Return why the connection may open no more RPCs, or ""."""
        most = OPEN_OF_OWNER_MAX if self._guest is None else OPEN_MAX
        if self._own.count > most:
            return TOO_MANY.format(most)
        return "" if self._guest is None else self._guest.refusal()

    def begin(self, peer: str, request: Request) -> None:
        """Count `request` of `peer`, which wants a response."""
        size = 0 if self._guest is None else payload_bytes(request)
        for each in self._counts:
            each.begin(request, size)
        asked = self._asked.setdefault(peer, {})
        asked.setdefault(request.matchtag, []).append((request.is_streaming, size))

    def end(self, peer: str, response: Response) -> bool:
        """Count the last response of an RPC of `peer`; return whether the RPC was a stream."""
        by_matchtag = self._asked.get(peer, {})
        asked = by_matchtag.get(response.matchtag)
        if asked is None:
            return False
        is_streaming, size = asked.pop(0)
        self._end(is_streaming, size)
        if not asked:
            del by_matchtag[response.matchtag]
        return is_streaming

    def has(self, peer: str, matchtag: int) -> bool:
        """Return whether `peer` has an open RPC with `matchtag`."""
        return matchtag in self._asked.get(peer, ())

    def _end(self, is_streaming: bool, size: int) -> None:
        for each in self._counts:
            each.end(size, is_streaming=is_streaming)

    def forget(self, peer: str) -> None:
        """Forget all RPCs of `peer`, which is gone."""
        for asked in self._asked.pop(peer, {}).values():
            for each in asked:
                self._end(*each)

    def forget_all(self) -> None:
        """Forget all RPCs, since the connection is gone."""
        for peer in list(self._asked):
            self.forget(peer)

    async def wait_fewer(self) -> None:
        """Wait until few enough calls are open here, and of the guest."""
        for each in self._counts:
            await each.wait_fewer()
