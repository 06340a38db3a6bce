"""The resource service: what there is, what of it can be used, and who schedules it (RFC 28).

An execution target is a rank of R. `inventory_from_config` and `find_inventory` say which targets
there are, `missing_cores` what this machine lacks of them. `ResourceCore` gives their groups to
schedulers and keeps from them what is drained, down or excluded. `run` serves `resource.*`.
"""

from flux_trio.services.resource.core import EVENTLOG_KEY, ResourceCore
from flux_trio.services.resource.inventory import find_inventory, missing_cores
from flux_trio.services.resource.service import run
from flux_trio.services.resource.targets import (
    inventory_from_config,
    inventory_of_machine,
    parse_targets,
)

__all__ = [
    "EVENTLOG_KEY",
    "ResourceCore",
    "find_inventory",
    "inventory_from_config",
    "inventory_of_machine",
    "missing_cores",
    "parse_targets",
    "run",
]
