"""A property of the broker: who subscribes to events gets those that are published afterwards."""

from __future__ import annotations

from flux_trio.broker import Peer
from flux_trio.formats.glob import glob_matches
from flux_trio.lab.properties.property import Watcher, watching
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.station import Station
from flux_trio.messages import ROLE_OWNER, Event
from flux_trio.messages.types import PRIVATE
from flux_trio.trace import Kind, Record


@watching("subscribed")
class Subscribers(Watcher):
    """Who subscribes to an event gets it once, whenever the subscription began, and nobody else.

    What counts is what a party has asked for, not what the broker remembers of it (RFC 3). A
    private event is for the owner and for one user.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._owed: dict[Peer, dict[int, Event]] = {}  # by the place of each send
        self._got: dict[Peer, set[int]] = {}  # the places of the sends, since the last pause

    def observe(self, record: Record) -> None:
        """Note who is owed an event that is published, and who receives one."""
        message = record.message
        if type(message) is not Event:  # isinstance of a Struct costs several times as much
            return
        if record.kind == Kind.SEND:
            for station in self.world.stations.values():
                if self._is_there(station.peer) and _is_for(message, station):
                    self._owed.setdefault(station.peer, {})[record.n] = message
        elif record.kind == Kind.RECV and record.party in self.world.stations:
            self._received(self.world.stations[record.party].peer, message, record.ref)

    def _received(self, peer: Peer, event: Event, place: int) -> None:
        got = self._got.setdefault(peer, set())
        if self._owed.get(peer, {}).pop(place, None) is None:
            how = "twice" if place in got else "and has not subscribed to it"
            self.found(f"{peer.name} gets {event.topic} of record {place}, {how}")
        got.add(place)

    def pause(self) -> None:
        """Look for events that were not received, since no message is on its way."""
        owed, self._owed = self._owed, {}
        self._got.clear()
        for peer, events in owed.items():
            if self._is_there(peer):
                for place, event in events.items():
                    self.found(f"{peer.name} has not got {event.topic} of record {place}")

    rest = pause

    def _is_there(self, peer: Peer) -> bool:
        return self.world.router.peers.get(peer.name) is peer


def _is_for(event: Event, station: Station) -> bool:
    peer = station.peer
    is_users = peer.rolemask & ROLE_OWNER or peer.userid == event.userid
    if event.flags & PRIVATE and not is_users:
        return False
    return any(glob_matches(pattern, event.topic) for pattern in station.subscribed)
