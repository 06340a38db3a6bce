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
    """Worlds, and their steps, a second of CPU time at depth cores."""
    yield from _worlds("cores")


def worlds_stack() -> Iterator[Figure]:
    """Worlds, and their steps, a second of CPU time at depth stack."""
    yield from _worlds("stack")


def _worlds(depth: Depth) -> Iterator[Figure]:
    for seed in range(WORLDS, WORLDS + BEFORE):
        run_plan(_plan(seed, depth))
    started = time.process_time()
    nsteps = sum(run_plan(_plan(seed, depth)).nsteps for seed in range(WORLDS))
    took = time.process_time() - started
    yield Figure(round(WORLDS / took, 1), "worlds/s", WORLDS)
    yield Figure(round(nsteps / took), "steps/s", nsteps)


def _plan(seed: int, depth: Depth) -> Plan:
    return msgspec.structs.replace(draw_plan(seed, 20, 2), nnodes=4, depth=depth)
