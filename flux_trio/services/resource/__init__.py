"""The resource service: what there is, what of it can be used, and who schedules it (RFC 28).

An execution target is a rank of R. `inventory_from_config` and `find_inventory` say which targets
there are; `ResourceCore` gives their groups to schedulers and keeps drained and excluded ones from
them; `run` serves `resource.*`.
"""

from flux_trio.services.resource.core import (
    EVENTLOG_KEY,
    ResourceCore,
    TargetsDown,
    TargetsUp,
)
from flux_trio.services.resource.inventory import find_inventory
from flux_trio.services.resource.service import run
from flux_trio.services.resource.targets import (
    inventory_from_config,
    inventory_of_machine,
    parse_targets,
)

__all__ = [
    "EVENTLOG_KEY",
    "ResourceCore",
    "TargetsDown",
    "TargetsUp",
    "find_inventory",
    "inventory_from_config",
    "inventory_of_machine",
    "parse_targets",
    "run",
]
