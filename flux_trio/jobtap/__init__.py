"""jobtap: plugins that the job manager asks about jobs, and the host that asks them.

A plugin is a `Plugin` subclass, or a module, with decorated handlers: `on` a topic, on `enter` and
`leave` of a state, a `service`'s methods; `counter` declares what the host counts for it. Handlers
get a `Job`, may be async, and answer with plain values or raise `Reject`. An author imports this
package and nothing else of flux_trio.
"""

from flux_trio.config import Config
from flux_trio.formats import Event, FormatError, Jobspec
from flux_trio.jobtap.calls import CANCELED, failure_listeners, reporting_failures
from flux_trio.jobtap.catalogue import CUSTOM, HOOKS, Hook, Returns
from flux_trio.jobtap.counter import Counter, counter
from flux_trio.jobtap.decorators import enter, leave, on, on_many, service
from flux_trio.jobtap.host import ORDERS, PluginHost, open_host
from flux_trio.jobtap.host_services import HostServices
from flux_trio.jobtap.job import Job, JobLookup
from flux_trio.jobtap.loaded import PluginMethod
from flux_trio.jobtap.loading import Loader, load_file, may_wait, search_path
from flux_trio.jobtap.lock_timers import OwnProcess, ending_with_plugins, own_process, reason_of_end
from flux_trio.jobtap.plugin import Plugin
from flux_trio.jobtap.sources import PluginSource, made, plugin_sources
from flux_trio.jobtap.values import (
    Dependency,
    HandlerFailed,
    NotAllowed,
    PluginError,
    Reject,
    ServiceRequest,
    UpdateAllowed,
)
from flux_trio.messages import Errno, FluxError, Level
from flux_trio.protocols import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    STATE_TOPICS,
    UNAVAILABLE,
    VALIDATE,
    HookAnswer,
    JobFlag,
    JobView,
    Unavailable,
    UpdateAsked,
)
from flux_trio.protocols import JobState as State

__all__ = [
    "CANCELED",
    "CUSTOM",
    "HOOKS",
    "ORDERS",
    "PRIORITY_MAX",
    "PRIORITY_MIN",
    "STATE_TOPICS",
    "UNAVAILABLE",
    "VALIDATE",
    "Config",
    "Counter",
    "Dependency",
    "Errno",
    "Event",
    "FluxError",
    "FormatError",
    "HandlerFailed",
    "Hook",
    "HookAnswer",
    "HostServices",
    "Job",
    "JobFlag",
    "JobLookup",
    "JobView",
    "Jobspec",
    "Level",
    "Loader",
    "NotAllowed",
    "OwnProcess",
    "Plugin",
    "PluginError",
    "PluginHost",
    "PluginMethod",
    "PluginSource",
    "Reject",
    "Returns",
    "ServiceRequest",
    "State",
    "Unavailable",
    "UpdateAllowed",
    "UpdateAsked",
    "counter",
    "ending_with_plugins",
    "enter",
    "failure_listeners",
    "leave",
    "load_file",
    "made",
    "may_wait",
    "on",
    "on_many",
    "open_host",
    "own_process",
    "plugin_sources",
    "reason_of_end",
    "reporting_failures",
    "search_path",
    "service",
]
