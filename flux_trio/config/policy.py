"""RFC 33, Policy Configuration and Queue Configuration: the tables and the resolved policy.

A queue's policy overrides the general policy leaf by leaf. `resolve` converts text to numbers;
after it, a limit is a number that may be infinite. Other modules apply the policy to jobs, and the
scheduler reads its own table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from flux_trio.formats import Constraint, FormatError, parse_constraint, parse_duration

Limit = Annotated[int, msgspec.Meta(ge=-1)]  # -1: unlimited, as in flux-core
T = TypeVar("T", bound=msgspec.Struct)


class SystemDefaults(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`jobspec.defaults.system`: `duration` is an FSD, `queue` the default queue."""

    duration: str | None = None
    queue: str | None = None


class DefaultsTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    system: SystemDefaults = SystemDefaults()


class JobspecTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    defaults: DefaultsTable = DefaultsTable()


class SizeTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`limits.job-size.max` or `.min`; None = not set."""

    nnodes: Limit | None = None
    ncores: Limit | None = None
    ngpus: Limit | None = None


class JobSizeTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    max: SizeTable = SizeTable()
    min: SizeTable = SizeTable()


class LimitsTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`limits`: `duration` is an FSD; 0 means unlimited."""

    duration: str | None = None
    job_size: JobSizeTable = msgspec.field(default=JobSizeTable(), name="job-size")


class AccessTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`access`: names of UNIX users and groups."""

    allow_user: list[str] | None = msgspec.field(default=None, name="allow-user")
    allow_group: list[str] | None = msgspec.field(default=None, name="allow-group")


class PolicyTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[policy]` or `[queues.NAME.policy]`; the scheduler defines the keys of `scheduler`."""

    jobspec: JobspecTable = JobspecTable()
    limits: LimitsTable = LimitsTable()
    access: AccessTable = AccessTable()
    scheduler: dict[str, Any] = {}


class QueueTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[queues.NAME]`: `started` is the initial state.

    `requires` is a constraint (RFC 31) or a list of properties, which means all of them. A queue
    with a `parent` is virtual: its jobs are scheduled as jobs of the parent, on its resources.
    `hosts`, a hostlist or "all", gives the queue its hosts, by a property of its own.
    """

    hosts: str | None = None
    requires: dict[str, Any] | list[str] | None = None
    parent: str | None = None
    policy: PolicyTable = PolicyTable()
    started: bool = True

    @property
    def constraint(self) -> Constraint | None:
        """Return which execution targets `requires` allows; None for all. FormatError."""
        if not isinstance(self.requires, list):
            return None if self.requires is None else parse_constraint(self.requires)
        return parse_constraint({"properties": self.requires}) if self.requires else None


class JobSize(msgspec.Struct, frozen=True):
    """The maximum, or the minimum, of a job's nodes, cores and gpus."""

    nnodes: float
    ncores: float
    ngpus: float


class Limits(msgspec.Struct, frozen=True):
    """The limits of a job's request: seconds and counts; math.inf means unlimited."""

    duration: float = math.inf
    max: JobSize = JobSize(math.inf, math.inf, math.inf)
    min: JobSize = JobSize(0, 0, 0)


class Access(msgspec.Struct, frozen=True):
    """Who may submit: a match in either list is enough; None means that the list is not set."""

    users: frozenset[str] | None = None
    groups: frozenset[str] | None = None

    @property
    def is_open(self) -> bool:
        return self.users is None and self.groups is None

    def allows(self, user: str | None, groups: frozenset[str]) -> bool:
        """Return whether a user with this name (None: unknown) and these groups may submit."""
        return self.is_open or user in (self.users or ()) or bool(groups & (self.groups or set()))


class Policy(msgspec.Struct, frozen=True):
    """The policy in force for one queue: the general policy, overridden by the queue's own.

    `duration` is the default in seconds (0.0: no end); None without a default. `scheduler` is the
    table as configured.
    """

    duration: float | None = None
    limits: Limits = Limits()
    access: Access = Access()
    scheduler: Mapping[str, Any] = msgspec.field(default_factory=dict)


def override(general: T, own: T) -> T:
    """Return `general` with every leaf that `own` sets (RFC 33, Policy Configuration)."""
    leaves = {}
    for name in general.__struct_fields__:
        below, above = getattr(general, name), getattr(own, name)
        if isinstance(above, msgspec.Struct):
            leaves[name] = override(below, above)
        elif isinstance(above, dict):
            leaves[name] = _override_dict(below, above)
        else:
            leaves[name] = below if above is None else above
    return type(general)(**leaves)


def resolve(table: PolicyTable) -> Policy:
    """Return the values of a table; FormatError has the key's path in the table."""
    limits, size, access = table.limits, table.limits.job_size, table.access
    default = _seconds(table.jobspec.defaults.system.duration, "jobspec.defaults.system.duration")
    return Policy(
        duration=0.0 if default == math.inf else default,
        limits=Limits(
            duration=_seconds(limits.duration, "limits.duration") or math.inf,
            max=_size(size.max, math.inf),
            min=_size(size.min, 0),
        ),
        access=Access(_names(access.allow_user), _names(access.allow_group)),
        scheduler=table.scheduler,
    )


def _override_dict(general: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = general | own
    for key in general.keys() & own.keys():
        if isinstance(general[key], dict) and isinstance(own[key], dict):
            merged[key] = _override_dict(general[key], own[key])
    return merged


def _seconds(text: str | None, where: str) -> float | None:
    """Return an FSD in seconds; None if it is not set."""
    try:
        return None if text is None else parse_duration(text)
    except FormatError as error:
        raise error.at(where) from None


def _size(table: SizeTable, unlimited: float) -> JobSize:
    counts = (table.nnodes, table.ncores, table.ngpus)
    return JobSize(*(unlimited if count in (None, -1) else count for count in counts))


def _names(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
