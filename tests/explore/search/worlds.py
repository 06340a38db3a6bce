"""The small worlds that come with flux-trio, by name; `make explore` runs all of them."""

from __future__ import annotations

from typing import Final

from flux_trio.lab.catalogue import Crash
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import JobPlan, OwnerRequest

_ANYTIME: Final = 1  # the moment of a fault that is explored: every one
_APART: Final = 1.0  # the time of a job that is submitted by itself

WORLDS: Final[dict[str, Plan]] = {
    "exec-crash": Plan(
        seed=0, nnodes=1, cores=1, jobs=(JobPlan(),), faults=(Crash("job-exec", _ANYTIME),)
    ),
    "scheduler-crash": Plan(
        seed=0,
        nnodes=2,
        cores=1,
        jobs=(JobPlan(nnodes=1), JobPlan(nnodes=2)),
        faults=(Crash("sched", _ANYTIME),),
    ),
    "cancel-and-priority": Plan(
        seed=0,
        nnodes=1,
        cores=1,
        jobs=(JobPlan(), JobPlan(at=_APART)),
        actions=(OwnerRequest(0.0, "cancel", job=0), OwnerRequest(0.0, "urgency", job=1, value=20)),
    ),
    "queue-stop": Plan(
        seed=0,
        nnodes=1,
        cores=1,
        limit=1,
        jobs=(JobPlan(), JobPlan(), JobPlan()),
        actions=(OwnerRequest(0.0, "queue-stop"), OwnerRequest(0.0, "queue-start")),
    ),
}
