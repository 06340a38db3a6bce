"""Simulation: a whole instance in virtual time, repeatable from one seed.

A `WorkloadJob` is a job of a log, `Metrics` are what a run comes to. It runs the services
themselves: there is no second scheduler or job manager in here.
"""

from flux_trio.sim.metrics import JobFacts, Metrics, Outcome, Series, measure
from flux_trio.sim.workload import WorkloadJob, read_workload, to_jobspec

__all__ = [
    "JobFacts",
    "Metrics",
    "Outcome",
    "Series",
    "WorkloadJob",
    "measure",
    "read_workload",
    "to_jobspec",
]
