"""The tables of the instance's services: `[access]`, `[broker]`, `[resource]`,
`[fake-resources]`, `[sched]`, `[exec]`, `[kvs]`, `[job-manager]`.

Tables and keys have flux-core's names if flux-core has them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from flux_trio.formats import FormatError

Positive = Annotated[int, msgspec.Meta(ge=1)]


class ResourceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[resource.config]]`: the resources of the named hosts; idsets and a hostlist, as text."""

    hosts: str
    cores: str | None = None
    gpus: str | None = None
    properties: list[str] = []


class CheckConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[resource.check]`: a command that checks whether a target is healthy.

    The instance runs it for each target every `interval`, for at most `timeout` (both FSD), and
    runs at most `max-running` of its processes at once.
    """

    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    interval: str = "1m"
    timeout: str = "30s"
    max_running: Annotated[int, msgspec.Meta(ge=1, le=1024)] = msgspec.field(
        default=16, name="max-running"
    )


VerifyMode = Literal["strict", "allow-extra", "allow-missing", "ignore"]


class VerifyConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[resource.verify]`: which differences of a machine from its configuration count.

    `default` is the mode of a key that is not set. Only cores are compared here.
    """

    default: VerifyMode = "strict"
    hostname: VerifyMode | None = None
    core: VerifyMode | None = None
    gpu: VerifyMode | None = None


class ResourceConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[resource]`: the inventory is `config`, or else the R (RFC 20) in the file `path`.

    Without both, this instance has the resources of the job that it runs in; outside of a job, or
    with `rediscover`, this machine acts as `targets` targets. A target of `config` with the name of
    this machine is compared with it as `verify` says, unless `noverify` is set.
    """

    config: list[ResourceEntry] = []
    path: str | None = None
    rediscover: bool = False
    targets: Positive = 1
    exclude: str = ""  # an idset or a hostlist
    noverify: bool = False
    verify: bool | VerifyConfig = VerifyConfig(default="allow-extra")
    check: CheckConfig | None = None

    @property
    def core_mode(self) -> VerifyMode:
        """Return which differences in cores make a target unfit."""
        if self.noverify or self.verify is False:
            return "ignore"
        if isinstance(self.verify, VerifyConfig):
            return self.verify.core or self.verify.default
        return "strict"


class FakeResourcesConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[fake-resources]`: an inventory of equal targets, named by their number.

    The bounds keep the inventory small enough for memory and for a message.
    """

    nnodes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    cores_per_node: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = msgspec.field(
        default=64, name="cores-per-node"
    )
    gpus_per_node: Annotated[int, msgspec.Meta(ge=0, le=65_536)] = msgspec.field(
        default=0, name="gpus-per-node"
    )
    host_prefix: str = msgspec.field(default="fake", name="host-prefix")


POLICY_NAMES: Final = ("fifo", "easy", "conservative")
POLICIES_EXPECTED: Final = f"one of {', '.join(POLICY_NAMES)}, or FILE.py:Class"


def check_policy_name(name: str, where: str) -> None:
    """Raise FormatError unless `name` is one of POLICY_NAMES or FILE.py:Class."""
    if name not in POLICY_NAMES and not is_policy_of_file(name):
        raise FormatError(POLICIES_EXPECTED, name, where)


def is_policy_of_file(name: str) -> bool:
    """Return whether the policy `name` is FILE.py:Class: a class in a file of the user."""
    path, _, cls = name.rpartition(":")
    return path.endswith(".py") and cls.isidentifier()


class SchedConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[sched]`: the policy, and the maximum number of outstanding alloc requests."""

    policy: str = "fifo"
    """One of POLICY_NAMES, or FILE.py:Class."""
    mode: Literal["unlimited", "limited"] = "unlimited"
    limit: Annotated[int, msgspec.Meta(ge=1, le=2147483647)] = 8


class ExecConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[exec]`: `kill-timeout` (FSD) from SIGTERM to SIGKILL; `simulate` runs no processes.

    `output-limit` limits the stored output of a finished job, in bytes or as a size such as "10M"
    (flux-shell(1), output.limit); a job may set its own limit.
    """

    kill_timeout: str = msgspec.field(default="5s", name="kill-timeout")
    simulate: bool = False
    output_limit: str | int = msgspec.field(default="1G", name="output-limit")


class ValidatorConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[ingest.validator]`: what job-ingest asks about a jobspec, beside what it checks itself.

    Without `feasibility` in `plugins` a job that can never run is accepted, and the scheduler
    refuses it later. Without `plugins` feasibility is asked where the edition has it.
    """

    plugins: list[str] | None = None

    @property
    def asks_feasibility(self) -> bool:
        return self.plugins is None or "feasibility" in self.plugins


class IngestConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[ingest]`."""

    validator: ValidatorConfig = ValidatorConfig()


class KvsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[kvs]`: committed data survives SIGKILL (normal), or also a power loss (full)."""

    synchronous: Literal["normal", "full"] = "normal"


class AccessConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[access]`: which other users may use the Unix socket (flux-config-access(5)).

    With `private-mode`, job-list tells them only of their own jobs.
    """

    allow_guest_user: bool = msgspec.field(default=False, name="allow-guest-user")
    allow_root_owner: bool = msgspec.field(default=False, name="allow-root-owner")
    private_mode: bool = msgspec.field(default=False, name="private-mode")


class BrokerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[broker]`: the address that commands connect to; port 0 takes any free port.

    `native` says whether Flux's own programs may come in; None: where the edition is theirs.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    native: bool | None = None


class PluginDirective(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One of `[job-manager] plugins`: first `remove` (a glob, or all), then `load`.

    The loaded plugin gets `conf` unchanged.
    """

    load: str | None = None
    remove: str | None = None
    conf: dict[str, Any] = {}


class PerilogConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[job-manager.prolog]` or `[job-manager.epilog]`, for the plugin perilog.

    `timeout` is an FSD (0: no limit); the default is 30m for a prolog and no limit for an epilog.
    `kill-timeout` is in seconds from SIGTERM to SIGKILL. `cancel-on-exception` is true by default
    for a prolog, false for an epilog. Without `command` nothing is run.
    """

    command: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None
    timeout: str | None = None
    kill_timeout: Annotated[float, msgspec.Meta(gt=0)] = msgspec.field(
        default=60.0, name="kill-timeout"
    )
    per_rank: bool = msgspec.field(default=False, name="per-rank")
    cancel_on_exception: bool | None = msgspec.field(default=None, name="cancel-on-exception")


class HousekeepingConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[job-manager.housekeeping]`: a command for each rank of a job that has ended.

    The rank is free when the command has ended. `release-after` is an FSD: so long after the first
    rank the ranks that are done are freed, and then each one by itself; 0 frees each by itself, and
    without it all are freed together. Without `command` nothing is run.
    """

    command: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None
    release_after: str | None = msgspec.field(default=None, name="release-after")


class PerilogOutputConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[job-manager.perilog]`: output lines that match one of `log-ignore` are not logged."""

    log_ignore: list[str] = msgspec.field(default=[], name="log-ignore")


class UserLimitsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[job-manager.user-limits]`: limits for one user; 0 means no limit.

    `jobs` (active jobs), `jobspec-bytes` (of active jobs, as JSON, without the environment) and
    `jobspec-cost` (`formats.jobspec_cost`, of active jobs) apply to each guest. `memo-bytes` and
    `eventlog-bytes` (events that users requested) apply to each active job; with `-sum` they apply
    to all active jobs of a guest together. `stored-bytes` (what is stored of the active jobs of a
    guest, with environments) and `finished-bytes` (of finished jobs) apply to each guest;
    `disk-free` is what guests leave free of the disk.
    """

    jobs: Annotated[int, msgspec.Meta(ge=0)] = 20_000
    jobspec_bytes: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=64 * 2**20, name="jobspec-bytes"
    )
    jobspec_cost: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=64 * 2**20, name="jobspec-cost"
    )
    memo_bytes: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=16_384, name="memo-bytes"
    )
    memo_bytes_sum: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=16 * 2**20, name="memo-bytes-sum"
    )
    eventlog_bytes: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=2**20, name="eventlog-bytes"
    )
    eventlog_bytes_sum: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=2**28, name="eventlog-bytes-sum"
    )
    stored_bytes: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=2**28, name="stored-bytes"
    )
    finished_bytes: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=2**28, name="finished-bytes"
    )
    disk_free: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        default=64 * 2**20, name="disk-free"
    )


class JobManagerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[job-manager]`: `plugins` adds plugins to the builtin ones, in the order of the directives.

    Finished jobs beyond one of the limits, an FSD and a number, are purged. A call of a
    plugin that has used `plugin-loop-limit` (FSD, at least 1s) of CPU time ends the process. With
    `stop-queues-on-restart`, started queues are stopped when the job manager starts again.
    """

    plugins: list[PluginDirective] = []
    prolog: PerilogConfig | None = None
    epilog: PerilogConfig | None = None
    housekeeping: HousekeepingConfig | None = None
    perilog: PerilogOutputConfig = PerilogOutputConfig()
    plugin_loop_limit: str = msgspec.field(default="30s", name="plugin-loop-limit")
    user_limits: UserLimitsConfig = msgspec.field(default=UserLimitsConfig(), name="user-limits")
    stop_queues_on_restart: bool = msgspec.field(default=False, name="stop-queues-on-restart")
    inactive_age_limit: str | None = msgspec.field(default=None, name="inactive-age-limit")
    inactive_num_limit: Annotated[int, msgspec.Meta(ge=0)] | None = msgspec.field(
        default=None, name="inactive-num-limit"
    )
