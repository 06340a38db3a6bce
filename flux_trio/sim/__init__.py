"""Simulation: a whole instance in virtual time, repeatable from one seed.

`simulate` runs the `WorkloadJob`s of a log on an instance of any size, and returns `JobFacts` of
each job and `Metrics` of all. It runs the services themselves, or their cores (`Depth`): this
package has no scheduler or job manager of its own.
"""

from flux_trio.sim.log_rows import WorkloadJob
from flux_trio.sim.metrics import JobFacts, Metrics, Outcome, Series, measure
from flux_trio.sim.replay import Progress, SimulationStalled
from flux_trio.sim.run import SimulationResult, make_machine, simulate
from flux_trio.sim.served import served_run
from flux_trio.sim.simulated_run import Depth
from flux_trio.sim.users import deal_users
from flux_trio.sim.workload import decode_log, read_workload, to_jobspec
from flux_trio.sim.world import SteppedRun, run_world, seeded_tasks

__all__ = [
    "Depth",
    "JobFacts",
    "Metrics",
    "Outcome",
    "Progress",
    "Series",
    "SimulationResult",
    "SimulationStalled",
    "SteppedRun",
    "WorkloadJob",
    "deal_users",
    "decode_log",
    "make_machine",
    "measure",
    "read_workload",
    "run_world",
    "seeded_tasks",
    "served_run",
    "simulate",
    "to_jobspec",
]
