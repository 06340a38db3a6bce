"""The modules of an instance without Trio: what they wait for elsewhere answers within the turn.

`module_plans` has their cores, names and subscriptions. In a `World` they take their turns, in the
order in which something came for them (`InLine`) or, in worlds with faults, in a drawn one.
"""

from flux_trio.services.at_once.job_manager import Beside, JobManagerAtOnce, RecountedAtRest
from flux_trio.services.at_once.kvs import KvsAtOnce
from flux_trio.services.at_once.modules import KVS_MODULE, ModulePlan, module_plans, note_config
from flux_trio.services.at_once.party import Party, Waiting
from flux_trio.services.at_once.plugin_turns import PluginNotes, PluginTurns
from flux_trio.services.at_once.world import InLine, ModuleEnded, Order, World

__all__ = [
    "KVS_MODULE",
    "Beside",
    "InLine",
    "JobManagerAtOnce",
    "KvsAtOnce",
    "ModuleEnded",
    "ModulePlan",
    "Order",
    "Party",
    "PluginNotes",
    "PluginTurns",
    "RecountedAtRest",
    "Waiting",
    "World",
    "module_plans",
    "note_config",
]
