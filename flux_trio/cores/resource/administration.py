"""The targets that cannot be used because they are drained or down. Pure.

Both are folded from `resource.eventlog` (RFC 18). A request, or a result of the check command,
becomes an event; the event changes the state when it is durable.
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
    """The drained targets of an `inventory`, and those that are down."""

    def __init__(self, inventory: ResourceSet) -> None:
        self.hosts = Hosts(inventory)
        self.drains = Drains(self.hosts)
        self.downs = Downs(self.hosts)
        self._inventory = inventory

    @property
    def unavailable(self) -> Idset:
        """Return the targets that are offline to a scheduler (28.offline.6)."""
        return self.drains.targets | self.downs.targets

    def replay(self, eventlog: str) -> None:
        """Fold a whole log. Raises FormatError that names the line."""
        for number, event in enumerate(parse_eventlog(eventlog), start=1):
            try:
                self.apply(event)
            except FormatError as error:
                raise error.at(f"line {number}") from None

    def apply(self, event: Event) -> None:
        """Fold one event. Raises FormatError."""
        self.drains.apply(event)
        self.downs.apply(event)

    def event_for(self, now: float, request: Request, exclude: Idset) -> Event | None:
        """Return the event for a `request`, None if it changes nothing. Raises FluxError."""
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
        """Return the events for the results of the check command."""
        events = [
            self.downs.up(now, targets, "check")
            if problem is None
            else self.downs.down(now, targets, "check", problem)
            for problem, targets in checks.take_found()
        ]
        return [event for event in events if event is not None]

    def stop_checking(self, now: float) -> Event | None:
        """Return the event that brings up what a check put down, when no check is configured."""
        return self.downs.up(now, self._inventory.ranks, "check")

    def _targets(self, text: str) -> Idset:
        return parse_targets(text, self._inventory)
