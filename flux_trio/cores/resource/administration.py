"""Why targets cannot be used though they are there: drained, or down. Pure.

Both are folds of `resource.eventlog` (RFC 18): a request, or what the check command has found,
becomes an event, and the event changes the state once it is durable.
"""

from __future__ import annotations

from flux_trio.cores.resource.checks import Checks
from flux_trio.cores.resource.downs import Downs
from flux_trio.cores.resource.drains import Drains
from flux_trio.cores.resource.targets import Hosts, parse_targets
from flux_trio.cores.state import Part
from flux_trio.editions import flux
from flux_trio.formats import Event, FormatError, Idset, ResourceSet, parse_eventlog
from flux_trio.messages import Request, topics


class Administration(Part):
    """The drained targets and those that are down, of an `inventory`."""

    def __init__(self, inventory: ResourceSet) -> None:
        self.hosts = Hosts(inventory)
        self.drains = Drains(self.hosts)
        self.downs = Downs(self.hosts)
        self._inventory = inventory

    @property
    def unavailable(self) -> Idset:
        """The targets that are offline to a scheduler (28.offline.6)."""
        return self.drains.targets | self.downs.targets

    def replay(self, eventlog: str) -> None:
        """Fold a whole log. FormatError that names the line."""
        for number, event in enumerate(parse_eventlog(eventlog), start=1):
            try:
                self.apply(event)
            except FormatError as error:
                raise error.at(f"line {number}") from None

    def apply(self, event: Event) -> None:
        """Fold one event. FormatError."""
        self.drains.apply(event)
        self.downs.apply(event)

    def event_for(self, now: float, request: Request, exclude: Idset) -> Event | None:
        """The event that does what `request` asks, None if it is so already. FluxError."""
        if request.topic == topics.RESOURCE_DOWN:
            down = flux.DOWN.read(request)
            return self.downs.down(now, self._targets(down.targets), "operator", down.reason)
        if request.topic == topics.RESOURCE_UP:
            up = flux.TARGETS.read(request)
            return self.downs.up(now, self._targets(up.targets), "operator")
        asked = flux.DRAIN.read(request)
        targets = self._targets(asked.targets)
        if request.topic == topics.RESOURCE_DRAIN:
            return self.drains.drain(now, targets, asked.reason, exclude, asked.mode)
        return self.drains.undrain(now, targets, asked.reason, asked.mode)

    def events_for(self, now: float, checks: Checks) -> list[Event]:
        """The events for what the check command has found."""
        events = [
            self.downs.up(now, targets, "check")
            if problem is None
            else self.downs.down(now, targets, "check", problem)
            for problem, targets in checks.take_found()
        ]
        return [event for event in events if event is not None]

    def stop_checking(self, now: float) -> Event | None:
        """The event that brings up what only a check would: none is configured any more."""
        return self.downs.up(now, self._inventory.ranks, "check")

    def _targets(self, text: str) -> Idset:
        return parse_targets(text, self._inventory)
