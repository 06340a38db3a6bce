"""What the world of a plan is given: its configuration, its nodes, and what is so at its start."""

from __future__ import annotations

from flux_trio.config import (
    Config,
    ExecConfig,
    JobManagerConfig,
    PerilogConfig,
    QueueTable,
    SchedConfig,
)
from flux_trio.formats import Idset, ResourceSet
from flux_trio.lab.catalogue import PluginFault, When
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import queue_name
from flux_trio.lab.world.machines import Surroundings
from flux_trio.lab.world.plugin_files import LOOP_S, builtin_files, plugin_file


def config_of(plan: Plan) -> Config:
    """Return the configuration of the instance of a plan."""
    sched = SchedConfig(policy=plan.policy)
    if plan.limit:
        sched = SchedConfig(policy=plan.policy, mode="limited", limit=plan.limit)
    queues = {queue_name(number): QueueTable() for number in range(plan.queues)}
    command = PerilogConfig(command=["true"]) if "perilog" in plan.builtins else None
    limited = JobManagerConfig(plugin_loop_limit=f"{LOOP_S}s", prolog=command, epilog=command)
    return Config(
        edition=plan.edition,
        exec=ExecConfig(simulate=True),
        job_manager=limited,
        sched=sched,
        queues=queues,
    )


def prompts_of(plan: Plan) -> dict[int, When]:
    """Return at which message the owner makes each request that waits for one, by its place."""
    begin = len(plan.jobs)
    return {
        place: each.when for place, each in enumerate(plan.actions, begin) if each.when is not None
    }


def surroundings_of(plan: Plan) -> Surroundings:
    """Return the nodes, plugins and store of the world of a plan, and what is down at its start."""
    cores = (1 << plan.cores) - 1
    ranks = range(plan.nnodes)
    hooks = [fault.hook for fault in plan.faults if isinstance(fault, PluginFault)]
    excluded = [rank for each in plan.faults for rank in each.excluded_at_start]
    down = [rank for each in plan.faults for rank in each.down_at_start]
    return Surroundings(
        ResourceSet.build(((rank, cores, 0) for rank in ranks), "node{}".format),
        exclude=Idset.of(rank for rank in excluded if rank in ranks),
        missing={rank: "it is down" for rank in down if rank in ranks},
        hooks=tuple(dict.fromkeys(hooks)),
        plugins=tuple(map(plugin_file, plan.plugins)),
        builtins=builtin_files(plan.builtins, plan.depth),
        store=plan.store,
    )
