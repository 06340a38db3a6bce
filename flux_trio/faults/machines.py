"""The modules of a world of cores: their service names, subscriptions and cores.

Whatever a module's shell does under Trio beside its core is done here within the turn: the store
answers at once, the user database knows every user, and plugins answer at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from flux_trio.config import Config
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.ingest.core import IngestCore
from flux_trio.cores.job_list.core import JobListCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.job_manager.requests.admissions import FindUser, User, UserFound
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.sched.tables import scheduler_policies
from flux_trio.cores.turns import Core
from flux_trio.faults.plugins import PriorityIsUrgency
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import topics
from flux_trio.protocols import PluginReplayed
from flux_trio.services.kvs_at_once import KvsAtOnce
from flux_trio.services.plugin_turns import PluginTurns
from flux_trio.store.stores import Store

USERID: Final = 1000  # the owner of the instance


@dataclass(frozen=True)
class ModulePlan:
    """How a world loads a module: `make` returns its core as it is when the module starts."""

    services: tuple[str, ...]
    events: tuple[str, ...]
    make: Callable[[], Core[Any, Any]]


def module_plans(
    config: Config, inventory: ResourceSet, store: Callable[[], Store]
) -> dict[str, ModulePlan]:
    """Return the modules of an instance, in the order of their start."""
    back = topics.SERVICE_BACK_EVENT
    edition = config.edition_value
    return {
        "kvs": ModulePlan((topics.KVS,), (back,), lambda: KvsAtOnce(store())),
        "resource": ModulePlan(
            (topics.RESOURCE,), (), lambda: ResourceCore(inventory, Idset(), edition=edition)
        ),
        "job-manager": ModulePlan(
            (topics.JOB_MANAGER,),
            (topics.RESOURCE_EXPIRATION_EVENT, topics.KVS_DAMAGED_EVENT),
            lambda: JobManagerAtOnce(config),
        ),
        "job-exec": ModulePlan(
            (topics.JOB_EXEC,),
            (
                topics.JOB_EXCEPTION_EVENT,
                back,
                topics.RESOURCE_OFFLINE_EVENT,
                topics.RESOURCE_ONLINE_EVENT,
            ),
            lambda: ExecCore(config.exec, edition=edition),
        ),
        "sched": ModulePlan((topics.SCHED,), (back,), lambda: _sched(config)),
        "job-ingest": ModulePlan((topics.JOB_INGEST,), (back,), IngestCore),
        "job-list": ModulePlan(
            (topics.JOB_LIST, topics.JOB_INFO),
            (back, topics.JOB_PURGE_EVENT),
            lambda: JobListCore(config),
        ),
    }


def _sched(config: Config) -> Core[Any, Any]:
    sched, queues = scheduler_policies(config)
    return SchedCore(sched, config.edition_value, queues)


class JobManagerAtOnce:
    """The job manager's core, its plugins and the user database, which all answer at once."""

    def __init__(self, config: Config) -> None:
        plugins = PriorityIsUrgency()
        self._turns = PluginTurns(JobManagerCore(USERID, config), plugins)
        self.start = self._turns.start

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        """See `Core`."""
        actions: list[Any] = []
        while inputs:
            todo, inputs = self._turns.turn(now, inputs), []
            for action in todo:
                match action:
                    case FindUser(userid):
                        inputs.append(UserFound(userid, User(f"user{userid}")))
                    case PluginReplayed():
                        pass  # no plugin is loaded later
                    case _:
                        actions.append(action)
        return actions
