"""The four topics that flux-core's broker answers where a peer is connected, per peer.

They are the subscriptions of the peer to events, and the service names that it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from flux_trio.broker.router import SUBSCRIPTIONS_MAX, Peer, Router
from flux_trio.messages import ROLE_OWNER, Errno, FluxError, Payload, Request, expect_payload


class Topic(msgspec.Struct):
    """event.subscribe and event.unsubscribe: the beginning of topics, "" for all."""

    # the beginning of the topics of events; "" for all
    topic: Annotated[str, msgspec.Meta(max_length=255)]


class Service(msgspec.Struct):
    """service.add and service.remove: a service name, the part of a topic before its dot."""

    service: str  # the name that the client holds, or holds no more


class DoorTopics:
    """Answers for one peer; `methods` by topic, which raise FluxError."""

    def __init__(self, router: Router, peer: Peer) -> None:
        self._router = router
        self._peer = peer
        self.methods: Final[dict[str, Callable[[Request], Payload]]] = {
            "event.subscribe": self._subscribe,
            "event.unsubscribe": self._unsubscribe,
            "service.add": self._add_service,
            "service.remove": self._remove_service,
        }

    def _subscribe(self, request: Request) -> Payload:
        topic = expect_payload(request, Topic).topic
        if self._router.subscriptions_of(self._peer.userid) >= SUBSCRIPTIONS_MAX:
            text = f"a user may have {SUBSCRIPTIONS_MAX} subscriptions"
            raise FluxError(Errno.ENOSPC, text)
        self._peer.subscriptions.add_prefix(topic)
        return None

    def _unsubscribe(self, request: Request) -> Payload:
        topic = expect_payload(request, Topic).topic
        try:
            self._peer.subscriptions.remove_prefix(topic)
        except ValueError:
            raise FluxError(Errno.ENOENT, f"not subscribed to {topic!r}") from None
        return None

    def _add_service(self, request: Request) -> Payload:
        name = expect_payload(request, Service).service
        if not name or "." in name:
            raise FluxError(Errno.EINVAL, f"service {name!r}: expected a name without a dot")
        mine = self._peer
        if not mine.rolemask & ROLE_OWNER and not name.startswith(f"{mine.userid}-"):
            text = f"service {name!r}: a guest may add those that begin with {mine.userid}-"
            raise FluxError(Errno.EPERM, text)
        self._router.register(mine, name)
        return None

    def _remove_service(self, request: Request) -> Payload:
        name = expect_payload(request, Service).service
        self._router.unregister(self._peer, name)
        return None
