"""A remote peer: a nursery in the broker serves its connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

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
from flux_trio.trace import Trace
from flux_trio.transports import (
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOverflow,
    Credentials,
    EndOfConnection,
)

OPEN_MAX: Final = 4096  # RPCs of one connection: each uses a service's memory
TOO_MANY: Final = f"{OPEN_MAX} requests of this connection are open: wait for some of them to end"
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
    name = router.unique_name(credentials.name)
    with _requests_of(router, credentials) as guest:
        open_rpcs = _OpenRpcs(guest)
        try:
            changes = Changes(credentials, write_log)
            outgoing = _Outgoing(name, router.trace, write_log, connection, open_rpcs, changes)
            await _serve(router, connection, credentials, outgoing)
        finally:
            open_rpcs.forget()


async def _serve(
    router: Router, connection: Connection, credentials: Credentials, outgoing: _Outgoing
) -> None:
    name = outgoing.name
    peer = Peer(name, credentials.userid, credentials.rolemask, outgoing.deliver, outgoing.waiting)
    peer.drop, peer.token = outgoing.drop, credentials.token
    router.add(peer)
    try:
        with outgoing.scope:
            while not outgoing.dropped:
                for message in await connection.receive():
                    refusal = outgoing.refusal(message) if isinstance(message, Request) else ""
                    if refusal and isinstance(message, Request):
                        router.refuse(peer, message, Errno.EAGAIN, refusal)
                    else:
                        router.route(peer, message)
                await outgoing.catch_up()
    except ConnectionLost as error:
        outgoing.write_log(Level.WARNING, name, f"connection lost: {error}")
    except EndOfConnection:
        pass  # the peer closed the connection regularly
    finally:
        router.remove(peer)
        await connection.aclose(outgoing.dropped or router.ends)


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


class _Outgoing:
    """The broker's messages to one peer. The first overflow ends it: no message follows a gap."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        write_log: WriteLog,
        connection: Connection,
        open_rpcs: _OpenRpcs,
        changes: Changes,
    ) -> None:
        self.name = name
        self._trace = trace
        self.write_log = write_log
        self._connection = connection
        self.scope = trio.CancelScope()  # around the reader of the connection
        self.dropped = ""  # the reason, after the peer has been dropped
        self._open = open_rpcs
        self._changes = changes

    def refusal(self, request: Request) -> str:
        """Count `request` and return why it is refused, or ""; it gets an answer either way."""
        if request.matchtag and request.wants_response:
            self._open.begin(request)
            self._changes.begin(request)
        return self._open.refusal()

    async def catch_up(self) -> None:
        """Pause reading until services have answered and the peer has read its messages."""
        with trio.move_on_after(PAUSE_S):
            await self._open.wait_fewer()
        with trio.move_on_after(BEHIND_S_MAX) as scope:
            if self._connection.is_behind:  # rare: no checkpoint otherwise
                await self._connection.wait_room()
        if scope.cancelled_caught:
            self.drop(f"it sends requests and has not read its answers for {BEHIND_S_MAX:g} s")

    def waiting(self) -> int:
        """Return 1 if the peer is behind; otherwise the queued messages are on their way."""
        return int(self._connection.is_behind)

    def deliver(self, ref: int, message: Message) -> None:
        """Queue `message`; if it cannot be sent, it is lost, and its sender is not affected."""
        if isinstance(message, Response) and message.ends_rpc:
            self._open.end(message)
            self._changes.end(message)
        if self.dropped:
            self._trace.dropped(self.name, message, ref, self.dropped)
            return
        try:
            self._connection.send_nowait(message)
        except ConnectionOverflow as error:
            self._trace.dropped(self.name, message, ref, str(error))
            self.drop(str(error))
        except ConnectionClosed as error:
            self._trace.dropped(self.name, message, ref, str(error))
        except LocalProtocolError as error:
            self._trace.dropped(self.name, message, ref, str(error))
            self.write_log(Level.ERR, self.name, str(error))
            self._answer_unsendable(ref, message, str(error))
        else:
            self._trace.received(self.name, "", message, ref)

    def drop(self, reason: str) -> None:
        """End the connection; nothing more is sent, and nothing that comes is routed."""
        self.dropped = reason
        self.write_log(Level.ERR, self.name, f"dropped: {reason}")
        self.scope.cancel()

    def _answer_unsendable(self, ref: int, message: Message, text: str) -> None:
        """Send an error in place of an answer that fits into no frame, usually for its size."""
        if isinstance(message, Response) and message.errnum == 0:
            errnum = int(Errno.EMSGSIZE)
            routes = message.routes
            self.deliver(
                ref, Response(message.topic, text, errnum, message.matchtag, routes=routes)
            )


class _OpenRpcs:
    """Open RPCs of a peer, by matchtag; a matchtag may be in use twice.

    `guest` counts the RPCs of all connections of the user; None for the instance owner.
    """

    def __init__(self, guest: GuestRequests | None) -> None:
        self._guest = guest
        self._own = OpenRequests(CALLS_AHEAD)
        self._counts = (self._own,) if guest is None else (guest, self._own)
        self._asked: dict[int, list[tuple[bool, int]]] = {}  # matchtag -> (is a stream, size)

    def refusal(self) -> str:
        """Return why the peer may open no more RPCs, or ""."""
        if self._own.count > OPEN_MAX:
            return TOO_MANY
        return "" if self._guest is None else self._guest.refusal()

    def begin(self, request: Request) -> None:
        """Count `request`, which wants a response."""
        size = 0 if self._guest is None else payload_bytes(request)
        for each in self._counts:
            each.begin(request, size)
        self._asked.setdefault(request.matchtag, []).append((request.is_streaming, size))

    def end(self, response: Response) -> None:
        """Count the last response of an RPC."""
        asked = self._asked.get(response.matchtag)
        if asked is None:
            return
        self._end(*asked.pop(0))
        if not asked:
            del self._asked[response.matchtag]

    def _end(self, is_streaming: bool, size: int) -> None:
        for each in self._counts:
            each.end(size, is_streaming=is_streaming)

    def forget(self) -> None:
        """Forget all RPCs, since the peer is gone."""
        for asked in self._asked.values():
            for each in asked:
                self._end(*each)
        self._asked.clear()

    async def wait_fewer(self) -> None:
        """Wait until few enough calls are open here, and of the guest."""
        for each in self._counts:
            await each.wait_fewer()
