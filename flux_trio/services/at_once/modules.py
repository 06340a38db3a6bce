"""The modules of an instance: their service names, subscriptions and cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from flux_trio.config import Config, add_queue_properties, queue_hosts
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.ingest.core import IngestCore
from flux_trio.cores.job_list.core import JobListCore
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.turns import Core
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import topics
from flux_trio.services.policy_files import scheduler_policies
from flux_trio.trace import Kind, Trace

KVS_MODULE: Final = "kvs"

Make = Callable[[], Core[Any, Any, Any]]


class ModulePlan(msgspec.Struct, frozen=True):
    """How a module is loaded: `make` returns its core as it is when the module starts."""

    services: tuple[str, ...]
    events: tuple[str, ...]
    make: Make


def module_plans(
    config: Config,
    inventory: ResourceSet,
    *,
    kvs: Make,
    job_manager: Make,
    exclude: Idset = Idset(),  # noqa: B008 - it is frozen
    missing: Mapping[int, str] | None = None,
) -> dict[str, ModulePlan]:
    """Return the modules of an instance, in the order of their start.

    `kvs` and `job_manager` make the two cores that need more than messages: a store, plugins.
    """
    back = topics.SERVICE_BACK_EVENT
    edition = config.edition_value
    inventory = add_queue_properties(queue_hosts(config), inventory)
    feasibility = () if edition.feasibility is None else (topics.FEASIBILITY,)
    return {
        KVS_MODULE: ModulePlan(edition.kvs.services, (back,), kvs),
        "resource": ModulePlan(
            (topics.RESOURCE,),
            (),
            lambda: ResourceCore(inventory, exclude, missing=missing, edition=edition),
        ),
        "job-manager": ModulePlan(
            (topics.JOB_MANAGER,),
            (topics.RESOURCE_EXPIRATION_EVENT, topics.KVS_DAMAGED_EVENT),
            job_manager,
        ),
        "job-exec": ModulePlan(
            (topics.JOB_EXEC,),
            (
                topics.JOB_EXCEPTION_EVENT,
                topics.EXEC_SERVICE_EVENT,
                back,
                topics.RESOURCE_OFFLINE_EVENT,
                topics.RESOURCE_ONLINE_EVENT,
            ),
            lambda: ExecCore(config.exec, edition=edition),
        ),
        "sched": ModulePlan((topics.SCHED, *feasibility), (back,), lambda: _sched(config)),
        "job-ingest": ModulePlan((topics.JOB_INGEST,), (back,), lambda: IngestCore(config)),
        "job-list": ModulePlan(
            (topics.JOB_LIST, topics.JOB_INFO),
            (back, topics.JOB_PURGE_EVENT),
            lambda: JobListCore(config),
        ),
    }


def note_config(trace: Trace, config: Config) -> None:
    """Put into the trace what a judge needs of the configuration."""
    tables = config.to_json()
    noted = {key: tables[key] for key in ("edition", "policy", "queues")}
    if config.job_manager.stop_queues_on_restart:
        noted["job-manager"] = {"stop-queues-on-restart": True}
    trace.note(Kind.CONFIG, "config", noted)


def _sched(config: Config) -> Core[Any, Any, Any]:
    sched, queues = scheduler_policies(config)
    return SchedCore(sched, config.edition_value, queues, config.parents)
