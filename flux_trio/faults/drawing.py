"""Draws a plan from a seed: every seed has its own subset of what may happen (a swarm)."""

from __future__ import annotations

import random
from typing import Final

from flux_trio.faults.plan import Plan
from flux_trio.faults.swarm import draw_faults
from flux_trio.faults.workload import Do, JobPlan

SPAN_S: Final = 30.0  # in which jobs are submitted and requests made


def draw_plan(seed: int, njobs: int | None = None, nfaults: int | None = None) -> Plan:
    """Return the plan of `seed`. One of its faults, if there are any, strikes the scheduler."""
    draw = random.Random(f"plan {seed}")
    njobs = draw.choice(_NJOBS) if njobs is None else njobs
    nfaults = draw.choice(_NFAULTS) if nfaults is None else nfaults
    actions = draw.sample(_ACTIONS, draw.randint(0, len(_ACTIONS)))
    return Plan(
        seed=seed,
        nnodes=draw.choice((1, 2, 4)),
        cores=draw.choice((1, 2, 4)),
        policy=draw.choice(("fifo", "easy", "conservative")),
        limit=draw.choice((0, 0, 1, 2, 4)),
        late=draw.choice((0.0, 0.0, 0.05, 0.3)),
        jobs=tuple(_job(draw) for _ in range(njobs)),
        actions=tuple(
            each
            for _ in range(draw.randint(0, njobs))
            if actions
            for each in _do(draw, actions, njobs)
        ),
        faults=draw_faults(draw, nfaults),
    )


_NJOBS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20)
_NFAULTS: Final = (1, 2, 2, 3, 4, 6)
_ACTIONS: Final = ("cancel", "urgency", "drain", "down", "queue-stop")


def _job(draw: random.Random) -> JobPlan:
    return JobPlan(
        at=draw.choice((0.0, 0.0, round(draw.uniform(0, SPAN_S), 1))),
        ntasks=draw.choice((1, 1, 2, 3, 5)),
        nnodes=draw.choice((0, 0, 1, 2)),
        run=draw.choice((0.0, 0.5, 2.0, 7.0, 90.0)),
        limit=draw.choice((0.0, 0.0, 1.0, 10.0)),
        urgency=draw.choice((0, 5, 16, 16, 30)),
        ranks=draw.choice(((), (), (), (0,), (0, 1), (1, 3))),
    )


def _do(draw: random.Random, actions: list[str], njobs: int) -> list[Do]:
    at = round(draw.uniform(0, SPAN_S), 1)
    after = round(at + draw.choice((0.0, 0.5, 5.0)), 1)
    rank = draw.randrange(4)
    match draw.choice(actions):
        case "cancel":
            return [Do(at, "cancel", job=draw.randrange(njobs))]
        case "urgency":
            urgency = draw.choice((0, 1, 16, 20, 31))
            return [Do(at, "urgency", job=draw.randrange(njobs), value=urgency)]
        case "drain":
            return [Do(at, "drain", rank=rank), Do(after, "undrain", rank=rank)]
        case "down":
            return [Do(at, "down", rank=rank), Do(after, "up", rank=rank)]
        case _:
            return [Do(at, "queue-stop"), Do(after, "queue-start")]
