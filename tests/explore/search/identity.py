"""What tells two states of a world apart: a digest of all that decides what happens later.

Left out is what decides nothing: the numbers of records and events, the texts for people, and the
order of things that nobody compares. The matchtags of modules that live as long as the world are
replaced by their places among all that are known of the same sender. `docs/how-we-know/explore.md`
says why two states with the same identity go on alike.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.messages import Event, Message, Request, Response
from tests.explore.search.numbered import Machine, digest
from tests.explore.search.small_world import MORTAL, PartyState, WorldState

_encode = msgspec.msgpack.encode

RANKED: Final = ("job-manager", "kvs", "job-ingest")
"""The modules whose matchtags are replaced by their ranks. Others may be loaded again, and begin
again at 1."""


class _Party(NamedTuple):
    """A digest of a party without the matchtags of RANKED, and these."""

    name: str
    digest: bytes
    matchtags: tuple[tuple[str, int], ...]


def identity(state: WorldState, machines: dict[str, Machine]) -> bytes:
    """Return the digest of a state of the world: states with the same digest go on alike."""
    parties = sorted([_party(each, machines) for each in state.parties])
    known: dict[str, set[int]] = {name: set() for name in RANKED}
    for party in parties:
        for peer, tag in party.matchtags:
            known[peer].add(tag)
    places = {
        (peer, tag): place for peer, tags in known.items() for place, tag in enumerate(sorted(tags))
    }
    found = [
        (party.name, party.digest, [places[tag] for tag in party.matchtags]) for party in parties
    ]
    return digest(_encode((state.ended, state.nbefore, state.left, state.tried, found)))


def _party(party: PartyState, machines: dict[str, Machine]) -> _Party:
    if party.identity is None:
        party.identity = _Reading(party, machines[party.name]).party
    found: _Party = party.identity
    return found


class _Reading:
    """Reads the state of a party, and collects the matchtags in it."""

    def __init__(self, party: PartyState, machine: Machine) -> None:
        self._tags: list[tuple[str, int]] = []
        name, station = party.name, party.station
        mark = machine.marks[party.core]
        core = [
            mark.digest,
            [self._tag(peer or name, tag) for peer, tag in mark.matchtags],
            mark.lasts if name in MORTAL else (),
        ]
        links = [
            (sender, [self._message(message) for _, message in waiting])
            for sender, waiting in station.links
        ]
        timers = [(repr(key), at) for key, (at, _) in station.timers]
        inflight = [
            (sender, [self._message(request) for request in asked])
            for sender, asked in station.inflight
        ]
        text = _encode(
            (
                party.nbefore,
                core,
                links,
                timers,
                station.called,
                sorted(station.called_in_vain),
                inflight,
            )
        )
        self.party = _Party(name, digest(text), tuple(self._tags))

    def _tag(self, peer: str, tag: int) -> int:
        """Return a matchtag as it is, or 0 and collect it."""
        if tag and peer in RANKED:
            self._tags.append((peer, tag))
            return 0
        return tag

    def _message(self, message: Message) -> Any:
        match message:
            case Event():
                return (message.topic, message.payload, message.flags, message.userid)
            case Request() | Response():
                peer = message.routes[0] if message.routes else ""
                payload = message.payload
                if (
                    isinstance(message, Request)
                    and isinstance(payload, dict)
                    and "matchtag" in payload
                ):
                    payload = payload | {"matchtag": self._tag(peer, payload["matchtag"])}
                return (
                    isinstance(message, Response) and message.errnum,
                    message.topic,
                    payload,
                    message.flags,
                    message.userid,
                    message.routes,
                    self._tag(peer, message.matchtag),
                )
        raise AssertionError(f"expected no control message, got {message}")
