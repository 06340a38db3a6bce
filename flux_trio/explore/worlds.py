"""The small worlds that come with flux-trio, by name; `make explore` runs all of them."""

from __future__ import annotations

from typing import Final

from flux_trio.faults.catalogue import Crash
from flux_trio.faults.plan import JobPlan, Plan

_ANYTIME: Final = 1  # the moment of a fault that is explored: every one

WORLDS: Final[dict[str, Plan]] = {
    "exec-crash": Plan(
        seed=0,
        nnodes=1,
        cores=1,
        jobs=(JobPlan(),),
        faults=(Crash("job-exec", _ANYTIME),),
    ),
}
