"""The instance's TOML configuration as typed values: `parse_config` gives a `Config`, whose
`policy_for` tells what holds for the jobs of a queue (RFC 33).
"""

from flux_trio.config.parsing import Config, parse_config, read_config
from flux_trio.config.policy import (
    Access,
    AccessTable,
    DefaultsTable,
    JobSize,
    JobSizeTable,
    JobspecTable,
    Limits,
    LimitsTable,
    Policy,
    PolicyTable,
    QueueTable,
    SizeTable,
    SystemDefaults,
)
from flux_trio.config.tables import (
    BrokerConfig,
    ExecConfig,
    JobManagerConfig,
    KvsConfig,
    PerilogConfig,
    PerilogOutputConfig,
    PluginDirective,
    ResourceConfig,
    ResourceEntry,
    SchedConfig,
)

__all__ = [
    "Access",
    "AccessTable",
    "BrokerConfig",
    "Config",
    "DefaultsTable",
    "ExecConfig",
    "JobManagerConfig",
    "JobSize",
    "JobSizeTable",
    "JobspecTable",
    "KvsConfig",
    "Limits",
    "LimitsTable",
    "PerilogConfig",
    "PerilogOutputConfig",
    "PluginDirective",
    "Policy",
    "PolicyTable",
    "QueueTable",
    "ResourceConfig",
    "ResourceEntry",
    "SchedConfig",
    "SizeTable",
    "SystemDefaults",
    "parse_config",
    "read_config",
]
