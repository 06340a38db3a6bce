"""A party of a small world, whose state can be put down and taken up."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

from flux_trio.lab.world.station import Station
from flux_trio.messages import Request
from flux_trio.services.at_once import Waiting
from flux_trio.services.runner import Timers


class StationState(NamedTuple):
    """The state of a station without its core, as plain values: see `SmallStation.put_down`."""

    links: tuple[tuple[str, tuple[Waiting, ...]], ...]
    timers: tuple[tuple[Hashable, tuple[float, int]], ...]
    called: tuple[str, ...]
    called_in_vain: frozenset[str]
    inflight: tuple[tuple[str, tuple[Request, ...]], ...]


class SmallStation(Station):
    """A party of a small world; nothing that waits for it is held."""

    @property
    def senders(self) -> list[str]:
        """The names of those whose messages wait, in order."""
        return sorted(self._links)

    def timers_at(self, at: float) -> list[Hashable]:
        """Return the keys of the timers that fire by `at`, earliest first."""
        return [key for key, order in sorted(self.timers.items(), key=_time_of) if order[0] <= at]

    def put_down(self) -> StationState:
        """Return the messages, the timers and what the peer has called; no message may be held."""
        peer = self.peer
        return StationState(
            tuple([(sender, tuple(link)) for sender, link in sorted(self._links.items())]),
            tuple(sorted(self.timers.items(), key=_time_of)),
            tuple(peer.called),
            frozenset(peer.called_in_vain),
            tuple([(sender, tuple(asked.values())) for sender, asked in peer.inflight.items()]),
        )

    def take_up(self, state: StationState) -> None:
        """Replace the state by one that `put_down` has returned."""
        links, timers, called, called_in_vain, inflight = state
        self._links = {sender: deque(waiting) for sender, waiting in links}
        self.nwaiting = sum([len(waiting) for _, waiting in links])
        self._timers = Timers(dict(timers))
        self.next_timer = self._timers.next_at()
        peer = self.peer
        peer.called = dict.fromkeys(called)
        peer.called_in_vain = set(called_in_vain)
        peer.inflight = {
            sender: {request.matchtag: request for request in asked} for sender, asked in inflight
        }


def _time_of(timer: tuple[Hashable, tuple[float, int]]) -> tuple[float, int]:
    return timer[1]
