"""The modules of an instance without Trio: what they wait for elsewhere answers within the turn.

`module_plans` has their cores, names and subscriptions. `InOrder` lets them take their turns in
the order in which something came for them; worlds with faults draw another order (`faults`).
"""

from flux_trio.services.at_once.in_order import InOrder, ModuleEnded, Seat
from flux_trio.services.at_once.job_manager import Beside, JobManagerAtOnce, RecountedAtRest
from flux_trio.services.at_once.kvs import KvsAtOnce
from flux_trio.services.at_once.modules import KVS_MODULE, ModulePlan, module_plans, note_config
from flux_trio.services.at_once.plugin_turns import PluginNotes, PluginTurns

__all__ = [
    "KVS_MODULE",
    "Beside",
    "InOrder",
    "JobManagerAtOnce",
    "KvsAtOnce",
    "ModuleEnded",
    "ModulePlan",
    "PluginNotes",
    "PluginTurns",
    "RecountedAtRest",
    "Seat",
    "module_plans",
    "note_config",
]
