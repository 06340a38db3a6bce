"""The plugins every instance loads, one file each; `builtin_plugins` makes them, in order."""

from flux_trio.jobtap.builtins.priority_default import PriorityDefault
from flux_trio.jobtap.builtins.validate_duration import ValidateDuration
from flux_trio.jobtap.plugin import Plugin

__all__ = ["PriorityDefault", "ValidateDuration", "builtin_plugins"]


def builtin_plugins(expiration: float) -> list[Plugin]:
    """In the order they are asked; `expiration` as ValidateDuration takes it."""
    return [ValidateDuration(expiration), PriorityDefault()]
