"""Scheduling policies: decide which job runs where and when, without messages and without a clock.

A `Schedule` contains a `Pool` of cores and gpus, the waiting `Job`s, the `Grant`s of running jobs,
and a policy, chosen by name from `POLICIES`: FIFO, EASY or conservative backfill. The caller passes
in the current time.
"""

from flux_trio.policies.lanes import POLICIES
from flux_trio.policies.policy import Decisions, Policy
from flux_trio.policies.pool import Pool, PoolError
from flux_trio.policies.reserving import earliest_start
from flux_trio.policies.schedule import Schedule
from flux_trio.policies.shape import Allocation, Shape
from flux_trio.policies.state import Grant, Job, State

__all__ = [
    "POLICIES",
    "Allocation",
    "Decisions",
    "Grant",
    "Job",
    "Policy",
    "Pool",
    "PoolError",
    "Schedule",
    "Shape",
    "State",
    "earliest_start",
]
