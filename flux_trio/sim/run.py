"""A simulated run: a workload on a machine of any size, in seconds instead of months.

The modules of an instance run in virtual time, with their store in memory and simulated execution.
One peer submits each job at its time, and follows the job manager's journal until all jobs have
ended. The jobspec says when a job ends: after its elapsed time, or at its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from flux_trio.broker import LogEntry
from flux_trio.config import Config, ExecConfig, UserLimitsConfig
from flux_trio.formats import ResourceSet
from flux_trio.jobtap import Plugin, PluginError
from flux_trio.sim.log_rows import WorkloadJob
from flux_trio.sim.metrics import JobFacts, Metrics, measure
from flux_trio.sim.on_cores import NeedsTrio, run_on_cores
from flux_trio.sim.on_stack import run_on_stack
from flux_trio.sim.replay import Progress
from flux_trio.sim.simulated_run import Depth, Ran, SimulatedRun
from flux_trio.sim.users import userids_of
from flux_trio.sim.workload import check_span
from flux_trio.trace import Sink


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The jobs and figures of a simulated workload."""

    jobs: list[JobFacts]
    """In the order they were submitted."""
    metrics: Metrics
    shares: dict[str, float]
    """Each user's share by a plugin's policy, in any unit; {} if no plugin has shares."""
    depth: Depth
    """What ran."""


def make_machine(nnodes: int, cores_per_node: int, gpus_per_node: int = 0) -> ResourceSet:
    """Return a machine of equal nodes: node0, node1 and so on."""
    cores, gpus = (1 << cores_per_node) - 1, (1 << gpus_per_node) - 1
    return ResourceSet.build(((rank, cores, gpus) for rank in range(nnodes)), "node{}".format)


def simulate(
    jobs: Iterable[WorkloadJob],
    machine: ResourceSet,
    policy: str = "fifo",
    seed: int = 0,
    *,
    config: Config | None = None,
    progress: Progress | None = None,
    plugins: Iterable[Plugin] = (),
    sinks: Iterable[Sink] = (),
    log_sinks: Iterable[Callable[[LogEntry], None]] = (),
    depth: Depth | None = None,
) -> SimulationResult:
    """Run `jobs` on `machine` until all have ended; the same seed gives the same run.

    The scheduler denies a job that is too large for the machine, and ingest refuses an invalid job;
    both are in the result. `config` has queues, limits and plugins. A job with a user is submitted
    by that user. `sinks` get every record of the trace, `log_sinks` every entry of the log. Without
    `depth` the cores run, unless a plugin may wait. Raises SimulationStalled if some jobs will
    never end, PluginError if a plugin wants to wait at the depth cores, FormatError if a job is
    submitted over 34.8 years after the first, and the errors of `open_instance`.
    """
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    check_span(ordered, lambda place: f"job {ordered[place].name}, submit_s")
    asked = SimulatedRun(
        jobs=ordered,
        machine=machine,
        config=_simulated(config or Config(), policy),
        userids=userids_of(ordered),
        plugins=list(plugins),
        sinks=list(sinks),
        log_sinks=list(log_sinks),
        seed=seed,
        progress=progress,
    )
    (facts, shares), ran = _run(asked, depth)
    return SimulationResult(facts, measure(facts, machine.ncores), shares, ran)


def _run(asked: SimulatedRun, depth: Depth | None) -> tuple[Ran, Depth]:
    """Run at this depth, or at that which the plugins need; return what ran, too."""
    if depth == "stack":
        return run_on_stack(asked), "stack"
    try:
        return run_on_cores(asked), "cores"
    except NeedsTrio as why:
        if depth == "cores":
            raise PluginError(str(why)) from why
    return run_on_stack(asked), "stack"


def _simulated(config: Config, policy: str) -> Config:
    """Return the configuration of a run: no processes, and no limits of users."""
    no_limits = UserLimitsConfig(
        jobs=0, jobspec_bytes=0, jobspec_cost=0
    )  # the jobs of a log passed the limits of their own site
    return msgspec.structs.replace(
        config,
        sched=msgspec.structs.replace(config.sched, policy=policy),
        exec=ExecConfig(simulate=True),
        job_manager=msgspec.structs.replace(config.job_manager, user_limits=no_limits),
    )
