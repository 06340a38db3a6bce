"""Policies: which job runs where and when, as functions of the queue, the resources and the time.

A `Schedule` holds them: a `Pool` of cores and gpus, the `Job`s that wait, the `Grant`s that hold
some, and a policy by name (`POLICIES`): FIFO, EASY or conservative backfill. It knows no
messages; it does not know what time it is unless told.
"""

from flux_trio.policies.lanes import POLICIES
from flux_trio.policies.policy import Decisions, Policy
from flux_trio.policies.pool import Pool, PoolError
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
]
