"""The instance's TOML configuration as typed values.

`parse_config` returns a `Config`. `Config.policy_for` returns the policy of a queue (RFC 33), and
`assign` assigns a job to a queue.
"""

from flux_trio.config.assignment import (
    CONSTRAINTS_KEY,
    DURATION_KEY,
    QUEUE_KEY,
    Assignment,
    NoQueue,
    access_refusal,
    add_queue_properties,
    assign,
    required_by,
)
from flux_trio.config.module_arguments import with_arguments
from flux_trio.config.parsing import Config, check_edition, parse_config, read_config
from flux_trio.config.policy import Access, JobSize, Limits, Policy, PolicyTable, QueueTable
from flux_trio.config.tables import (
    POLICIES_EXPECTED,
    POLICY_NAMES,
    AccessConfig,
    BrokerConfig,
    CheckConfig,
    ExecConfig,
    FakeResourcesConfig,
    HousekeepingConfig,
    JobManagerConfig,
    KvsConfig,
    PerilogConfig,
    PluginDirective,
    ResourceConfig,
    ResourceEntry,
    SchedConfig,
    UserLimitsConfig,
    VerifyMode,
    check_policy_name,
    is_policy_of_file,
)

__all__ = [
    "CONSTRAINTS_KEY",
    "DURATION_KEY",
    "POLICIES_EXPECTED",
    "POLICY_NAMES",
    "QUEUE_KEY",
    "Access",
    "AccessConfig",
    "Assignment",
    "BrokerConfig",
    "CheckConfig",
    "Config",
    "ExecConfig",
    "FakeResourcesConfig",
    "HousekeepingConfig",
    "JobManagerConfig",
    "JobSize",
    "KvsConfig",
    "Limits",
    "NoQueue",
    "PerilogConfig",
    "PluginDirective",
    "Policy",
    "PolicyTable",
    "QueueTable",
    "ResourceConfig",
    "ResourceEntry",
    "SchedConfig",
    "UserLimitsConfig",
    "VerifyMode",
    "access_refusal",
    "add_queue_properties",
    "assign",
    "check_edition",
    "check_policy_name",
    "is_policy_of_file",
    "parse_config",
    "read_config",
    "required_by",
    "with_arguments",
]
