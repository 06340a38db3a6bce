"""Worlds with faults a second, judged: 20 jobs, 4 nodes, 2 faults, one of them the scheduler's."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from flux_trio.lab import Plan, draw_plan, run_plan
from flux_trio.lab.plans.plan import Depth
from tests.benchmarks.measure import SMALL, Figure

WORLDS = 2 if SMALL else 40
BEFORE = 1 if SMALL else 20
"""Worlds of other seeds that are played first: a campaign imports, plans and compiles once in a
process, and then plays hundreds."""


def worlds_cores() -> Iterator[Figure]:
    """Worlds a second of CPU time at depth cores."""
    yield _worlds("cores")


def worlds_stack() -> Iterator[Figure]:
    """Worlds a second of CPU time at depth stack."""
    yield _worlds("stack")


def _worlds(depth: Depth) -> Figure:
    for seed in range(WORLDS, WORLDS + BEFORE):
        run_plan(_plan(seed, depth))
    started = time.process_time()
    for seed in range(WORLDS):
        run_plan(_plan(seed, depth))
    return Figure(round(WORLDS / (time.process_time() - started), 1), "worlds/s", WORLDS)


def _plan(seed: int, depth: Depth) -> Plan:
    return msgspec.structs.replace(draw_plan(seed, 20, 2), nnodes=4, depth=depth)
