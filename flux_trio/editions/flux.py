"""Payloads that no RFC describes, between services of an instance: flux-core's, or our own.

They are the same in all editions.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from flux_trio.editions.codec import Codec, codec
from flux_trio.formats.meanings import Time

# A lone surrogate is no character, and cannot be written to an eventlog.
Reason = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"\A[^\ud800-\udfff]*\Z")]
DrainMode = Literal["update", "overwrite", "force-overwrite"]


class ConfigReload(msgspec.Struct, frozen=True):
    """The <service>.config-reload request: the whole configuration as one object."""

    config: dict[str, Any]


class Refused(msgspec.Struct, frozen=True):
    """The <service>.config-reload response of a service that does not go by it, and why."""

    refusal: str


class RequestCounts(msgspec.Struct, frozen=True):
    """What every service has in its <service>.stats-get response: requests by topic."""

    requests: dict[str, int]


class Drain(msgspec.Struct, frozen=True):
    """The resource.drain and resource.undrain requests; targets are an idset or a hostlist."""

    targets: str
    reason: Reason | None = None
    mode: DrainMode | None = None


class Down(msgspec.Struct, frozen=True):
    """The resource.targets-down request."""

    targets: str
    reason: Reason = ""


class Targets(msgspec.Struct, frozen=True):
    """The resource.targets-up and resource.exclude requests."""

    targets: str


class InstanceEnd(msgspec.Struct, frozen=True):
    """The resource.expiration-update request and the event resource-expiration; 0 for never."""

    expiration: Annotated[Time, msgspec.Meta(ge=0)]


class DrainedTargets(msgspec.Struct, frozen=True):
    """Since when (seconds since the Unix epoch) and why targets are drained."""

    timestamp: float
    reason: str = ""


class DownTargets(msgspec.Struct, frozen=True):
    """Since when (seconds since the Unix epoch), by whose word and why targets are down."""

    timestamp: float = 0.0
    by: str = ""
    reason: str = ""


class ResourceStatus(msgspec.Struct, frozen=True):
    """The resource.status response; drained and down targets by idset."""

    R: dict[str, Any] = {}
    drained: dict[str, DrainedTargets] = {}
    offline: str = ""
    down: dict[str, DownTargets] = {}
    exclude: str = ""


class TargetsOffline(msgspec.Struct, frozen=True):
    """The event resource-offline: an idset, and why these targets are down."""

    targets: str
    reason: str = ""


class TargetsOnline(msgspec.Struct, frozen=True):
    """The event resource-online: an idset."""

    targets: str


class HeldResources(msgspec.Struct, frozen=True):
    """The job-manager.resource-status response: R of all that jobs hold, null if nothing."""

    allocated: dict[str, Any] | None


class ResourceNodes(msgspec.Struct, frozen=True):
    """How many targets there are, are down, are drained."""

    all: int
    down: int
    drained: int


class ResourceStats(msgspec.Struct, frozen=True):
    """What the resource service counts for resource.stats-get."""

    nodes: ResourceNodes


class SchedNodes(msgspec.Struct, frozen=True):
    """How many targets the scheduler has, and may use."""

    all: int
    up: int


class SchedStats(msgspec.Struct, frozen=True):
    """What the scheduler counts for sched.stats-get."""

    policy: str
    pending: int
    granting: int
    allocated: int
    nodes: SchedNodes


def stats(counted: RequestCounts | ResourceStats | SchedStats) -> dict[str, Any]:
    """What a service counts, for its answer to stats-get."""
    plain: dict[str, Any] = msgspec.to_builtins(counted)
    return plain


CONFIG_RELOAD: Final = codec(ConfigReload)
REFUSED: Final = codec(Refused)
DRAIN: Final = codec(Drain)
DOWN: Final = codec(Down)
TARGETS: Final = codec(Targets)
INSTANCE_END: Final = codec(InstanceEnd)
RESOURCE_STATUS: Final[Codec[ResourceStatus]] = Codec(
    msgspec.to_builtins, codec(ResourceStatus).read
)
HELD_RESOURCES: Final = codec(HeldResources)
TARGETS_OFFLINE: Final = codec(TargetsOffline)
TARGETS_ONLINE: Final = codec(TargetsOnline)
