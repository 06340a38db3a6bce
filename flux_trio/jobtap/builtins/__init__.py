"""The plugins that come with flux-trio, one file each; they use only what every plugin can use.

`builtin_plugins` makes those that every instance loads, in the order they are asked; the others
are loaded by name, from their files, and not imported before.
"""

from flux_trio.formats import ResourceSet
from flux_trio.jobtap import Plugin
from flux_trio.jobtap.builtins.begin_time import BeginTime
from flux_trio.jobtap.builtins.dependency_after import DependencyAfter
from flux_trio.jobtap.builtins.dependency_singleton import DependencySingleton
from flux_trio.jobtap.builtins.limit_duration import LimitDuration
from flux_trio.jobtap.builtins.limit_job_size import LimitJobSize
from flux_trio.jobtap.builtins.priority_default import PriorityDefault
from flux_trio.jobtap.builtins.update_duration import UpdateDuration
from flux_trio.jobtap.builtins.update_queue import UpdateQueue
from flux_trio.jobtap.builtins.validate_duration import Lifetime, ValidateDuration

__all__ = [
    "BeginTime",
    "DependencyAfter",
    "DependencySingleton",
    "Lifetime",
    "LimitDuration",
    "LimitJobSize",
    "PriorityDefault",
    "UpdateDuration",
    "UpdateQueue",
    "ValidateDuration",
    "builtin_plugins",
]


def builtin_plugins(lifetime: Lifetime, inventory: ResourceSet) -> list[Plugin]:
    """Return the builtins, in the order in which they are asked.

    `lifetime` and `inventory` are those of the instance.
    """
    return [
        PriorityDefault(),
        LimitJobSize(inventory),
        LimitDuration(),
        DependencyAfter(),
        DependencySingleton(),
        BeginTime(),
        ValidateDuration(lifetime),
        UpdateDuration(),
        UpdateQueue(),
    ]
