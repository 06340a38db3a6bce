"""The resource service: which targets the instance has, which can be used, who schedules them.

An execution target is a rank of R (RFC 28); `inventory_from_config` reads the targets from the
configuration. `ResourceCore` lets schedulers acquire groups of targets, and tells them which
targets they cannot use: those that are drained, down or excluded.
"""

from flux_trio.cores.resource.core import EVENTLOG_KEY, ResourceCore
from flux_trio.cores.resource.targets import (
    inventory_from_config,
    inventory_of_machine,
    parse_targets,
)

__all__ = [
    "EVENTLOG_KEY",
    "ResourceCore",
    "inventory_from_config",
    "inventory_of_machine",
    "parse_targets",
]
