"""A property of the broker: who subscribes to events gets those that are published afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flux_trio.broker import Peer
from flux_trio.faults.properties import Watcher, watching
from flux_trio.messages import ROLE_OWNER, Event
from flux_trio.messages.types import PRIVATE
from flux_trio.trace import Kind, Record

if TYPE_CHECKING:
    from flux_trio.faults.world import CoresWorld


@watching("heard")
class Subscribers(Watcher):
    """Who subscribes to an event gets it, whenever the subscription began (RFC 3).

    Only the owner's subscriptions count for a private event; it may be for another user, too.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._owed: dict[Peer, dict[int, Event]] = {}  # by the place of each send

    def observe(self, record: Record) -> None:
        """Take an event that is published or received."""
        message = record.message
        if type(message) is not Event:  # isinstance of a Struct costs several times as much
            return
        if record.kind == Kind.SEND:
            for peer in self.world.router.peers.values():
                if _is_for(message, peer):
                    self._owed.setdefault(peer, {})[record.n] = message
        elif record.kind == Kind.RECV:
            for peer, owed in self._owed.items():
                if peer.name == record.party:
                    owed.pop(record.ref, None)

    def pause(self) -> None:
        """All messages were received."""
        self._look()

    def rest(self) -> None:
        """All messages were received."""
        self._look()

    def _look(self) -> None:
        owed, self._owed = self._owed, {}
        for peer, events in owed.items():
            if self.world.router.peers.get(peer.name) is peer:  # else it is gone
                for place, event in events.items():
                    self.found(f"{peer.name} has not got {event.topic} of record {place}")


def _is_for(event: Event, peer: Peer) -> bool:
    if event.flags & PRIVATE and not peer.rolemask & ROLE_OWNER:
        return False
    return peer.subscriptions.match(event.topic)
