"""The native door: clients that speak Flux's own wire, of which some are routers themselves.

A client of flux-core sends its requests with an empty route stack. A router (`flux proxy`, a relay,
the broker of a job) sends those of its own clients too, with hops on the stack; their matchtags
collide. So each stack, together with the user that it speaks for, is a peer of its own for the
router and the services, which need to know nothing of stacks:

    connection ── peer ()           userid of the connection   lives as long as the connection
               ├─ peer (hop, ...)   the same userid            until its own disconnects have come
               └─ peer ()           another userid             (the owner may speak for anybody)

The peer of the empty stack alone holds services and subscriptions, gets events, and answers the
requests to its services: these carry no hop of a child. A peer of a longer stack is not over when
its last call is answered: an execution service behind a proxy has no open call after its hello.

Four topics are answered here, as flux-core's local connector does: `event.subscribe`,
`event.unsubscribe`, `service.add` and `service.remove`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import trio

from flux_trio.broker.administration import Changes, WriteLog
from flux_trio.broker.connections import Line, Outgoing, opened_line
from flux_trio.broker.door_topics import DoorTopics
from flux_trio.broker.module_methods import ModuleMethods
from flux_trio.broker.native_credit import Granter
from flux_trio.broker.native_keys import UnknownKeys, left_out
from flux_trio.broker.router import Peer, Router
from flux_trio.messages import (
    NODEID_ANY,
    ROLE_LOCAL,
    ROLE_OWNER,
    USERID_UNKNOWN,
    Control,
    Errno,
    FluxError,
    LocalProtocolError,
    Message,
    Payload,
    Request,
    Response,
    respond,
    respond_error,
    service_of,
)
from flux_trio.messages.topics import DISCONNECT, STATS_CLEAR_METHOD, disconnect_of
from flux_trio.messages.types import NORESPONSE
from flux_trio.process.groups import error_of_block
from flux_trio.transports import Connection, ConnectionClosed, ConnectionOverflow, Credentials

CHILDREN_MAX: Final = 1024
"""Peers behind one connection. A further one is refused with EAGAIN until another is over."""

Stack = tuple[str, ...]


class Speaker(NamedTuple):
    """Who speaks in a message: the hops that it came by, and the user."""

    stack: Stack
    userid: int
    rolemask: int


class _Outgoing(Outgoing):
    """The broker's messages to one peer; the granter counts them."""

    def __init__(
        self, granter: Granter, line: Line, name: str, changes: Changes, stack: Stack
    ) -> None:
        super().__init__(line, name, changes, stack)
        self._granter = granter

    def deliver(self, ref: int, message: Message) -> None:
        super().deliver(ref, message)
        if isinstance(message, Response):
            self._granter.sent(self.name, message)


class _Child(NamedTuple):
    """A peer behind the connection, and the topics, without their last word, that it has called."""

    peer: Peer
    outgoing: Outgoing
    called: set[str]


class NativeShared:
    """What all connections of the native door share.

    `size` is the number of ranks of the instance: requests to any of them are served here.
    """

    def __init__(self, router: Router, write_log: WriteLog, size: int) -> None:
        self.size = size
        self.methods = ModuleMethods(router)
        self.unknown_keys = UnknownKeys(write_log)


async def serve_native_connection(
    router: Router,
    write_log: WriteLog,
    connection: Connection,
    credentials: Credentials,
    shared: NativeShared,
) -> None:
    """Route the messages of a client that speaks Flux's wire, until its connection ends."""
    with opened_line(router, write_log, connection, credentials) as line:
        line.reads_while_sending = not credentials.rolemask & ROLE_OWNER
        client = _Client(router, line, credentials, shared)
        try:
            with error_of_block():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.granter.run)
                    await line.read(client.take)
                    nursery.cancel_scope.cancel()
        finally:
            client.leave()
            await connection.aclose(line.dropped or router.ends)


