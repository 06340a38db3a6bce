"""The modules of an instance without Trio: what they wait for elsewhere answers within the turn."""

from flux_trio.at_once.job_manager import JobManagerAtOnce
from flux_trio.at_once.modules import KVS_MODULE, ModulePlan, module_plans

__all__ = ["KVS_MODULE", "JobManagerAtOnce", "ModulePlan", "module_plans"]
