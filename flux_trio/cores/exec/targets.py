"""Which execution targets are down, as the resource service tells it. Pure.

Nothing can be started on a target that is down, and what runs there is lost: the whole job gets a
fatal exception that names the target (28.offline.5). A target that is drained is not down.
"""

from __future__ import annotations

import msgspec

from flux_trio.formats import Hostlist, Idset, ResourceSet
from flux_trio.messages import Event, Response, expect_payload

_NONE = Idset()


class _Offline(msgspec.Struct):
    """The event resource-offline; resource-online has no reason."""

    targets: str
    reason: str = ""


class _Down(msgspec.Struct):
    reason: str


class _Status(msgspec.Struct):
    """What matters of a resource.status response."""

    down: dict[str, _Down] = {}


class Targets:
    """The targets that are down, with the reason for each."""

    def __init__(self) -> None:
        self._down: dict[int, str] = {}

    def read_status(self, response: Response) -> None:
        """Take a resource.status response as the whole truth. FluxError, FormatError."""
        status = expect_payload(response, _Status)
        self._down = {
            target: down.reason
            for targets, down in status.down.items()
            for target in Idset.parse(targets)
        }

    def went_down(self, event: Event) -> None:
        """Take a resource-offline event. FluxError, FormatError."""
        told = expect_payload(event, _Offline)
        self._down |= dict.fromkeys(Idset.parse(told.targets), told.reason)

    def came_up(self, event: Event) -> None:
        """Take a resource-online event. FluxError, FormatError."""
        for target in Idset.parse(expect_payload(event, _Offline).targets):
            self._down.pop(target, None)

    def lost_of(self, resources: ResourceSet) -> Idset:
        """The targets of `resources` that are down."""
        if not self._down:
            return _NONE
        return Idset.of(target for target in resources.ranks if target in self._down)

    def describe(self, resources: ResourceSet, lost: Idset) -> str:
        """What a job with `resources` is told of its `lost` targets: hosts, ranks and reasons."""
        hosts = Hostlist.of(resources.hosts[target] for target in lost)
        reasons = dict.fromkeys(self._down[target] for target in lost)
        why = ", ".join(reason for reason in reasons if reason)
        return f"{hosts} (rank {lost}) is down{f': {why}' if why else ''}"
