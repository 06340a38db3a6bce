"""Payloads between services that no RFC describes: flux-core's, or this project's own.

They are the same in all editions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from flux_trio.editions.codec import Codec, codec
from flux_trio.formats.meanings import Time

# A lone surrogate is not a character, so an eventlog cannot have it.
Reason = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"\A[^\ud800-\udfff]*\Z")]


class ConfigReload(msgspec.Struct, frozen=True):
    """The <service>.config-reload request: the whole configuration as one object."""

    config: dict[str, Any]


class Refused(msgspec.Struct, frozen=True):
    """The <service>.config-reload response of a service that refuses the configuration: why."""

    refusal: str


class RequestCounts(msgspec.Struct, frozen=True):
    """The part of a <service>.stats-get response that every service has: requests by topic."""

    requests: dict[str, int]


class Drain(msgspec.Struct, frozen=True):
    """The resource.drain and resource.undrain requests; targets are an idset or a hostlist."""

    targets: str  # an idset of ranks, or a hostlist
    reason: Reason | None = None  # for people
    # update, overwrite or force-overwrite: what becomes of targets that are drained
    mode: str | None = None


class Down(msgspec.Struct, frozen=True):
    """The resource.targets-down request."""

    targets: str
    reason: Reason = ""


class Targets(msgspec.Struct, frozen=True):
    """The resource.targets-up and resource.exclude requests."""

    targets: str


class InstanceEnd(msgspec.Struct, frozen=True):
    """The resource.expiration-update request and the event resource-expiration.

    The time is in seconds since the Unix epoch; 0 means that the instance has no end.
    """

    expiration: Annotated[Time, msgspec.Meta(ge=0)]


class DrainedTargets(msgspec.Struct, frozen=True):
    """Why targets are drained, and since when (seconds since the Unix epoch)."""

    timestamp: float
    reason: str = ""


class DownTargets(msgspec.Struct, frozen=True):
    """Why targets are down, who said so, and since when (seconds since the Unix epoch)."""

    timestamp: float = 0.0
    by: str = ""
    reason: str = ""


class WaitUp(msgspec.Struct, frozen=True):
    """The resource.monitor-waitup request: the number of ranks that are to be online."""

    up: Annotated[int, msgspec.Meta(ge=0)]


class Reload(msgspec.Struct, frozen=True):
    """The resource.reload request."""

    path: str  # of a file with R
    xml: bool = False  # `path` is a directory with hwloc's XML, which is refused
    force: bool = False  # R may have ranks beyond the size of the instance


class ResourceStatus(msgspec.Struct, frozen=True):
    """The resource.status response; drained and down targets by idset.

    Flux's own programs read `drain`, `online` and `torpid`, the targets that answer late, of which
    there are none here.
    """

    R: dict[str, Any] = {}
    drained: dict[str, DrainedTargets] = {}
    drain: dict[str, DrainedTargets] = {}
    online: str = ""
    torpid: str = ""
    offline: str = ""
    down: dict[str, DownTargets] = {}
    exclude: str = ""


class TargetsOffline(msgspec.Struct, frozen=True):
    """The event resource-offline: an idset of targets, and why they are down."""

    targets: str
    reason: str = ""


class TargetsOnline(msgspec.Struct, frozen=True):
    """The event resource-online: an idset of targets."""

    targets: str


class HeldResources(msgspec.Struct, frozen=True):
    """The job-manager.resource-status response: R of all that jobs hold, null for nothing."""

    allocated: dict[str, Any] | None


EMPTY_R: Final[Mapping[str, Any]] = {
    "version": 1,
    "execution": {"R_lite": [], "starttime": 0.0, "expiration": 0.0, "nodelist": [""]},
}
"""How flux-core writes that there are no resources; RFC 20 has no R without any."""


class SchedResources(msgspec.Struct, frozen=True):
    """The sched.resource-status response: three R, each EMPTY_R for nothing."""

    all: Mapping[str, Any]
    down: Mapping[str, Any]
    allocated: Mapping[str, Any]


class ResourceNodes(msgspec.Struct, frozen=True):
    """Numbers of targets: all, those that are down, those that are drained."""

    all: int
    down: int
    drained: int


class ResourceStats(msgspec.Struct, frozen=True):
    """The resource service's part of resource.stats-get."""

    nodes: ResourceNodes


class SchedNodes(msgspec.Struct, frozen=True):
    """Numbers of targets: all that the scheduler has, and those that it may use."""

    all: int
    up: int


class SchedStats(msgspec.Struct, frozen=True):
    """The scheduler's part of sched.stats-get."""

    policy: str
    pending: int
    granting: int
    allocated: int
    nodes: SchedNodes


CONFIG_RELOAD: Final = codec(ConfigReload)
REFUSED: Final = codec(Refused)
DRAIN: Final = codec(Drain)
DOWN: Final = codec(Down)
TARGETS: Final = codec(Targets)
INSTANCE_END: Final = codec(InstanceEnd)
WAIT_UP: Final = codec(WaitUp)
RELOAD: Final = codec(Reload)
RESOURCE_STATUS: Final[Codec[ResourceStatus]] = Codec(
    msgspec.to_builtins, codec(ResourceStatus).read
)
HELD_RESOURCES: Final = codec(HeldResources)
SCHED_RESOURCES: Final = codec(SchedResources)
TARGETS_OFFLINE: Final = codec(TargetsOffline)
TARGETS_ONLINE: Final = codec(TargetsOnline)
