"""The resource service: what there is, what of it can be used, and who schedules it (RFC 28).

An execution target is a rank of R; `inventory_from_config` says which targets there are.
`ResourceCore` gives their groups to schedulers and keeps from them what is drained, down or
excluded.
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
