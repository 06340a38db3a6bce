"""Draws a plan from a seed: every seed has its own subset of what may happen (a swarm)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from flux_trio.config import POLICY_NAMES
from flux_trio.lab.catalogue.aim import Aim
from flux_trio.lab.plans.asking import draw_long_requests, draw_new_durations, draw_subscription
from flux_trio.lab.plans.combined_faults import Coincidence, draw_coincidence, draw_lost_manager
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.rare_requests import with_backup, with_visits, with_visits_of_stack
from flux_trio.lab.plans.rarely_met import draw_rarely_met
from flux_trio.lab.plans.swarm import draw_faults
from flux_trio.lab.plans.workload import SPAN_S, Action, JobPlan, OwnerRequest


def draw_plan(seed: int, njobs: int | None = None, nfaults: int | None = None) -> Plan:
    """Return the plan of `seed`. One of its faults, if there are any, strikes the scheduler.

    If their number is not given, two thirds of the plans also have faults and requests that meet.
    In a third of the plans the owner changes the duration of jobs, in a quarter of them the owner
    has requests that stay open until jobs have ended, and in a fifth a subscription to events. What
    `with_visits` adds comes last.
    """
    draw = random.Random(f"plan {seed}")
    has_coincidences = nfaults is None
    njobs = draw.choice(_NJOBS) if njobs is None else njobs
    nfaults = draw.choice(_NFAULTS) if nfaults is None else nfaults
    nnodes = draw.choice((1, 2, 4))
    queues = draw.choice((0, 0, 2))
    aim = Aim(draw, njobs, nnodes)
    actions = draw.sample(_ACTIONS, draw.randint(0, len(_ACTIONS)))
    plan = Plan(
        seed=seed,
        nnodes=nnodes,
        cores=draw.choice((1, 2, 4)),
        policy=draw.choice(POLICY_NAMES),
        limit=draw.choice((0, 0, 1, 2, 4)),
        late=draw.choice((0.0, 0.0, 0.05, 0.3)),
        jobs=_jobs(draw, njobs, nnodes, queues),
        actions=tuple(
            each
            for _ in range(draw.randint(0, njobs))
            if actions
            for each in _do(draw, draw.choice(actions), njobs, queues, aim)
        ),
        faults=draw_faults(draw, nfaults, aim),
        queues=queues,
    )
    for name, drawn in _MORE if has_coincidences else _MORE[:3]:
        faults, asked = drawn(random.Random(f"{name} {seed}"), plan)
        if has_coincidences:
            plan = replace(plan, faults=(*plan.faults, *faults))
        plan = replace(plan, actions=(*plan.actions, *asked))
    visits = random.Random(f"visits {seed}")
    return with_visits(visits, plan, SPAN_S, is_to_grow=has_coincidences)


def draw_for_stack(plan: Plan) -> Plan:
    """Return the plan with what only a world of the stack has."""
    plan = with_visits_of_stack(random.Random(f"recovery {plan.seed}"), plan, SPAN_S)
    return with_backup(random.Random(f"backup {plan.seed}"), plan, SPAN_S)


_MORE: Final[tuple[tuple[str, Callable[[random.Random, Plan], Coincidence]], ...]] = (
    ("duration", draw_new_durations),
    ("long", draw_long_requests),
    ("subscription", draw_subscription),
    ("meeting", draw_coincidence),
    ("lost manager", draw_lost_manager),
    ("rarely met", draw_rarely_met),
)
"""What plans have beside their faults and requests, each from a generator with a name of its own.
The last three are left out if the number of faults is given."""
_NJOBS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20)
_NFAULTS: Final = (1, 2, 2, 3, 4, 6)
_ACTIONS: Final = ("cancel", "urgency", "drain", "down", "queue-stop", "queue-disable")
_RUNS_S: Final = (0.0, 0.5, 2.0, 7.0, 40.0, 90.0)


def _jobs(draw: random.Random, njobs: int, nnodes: int, queues: int) -> tuple[JobPlan, ...]:
    """Draw jobs; in some worlds most of them can never run, run long, or have one urgency."""
    sizes = draw.choice(((1, 1, 2), (1, 1, 2, 3, 5)))
    widths = (0, 0, 1, min(2, nnodes)) if draw.random() < 0.7 else (0, 0, 1, 2)
    places = ((), (), (), (0,), (0, 1), (1, 3)) if draw.random() < 0.5 else ((),)
    runs = draw.sample(_RUNS_S, draw.randint(1, len(_RUNS_S)))
    limits = draw.choice(((0.0,), (0.0, 0.0, 1.0, 10.0), (1.0, 10.0, 60.0)))
    urgencies = draw.choice(((16,), (0, 5, 16, 16, 30), (1, 5, 16, 30)))
    return tuple(
        JobPlan(
            at=draw.choice((0.0, 0.0, round(draw.uniform(0, SPAN_S), 1))),
            ntasks=draw.choice(sizes),
            nnodes=draw.choice(widths),
            run=draw.choice(runs),
            limit=draw.choice(limits),
            urgency=draw.choice(urgencies),
            ranks=draw.choice(places),
            queue=draw.randrange(queues) if queues else None,
        )
        for _ in range(njobs)
    )


def _do(
    draw: random.Random, action: str, njobs: int, queues: int, aim: Aim
) -> Iterator[OwnerRequest]:
    """Draw what a user does: some of it at a message, and some of it twice."""
    at = round(draw.uniform(0, SPAN_S), 1)
    after = round(at + draw.choice((0.0, 0.5, 5.0, 60.0)), 1)
    when = aim.when() if draw.random() < 0.5 else None
    match action:
        case "cancel":
            yield OwnerRequest(at, "cancel", job=draw.randrange(njobs), when=when)
        case "urgency":
            job = draw.randrange(njobs)
            yield OwnerRequest(
                at, "urgency", job=job, value=draw.choice((0, 1, 16, 20, 31)), when=when
            )
            if draw.random() < 0.5:
                yield OwnerRequest(after, "urgency", job=job, value=draw.choice((0, 16, 16, 31)))
        case "drain":
            for rank in aim.ranks():
                yield OwnerRequest(at, "drain", rank=rank, when=when)
                yield OwnerRequest(after, "undrain", rank=rank)
        case "down":
            for rank in aim.ranks():
                yield OwnerRequest(at, "down", rank=rank, when=when)
                yield OwnerRequest(after, "up", rank=rank)
        case _:
            queue = draw.randrange(queues) if queues and draw.random() < 0.5 else None
            what, back = _OF_QUEUES[action]
            yield OwnerRequest(at, what, queue=queue, when=when)
            if draw.random() < 0.7:  # else it stays until everything is put right
                yield OwnerRequest(after, back, queue=queue)


_OF_QUEUES: Final[dict[str, tuple[Action, Action]]] = {
    "queue-stop": ("queue-stop", "queue-start"),
    "queue-disable": ("queue-disable", "queue-enable"),
}
