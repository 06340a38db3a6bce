"""Draws a plan from a seed: every seed has its own subset of what may happen (a swarm)."""

from __future__ import annotations

import random
from typing import Final, Literal, get_args

from flux_trio.faults.catalogue import (
    ClockJump,
    Crash,
    Fault,
    Linger,
    Unload,
    When,
)
from flux_trio.faults.catalogue.base import Module
from flux_trio.faults.plan import Plan
from flux_trio.faults.workload import Do, JobPlan
from flux_trio.messages import topics

NJOBS_MAX: Final = 20
SPAN_S: Final = 30.0  # in which jobs are submitted and requests made
STEPS: Final = 800  # faults at a step strike before this one

_MODULES: Final[tuple[Module, ...]] = get_args(Module)
_WHEN: Final[tuple[tuple[str, Literal["request", "response", "event"]], ...]] = (
    ("sched.alloc", "request"),
    ("sched.alloc", "response"),
    ("sched.free", "request"),
    ("sched.free", "response"),
    ("sched.cancel", "request"),
    ("sched.hello", "request"),
    ("sched.hello", "response"),
    ("sched.ready", "request"),
    (topics.RESOURCE_ACQUIRE, "response"),
    ("job-exec.start", "request"),
    ("job-exec.start", "response"),
    ("job-manager.exec-hello", "request"),
    (topics.KVS_COMMIT, "request"),
    (topics.KVS_COMMIT, "response"),
    (topics.JOB_SUBMIT, "request"),
    (topics.JOB_EXCEPTION_EVENT, "event"),
)


def draw_plan(seed: int, njobs: int | None = None, nfaults: int = 2) -> Plan:
    """Return the plan of `seed`. One of its faults, if there are any, strikes the scheduler."""
    draw = random.Random(f"plan {seed}")
    njobs = draw.randint(1, NJOBS_MAX) if njobs is None else njobs
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
        faults=tuple(_fault(draw, place) for place in range(nfaults)),
    )


_ACTIONS: Final = ("cancel", "urgency", "drain", "down", "queue-stop")


def _job(draw: random.Random) -> JobPlan:
    return JobPlan(
        at=draw.choice((0.0, 0.0, round(draw.uniform(0, SPAN_S), 1))),
        ntasks=draw.choice((1, 1, 2, 3, 5)),
        nnodes=draw.choice((0, 0, 1, 2)),
        run=draw.choice((0.0, 0.5, 2.0, 7.0)),
        limit=draw.choice((0.0, 1.0, 10.0)),
        urgency=draw.choice((0, 5, 16, 16, 30)),
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


def _fault(draw: random.Random, place: int) -> Fault:
    module = "sched" if place == 0 else draw.choice(_MODULES)
    back = draw.choice((0.0, 0.0, 0.5, 3.0))
    when: When | int = draw.randint(1, STEPS)
    if draw.random() < 0.7:
        topic, type_ = draw.choice(_WHEN)
        when = When(topic, draw.randint(1, 6), draw.choice(("send", "recv")), type_)
    match draw.choice(("crash", "crash", "unload", "linger", "clock")):
        case "crash":
            return Crash(module, when, back)
        case "unload":
            return Unload(module, when, back)
        case "linger":
            return Linger(module, when, draw.choice((0.5, 2.0, 10.0)))
        case _:
            return ClockJump(when, draw.choice((-3600.0, -1.0, 1.0, 3600.0)))
