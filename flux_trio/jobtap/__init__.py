"""jobtap: plugins that the job manager asks about jobs, and the host that asks them.

A `Plugin` names the topics it handles; a handler gets a read-only `JobView` and returns a
`HookAnswer`, or None when it has nothing to say. It may be async: then the job waits, and nothing
else does. What a plugin runs in the background lives in a nursery that ends with the plugin.
"""

from flux_trio.jobtap.builtins import PriorityDefault, ValidateDuration, builtin_plugins
from flux_trio.jobtap.host import PluginHost
from flux_trio.jobtap.plugin import Handler, Plugin, PluginContext
from flux_trio.protocols import STATE_TOPICS, VALIDATE, HookAnswer, JobView

__all__ = [
    "STATE_TOPICS",
    "VALIDATE",
    "Handler",
    "HookAnswer",
    "JobView",
    "Plugin",
    "PluginContext",
    "PluginHost",
    "PriorityDefault",
    "ValidateDuration",
    "builtin_plugins",
]