class _Client:
    """One connection of the native door."""

    def __init__(
        self, router: Router, line: Line, credentials: Credentials, shared: NativeShared
    ) -> None:
        self._router = router
        self._line = line
        self._credentials = credentials
        self._shared = shared
        self._children: dict[Speaker, _Child] = {}
        self.granter: Final = Granter(router, line.connection)
        self._ntaken = 0  # children so far
        self._root = self._add(Speaker((), credentials.userid, credentials.rolemask), line.name)
        self._root.peer.drop, self._root.peer.token = line.drop, credentials.token
        self._own: Final = DoorTopics(router, self._root.peer).methods

    def take(self, message: Message) -> None:
        """Route one message that has come, or answer it."""
        if isinstance(message, Request):
            self._take_request(message)
        elif isinstance(message, Response):
            self._router.route(self._root.peer, message)
        elif not isinstance(message, Control):
            child = self._child(self._speaker((), message.userid, message.rolemask))
            if child is not None:
                self._router.route(child.peer, message)
                if message.topic.endswith(f".{STATS_CLEAR_METHOD}"):  # `flux module stats -C`
                    clear = Request(message.topic, message.payload, flags=NORESPONSE)
                    self._router.route(child.peer, clear)

    def leave(self) -> None:
        """Remove all peers: the connection is over."""
        for child in reversed(self._children.values()):  # those that lean on the first peer first
            self._router.remove(child.peer)
        self._children.clear()

    def _take_request(self, request: Request) -> None:
        own = self._own.get(request.topic)
        if own is not None:
            self._answer(request, own)
            return
        speaker = self._speaker(request.routes, request.userid, request.rolemask)
        if request.topic.endswith(f".{DISCONNECT}") and not request.wants_response:
            for each in self._heard_as(speaker):
                self._disconnect(each, request)
            return
        child = self._child(speaker)
        if child is None:
            text = f"{CHILDREN_MAX} clients behind this connection are open: wait for one to end"
            self._send(request, respond_error(request, Errno.EAGAIN, text))
            return
        called = request.topic.rpartition(".")[0]
        size = self._shared.size
        if not 0 <= request.nodeid < size and request.nodeid != NODEID_ANY:
            text = f"no rank {request.nodeid}: this instance has {size}"
            self._router.refuse(child.peer, request, Errno.EHOSTUNREACH, text)
            return
        if (why := left_out(request.topic)) is not None:
            text = f"{request.topic}: {why}"
            self._router.refuse(child.peer, request, Errno.ENOSYS, text)
            return
        self._shared.unknown_keys.look_at(request)
        if (found := self._shared.methods.find(request, child.peer)) is not None:
            self._router.answer_for(found.holder, child.peer, request, found.method)
            return
        refusal = child.outgoing.refusal(request)
        if refusal:
            self._router.refuse(child.peer, request, Errno.EAGAIN, refusal)
        else:
            child = self._of_cancel(child, speaker, request)
            if request.wants_response:
                child.called.add(called)
            self._router.route(child.peer, self.granter.opens(child.peer.name, request))

    def _speaker(self, stack: Stack, userid: int, rolemask: int) -> Speaker:
        """Return who speaks. The owner says it in the message; a guest is the guest."""
        mine = self._credentials
        if not mine.rolemask & ROLE_OWNER:
            return Speaker(stack, mine.userid, mine.rolemask)
        userid = mine.userid if userid == USERID_UNKNOWN else userid
        return Speaker(stack, userid, (rolemask or mine.rolemask) | ROLE_LOCAL)

    def _child(self, speaker: Speaker) -> _Child | None:
        """Return the peer of `speaker`, a new one if need be; None if there are too many."""
        child = self._children.get(speaker)
        if child is None and len(self._children) <= CHILDREN_MAX:
            self._ntaken += 1
            child = self._add(speaker, f"{self._line.name}.{self._ntaken}")
        return child

    def _add(self, speaker: Speaker, name: str) -> _Child:
        speaks_for = Credentials(speaker.userid, speaker.rolemask, self._credentials.name)
        changes = Changes(speaks_for, self._line.write_log)
        outgoing = _Outgoing(self.granter, self._line, name, changes, speaker.stack)
        child = _Child(outgoing.make_peer(speaker.userid, speaker.rolemask), outgoing, set())
        self._children[speaker] = child
        self._router.add(child.peer)
        return child

    def _heard_as(self, speaker: Speaker) -> list[Speaker]:
        """Return for whom `speaker` may end calls: the owner for all users of the same stack."""
        is_owner = bool(speaker.rolemask & ROLE_OWNER)
        return [
            each
            for each in self._children
            if each.stack == speaker.stack and (is_owner or each.userid == speaker.userid)
        ]

    def _of_cancel(self, child: _Child, speaker: Speaker, request: Request) -> _Child:
        """Return whose stream `request` cancels, if it is a cancel; otherwise `child`."""
        payload = request.payload
        if request.wants_response or not isinstance(payload, dict) or "matchtag" not in payload:
            return child
        for each in self._heard_as(speaker):
            if self._line.open.has(self._children[each].peer.name, payload["matchtag"]):
                return self._children[each]
        return child

    def _disconnect(self, speaker: Speaker, request: Request) -> None:
        """Take the word that `speaker` is done with what it called below a prefix of topics.

        Flux sends one for each prefix. The service hears it with the last of its prefixes.
        """
        child = self._children[speaker]
        prefix, service = request.topic.rpartition(".")[0], service_of(request.topic)
        if prefix not in child.called:
            return
        child.called.remove(prefix)
        if not any(service_of(each) == service for each in child.called):
            farewell = msgspec.structs.replace(request, topic=disconnect_of(service), payload=None)
            self._router.route(child.peer, farewell)
            child.peer.called.pop(service, None)
        if not child.called and speaker.stack:
            del self._children[speaker]
            self._router.remove(child.peer)
            self._line.open.forget(child.peer.name)
            self.granter.forget(child.peer.name)

    def _answer(self, request: Request, method: Callable[[Request], Payload]) -> None:
        try:
            self._send(request, respond(request, method(request)))
        except FluxError as error:
            self._send(request, respond_error(request, error.errnum, error.text))

    def _send(self, request: Request, response: Response | None) -> None:
        """Send an answer of the door itself; if the peer does not read, drop it."""
        if response is None:
            return
        answer = msgspec.structs.replace(response, rolemask=ROLE_OWNER, routes=request.routes)
        try:
            self._line.connection.send_nowait(answer)
        except (ConnectionOverflow, LocalProtocolError) as error:
            self._line.drop(str(error))
        except ConnectionClosed:
            pass
