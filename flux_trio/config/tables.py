"""The tables of the instance's own parts: `[broker]`, `[resource]`, `[sched]`, `[exec]`, `[kvs]`,
`[job-manager]`.

Tables and keys are flux-core's where it has them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]


class ResourceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[resource.config]]`: what the named hosts have. Idsets and a hostlist, as text."""

    hosts: str
    cores: str | None = None
    gpus: str | None = None
    properties: list[str] = []


class ResourceConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[resource]`: the inventory. Without `config` it is this machine, posing as `targets`."""

    config: list[ResourceEntry] = []
    targets: Positive = 1
    exclude: str = ""  # an idset or a hostlist
    noverify: bool = False


class SchedConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[sched]`: which policy, and how many requests the job manager may have outstanding."""

    policy: Literal["fifo", "easy", "conservative"] = "fifo"
    mode: Literal["unlimited", "limited"] = "unlimited"
    limit: Annotated[int, msgspec.Meta(ge=1, le=2147483647)] = 8


class ExecConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[exec]`: `kill-timeout` (FSD) from SIGTERM to SIGKILL; `simulate` runs no processes."""

    kill_timeout: str = msgspec.field(default="5s", name="kill-timeout")
    simulate: bool = False


class KvsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[kvs]`: what durable means: survives SIGKILL (normal) or power loss as well (full)."""

    synchronous: Literal["normal", "full"] = "normal"


class BrokerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[broker]`: where commands reach the instance; port 0 is any that is free."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0


class PluginDirective(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One of `[job-manager] plugins`: what to `remove` (a glob, or all), then what to `load`.

    `conf` is the loaded plugin's own and goes to it as it is.
    """

    load: str | None = None
    remove: str | None = None
    conf: dict[str, Any] = {}


class JobManagerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[job-manager]`: the plugins beside the builtin ones, in the order of the directives."""

    plugins: list[PluginDirective] = []
