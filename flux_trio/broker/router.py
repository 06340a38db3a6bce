"""Routing: the rules of RFC 3 for one broker, and of RFC 6 for peers that go away.

The router is synchronous: when `route` returns, the receiver has the message or it was refused.
Messages between two peers arrive in the order sent. The router traces every message, once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from flux_trio.broker.guests import GuestQueue, GuestRequests
from flux_trio.formats.glob import Glob
from flux_trio.messages import (
    ROLE_OWNER,
    USERID_UNKNOWN,
    Errno,
    Event,
    FluxError,
    Message,
    Payload,
    Request,
    Response,
    disconnect_request,
    respond,
    respond_error,
    service_of,
)
from flux_trio.messages.topics import SERVICE_BACK_EVENT, disconnect_of
from flux_trio.messages.types import NORESPONSE, PRIVATE
from flux_trio.trace import Trace

# Requests that wait at one service; further requests get EAGAIN. A flood must not use up the
# instance's memory, which responses need because nobody can refuse them. Guests are refused at half
# of the limit, so that all guests together leave room for the instance owner, and the owner's
# clients at three quarters of it: a service whose requests are refused may have to end.
REQUESTS_WAITING_MAX: Final = 1 << 18

# Messages that a module takes at a time. The others wait for its next turn: the modules and clients
# that have something to do meanwhile have their turns first.
BATCH_MAX: Final = 2_500

# Service names that a peer asked for while nobody held them. The peer is notified when they are
# registered. A peer asks for few services; it is not notified of names beyond this limit.
CALLED_IN_VAIN_MAX: Final = 64


TOPICS_KNOWN_MAX: Final = 256
"""Topics of events whose subscribers are known; they are looked up again when it is full."""


SUBSCRIPTIONS_MAX: Final = 256
"""Subscriptions of all peers of a user: each is matched with each topic."""


class Subscriptions:
    """The subscriptions of one peer (RFC 3, Event Message Type): globs, and prefixes, of topics.

    One that was subscribed to twice is there twice. `changed` is called after each change; the
    router sets it.
    """

    def __init__(self) -> None:
        self.globs: list[Glob] = []
        self.prefixes: list[str] = []  # of clients of the native door
        self.changed: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self.globs) + len(self.prefixes)

    def add(self, pattern: str) -> None:
        """Subscribe to `pattern`; FluxError if it is too long."""
        self.globs.append(Glob(pattern))
        self.changed()

    def remove(self, pattern: str) -> None:
        """Remove one subscription to `pattern`; ValueError if there is none."""
        place = [glob.pattern for glob in self.globs].index(pattern)
        del self.globs[place]
        self.changed()

    def add_prefix(self, prefix: str) -> None:
        """Subscribe to the topics that begin with `prefix`."""
        self.prefixes.append(prefix)
        self.changed()

    def remove_prefix(self, prefix: str) -> None:
        """Remove one subscription to `prefix`; ValueError if there is none."""
        self.prefixes.remove(prefix)
        self.changed()

    def match(self, topic: str) -> bool:
        """Return whether the peer gets events of this topic."""
        return topic.startswith(tuple(self.prefixes)) or any(
            glob.matches(topic) for glob in self.globs
        )


class Peer:
    """One party at the broker: a module, or a connection from outside.

    `nbefore` is how many peers of this name there were before. They may have used the same
    matchtags, so the routes have a second hop, which tells whose request is answered.
    """

    def __init__(
        self,
        name: str,
        userid: int,
        rolemask: int,
        deliver: Callable[[int, Message], None],
        waiting: Callable[[], int],
        nbefore: int = 0,
    ) -> None:
        self.name = name
        self.userid = userid
        self.rolemask = rolemask
        self.deliver = deliver  # gets the place of the send and the message; never blocks
        self.waiting = waiting  # returns how many messages it has not received, as far as known
        self.routes = (name, str(nbefore)) if nbefore else (name,)
        self.services: set[str] = set()
        self.subscriptions = Subscriptions()
        self.called: dict[str, None] = {}  # services that it has sent requests to, in order
        self.called_in_vain: set[str] = set()  # services that it called while nobody held the name
        # Requests delivered to this peer and not answered: sender -> matchtag -> request.
        self.inflight: dict[str, dict[int, Request]] = {}
        self.guests = GuestQueue()
        self.drop: Callable[[str], None] | None = None  # ends its connection for a reason
        self.token = ""  # the digest of the token that it came with

    def answered(self, sender: str, matchtag: int) -> None:
        """Forget a request of `sender` after its last response, if it is still open."""
        requests = self.inflight.get(sender)
        if requests is not None:
            requests.pop(matchtag, None)
            if not requests:
                del self.inflight[sender]


class Router:
    """Peers, service names, and the routing of each message."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.peers: dict[str, Peer] = {}
        self.services: dict[str, Peer] = {}
        self.ended: dict[str, str] = {}  # service -> why nobody holds it, if its holder crashed
        self.ends = ""  # why all services end, once they do
        self.guests: dict[int, GuestRequests] = {}  # by userid, while they have a connection
        self.sequence = 0  # of the last event
        self._connections = 0
        self._subscribers: dict[str, list[Peer]] = {}  # by topic, those of the last events

    def unique_name(self, name: str) -> str:
        """Return a peer name for one of several connections of the same user."""
        self._connections += 1
        return f"{name}-{self._connections}"

    def add(self, peer: Peer) -> None:
        """Add `peer`; FluxError(EEXIST) if the name is in use."""
        if peer.name in self.peers:
            raise FluxError(Errno.EEXIST, f"a peer named {peer.name} is already connected")
        self.peers[peer.name] = peer
        peer.subscriptions.changed = self._subscribers.clear

    def subscriptions_of(self, userid: int) -> int:
        """Return how many subscriptions all peers of a user have."""
        return sum(len(peer.subscriptions) for peer in self.peers.values() if peer.userid == userid)

    def drop_tokens(self, tokens: Collection[str], reason: str) -> None:
        """End the connections of the peers that came with one of `tokens`, by their digests."""
        for peer in list(self.peers.values()):
            if peer.drop is not None and peer.token in tokens:
                peer.drop(reason)

    def register(self, peer: Peer, service: str) -> None:
        """Give `peer` the service name; FluxError(EEXIST) names the current holder.

        An event notifies the peers that called an earlier holder or called while there was no
        holder, so that nobody needs to poll (readings: Job manager gone).
        """
        holder = self.services.get(service)
        if holder is not None:
            raise FluxError(Errno.EEXIST, f"service {service} is already held by {holder.name}")
        self.services[service] = peer
        self.ended.pop(service, None)
        peer.services.add(service)
        if any(
            service in each.called or service in each.called_in_vain for each in self.peers.values()
        ):
            for each in self.peers.values():
                each.called_in_vain.discard(service)
            self._publish(peer, Event(SERVICE_BACK_EVENT, {"service": service}))

    def unregister(self, peer: Peer, service: str) -> None:
        """Take a service name from its holder `peer`; open requests to it get ENOSYS.

        Raises FluxError(ENOENT) if `peer` does not hold the name.
        """
        if service not in peer.services:
            raise FluxError(Errno.ENOENT, f"{peer.name} does not hold service {service}")
        del self.services[service]
        peer.services.remove(service)
        waiting = [
            (sender, matchtag, request)
            for sender, requests in peer.inflight.items()
            for matchtag, request in requests.items()
            if service_of(request.topic) == service
        ]
        for sender, matchtag, request in waiting:
            peer.answered(sender, matchtag)
            self._refuse_on_behalf_of(peer, request, 0)

    def remove(
        self, peer: Peer, undelivered: Iterable[tuple[int, Message]] = (), reason: str = ""
    ) -> None:
        """Remove `peer`: free its names, answer its callers with ENOSYS, notify its services.

        `undelivered` are messages that it had not received, with the place of each send. `reason`
        says why it ended by itself; callers get it until another peer holds the name.
        """
        if self.peers.get(peer.name) is not peer:
            return
        del self.peers[peer.name]
        if peer.subscriptions:
            self._subscribers.clear()
        notified = self._services_to_notify(peer)
        for service in peer.services:
            del self.services[service]
            if reason:
                self.ended[service] = reason
        peer.services.clear()  # its later messages in their name are stale
        self._answer_callers_of(peer, undelivered)
        for service in notified:
            holder = self.services.get(service)
            if holder is not None:
                holder.inflight.pop(peer.name, None)  # nobody waits for the responses any more
                farewell = disconnect_request(service, peer.name, peer.userid, peer.rolemask)
                holder.deliver(self.trace.sent(peer.name, holder.name, farewell), farewell)

    def _services_to_notify(self, gone: Peer) -> dict[str, None]:
        """Return the services it called and the services of its own callers.

        The callers need it because a scheduler that has said hello must learn that the job manager
        is gone even before its first alloc request (readings: Job manager gone).
        """
        notified = dict(gone.called)
        if not gone.services:
            return notified
        for peer in self.peers.values():
            if not gone.services.isdisjoint(peer.called):
                notified |= dict.fromkeys(sorted(peer.services))
        return notified

    def route(self, sender: Peer, message: Message) -> None:
        """Route `message`, with the userid and rolemask of `sender`."""
        if type(message) is Response:  # isinstance of a Struct costs several times as much
            self._route_response(sender, message)
        elif type(message) is Request:
            self._route_request(sender, message)
        elif type(message) is Event:
            self._publish(sender, message)
        # a control message is for the direct peer only (RFC 3)

    def refuse(self, sender: Peer, message: Request, errnum: int, text: str) -> None:
        """Answer a request of `sender` in place of the service."""
        request = _stamped(sender, message)
        holder = self.services.get(service_of(request.topic))
        to = "" if holder is None else holder.name
        self._refuse(sender, request, errnum, text, self.trace.sent(sender.name, to, request))

    def answer_for(
        self, holder: Peer, sender: Peer, message: Request, method: Callable[[Request], Payload]
    ) -> None:
        """Answer a request of `sender` in the name of `holder`, whose process never sees it."""
        request = _stamped(sender, message)
        ref = self.trace.sent(sender.name, holder.name, request)
        self.trace.received(holder.name, "", request, ref)
        try:
            response = respond(request, method(message))
        except FluxError as error:
            response = respond_error(request, error.errnum, error.text)
        if response is not None:
            sender.deliver(self.trace.sent(holder.name, sender.name, response), response)

    def _route_request(self, sender: Peer, message: Request) -> None:
        request = _stamped(sender, message)
        service = service_of(request.topic)
        holder = self.services.get(service)
        if holder is None:
            if len(sender.called_in_vain) < CALLED_IN_VAIN_MAX:
                sender.called_in_vain.add(service)
            ref = self.trace.sent(sender.name, "", request)
            unknown = f"No service matching {request.topic} is registered"
            self._refuse(sender, request, Errno.ENOSYS, self._why_nobody(service, unknown), ref)
            return
        is_owner = request.rolemask & ROLE_OWNER
        waiting = holder.waiting()
        if waiting >= REQUESTS_WAITING_MAX // 2 and waiting >= _limit(sender, request):
            ref = self.trace.sent(sender.name, holder.name, request)
            text = f"{service} has {waiting} requests waiting; try again later"
            self._refuse(sender, request, Errno.EAGAIN, text, ref)
            return
        sender.called[service] = None
        if not is_owner:
            if not waiting:
                holder.guests.clear()
            reason = holder.guests.refusal(request, service)
            if reason:
                ref = self.trace.sent(sender.name, holder.name, request)
                self._refuse(sender, request, Errno.EAGAIN, reason, ref)
                return
        if request.flags & NORESPONSE:
            if request.topic == disconnect_of(service):
                _forget_requests(sender, holder, service)
        elif request.matchtag:
            holder.inflight.setdefault(sender.name, {})[request.matchtag] = request
        holder.deliver(self.trace.sent(sender.name, holder.name, request), request)

    def _route_response(self, sender: Peer, response: Response) -> None:
        to = response.routes[0] if response.routes else ""
        receiver = self.peers.get(to)
        stale = self._why_stale(sender, receiver, to, response)
        if receiver is None or stale:
            ref = self.trace.sent(sender.name, to, response)
            self.trace.dropped(sender.name, response, ref, stale)
            return
        if response.matchtag and response.ends_rpc:
            sender.answered(to, response.matchtag)
        is_claim = response.rolemask or response.userid != USERID_UNKNOWN
        if is_claim or not sender.rolemask & ROLE_OWNER:  # no identity means a service of the owner
            response = msgspec.structs.replace(
                response, userid=sender.userid, rolemask=sender.rolemask
            )
        receiver.deliver(self.trace.sent(sender.name, to, response), response)

    def _why_stale(self, sender: Peer, receiver: Peer | None, to: str, answer: Response) -> str:
        """Return why nobody waits for `answer`, or "" if its receiver waits.

        A reloaded module has the name of its predecessor and may use the same matchtags, but
        answers to the predecessor's requests must not reach it.
        """
        if service_of(answer.topic) not in sender.services:
            return f"{sender.name} does not hold that service"
        if receiver is None:
            return f"{to} is gone"
        if not answer.matchtag:
            return ""
        is_of_another = len(receiver.routes) > 1 and answer.routes != receiver.routes
        if is_of_another or answer.matchtag not in sender.inflight.get(to, ()):
            return f"{to} does not wait for it"
        return ""

    def _publish(self, sender: Peer, message: Event) -> None:
        """Publish to every subscriber; a private event reaches only the owner and one user.

        That user is the sender. If the sender is the owner, the message may name another user, so
        that a service can notify a user about the user's job.
        """
        self.sequence += 1
        userid = sender.userid
        if sender.rolemask & ROLE_OWNER and message.userid != USERID_UNKNOWN:
            userid = message.userid
        event = Event(
            message.topic, message.payload, self.sequence, message.flags, userid, sender.rolemask
        )
        ref = self.trace.sent(sender.name, "", event)
        private = event.flags & PRIVATE
        for peer in self._subscribers_to(event.topic):
            if private and not peer.rolemask & ROLE_OWNER and peer.userid != userid:
                continue
            peer.deliver(ref, event)

    def _subscribers_to(self, topic: str) -> list[Peer]:
        subscribers = self._subscribers.get(topic)
        if subscribers is None:
            if len(self._subscribers) >= TOPICS_KNOWN_MAX:
                self._subscribers.clear()
            subscribers = [each for each in self.peers.values() if each.subscriptions.match(topic)]
            self._subscribers[topic] = subscribers
        return subscribers

    def _refuse(self, sender: Peer, request: Request, errnum: int, text: str, ref: int) -> None:
        """Answer in place of a service; trace a request without response as lost (`ref`)."""
        response = respond_error(request, errnum, text)
        if response is not None:
            sender.deliver(self.trace.sent("broker", sender.name, response), response)
        else:
            self.trace.dropped(sender.name, request, ref, text)

    def _answer_callers_of(self, gone: Peer, undelivered: Iterable[tuple[int, Message]]) -> None:
        """Answer with ENOSYS to the peers that wait for `gone`.

        A request with matchtag 0 that it had received ends by disconnect only, because an error
        could not name the job (readings: ENOSYS).
        """
        unread = dict(undelivered)
        unread_ids = {id(message) for message in unread.values()}
        asked = [each for requests in gone.inflight.values() for each in requests.values()]
        waiting = [(0, each) for each in asked if id(each) not in unread_ids]
        for ref, message in unread.items():
            if isinstance(message, Request):
                waiting.append((ref, message))
            else:
                self.trace.dropped(gone.name, message, ref, f"{gone.name} is gone")
        # a sender whose disconnect follows is gone too, and another peer may have its name by now
        left = {
            request.sender: place
            for place, (_, request) in enumerate(waiting)
            if request.topic == disconnect_of(service_of(request.topic))
        }
        for place, (ref, request) in enumerate(waiting):
            if place < left.get(request.sender, 0):
                self.trace.dropped(gone.name, request, ref, f"{request.sender} is gone")
            else:
                self._refuse_on_behalf_of(gone, request, ref)

    def _refuse_on_behalf_of(self, gone: Peer, request: Request, ref: int) -> None:
        caller = self.peers.get(request.sender)
        if caller is not None:
            text = self._why_nobody(service_of(request.topic), f"{gone.name} is gone")
            self._refuse(caller, request, Errno.ENOSYS, text, ref)

    def _why_nobody(self, service: str, unknown: str) -> str:
        """Return why nobody holds `service`; `unknown` if it was only unloaded."""
        return self.ended.get(service) or self.ends or unknown


def _forget_requests(sender: Peer, holder: Peer, service: str) -> None:
    """Forget what `sender` has asked `service` for: its disconnect ends all of that (RFC 6).

    The service sends no responses to them, so the broker must not answer in its place either.
    """
    asked = holder.inflight.get(sender.name, {})
    for request in list(asked.values()):
        if service_of(request.topic) == service:
            holder.answered(sender.name, request.matchtag)


def _limit(sender: Peer, request: Request) -> int:
    """Return how many requests may wait at a service before this one of `sender` is refused."""
    if not request.rolemask & ROLE_OWNER:
        return REQUESTS_WAITING_MAX // 2
    return REQUESTS_WAITING_MAX if sender.services else REQUESTS_WAITING_MAX * 3 // 4


def _stamped(sender: Peer, message: Request) -> Request:
    """Return `message` with the identity of `sender`, whatever identity it claims."""
    return Request(
        message.topic,
        message.payload,
        message.matchtag,
        message.flags,
        message.nodeid,
        sender.userid,
        sender.rolemask,
        sender.routes,
    )
