"""Machines and jobs for tests of scheduling, and a clockless simulation of a schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from flux_trio.formats import Constraint, Group, Idset, ResourceSet
from flux_trio.policies import Allocation, Grant, Job, Schedule, Shape

Unit = tuple[int, str, int]
"""One core or gpu: (rank, "core" or "gpu", id)."""


def machine(
    nodes: int, cores: int, gpus: int = 0, *, first: int = 0, **more: object
) -> ResourceSet:
    """`nodes` equal nodes of ranks from `first` on."""
    group = Group(((1 << nodes) - 1) << first, (1 << cores) - 1, (1 << gpus) - 1)
    hosts = tuple([f"node{rank}" for rank in range(first, first + nodes)])
    return ResourceSet((group,), hosts, **more)  # type: ignore[arg-type]  # passed through


def slots(count: int, cores: int = 1, gpus: int = 0, constraint: Constraint | None = None) -> Shape:
    """Slots anywhere."""
    return Shape(
        count, cores, gpus, by_node=False, whole=False, nslots=count, constraint=constraint
    )


def nodes(
    count: int,
    cores: int = 1,
    gpus: int = 0,
    *,
    whole: bool = False,
    constraint: Constraint | None = None,
) -> Shape:
    """Nodes with one slot each."""
    return Shape(count, cores, gpus, by_node=True, whole=whole, nslots=count, constraint=constraint)


def units(allocation: Allocation) -> set[Unit]:
    """Every core and gpu of it."""
    return {
        (rank, kind, number)
        for group in allocation.groups
        for rank in Idset.from_bits(group.ranks)
        for kind, bits in (("core", group.cores), ("gpu", group.gpus))
        for number in Idset.from_bits(bits)
    }


@dataclass
class Timed:
    """A job and when it comes; `lasts` is how long it really runs, its duration at most."""

    shape: Shape
    duration: float
    lasts: float
    arrives: float = 0.0
    priority: int = 16


@dataclass
class Story:
    """What a simulation did."""

    started: dict[int, float] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    estimates: dict[int, list[float]] = field(default_factory=dict)
    """Of each job, every start time it was promised."""


def simulate(schedule: Schedule, jobs: list[Timed]) -> Story:
    """Let `jobs` come and go until nothing more happens; no core is ever given out twice."""
    story = Story()
    arrivals = sorted(enumerate(jobs), key=lambda item: item[1].arrives)
    ends: list[tuple[float, int]] = []
    held: dict[int, set[Unit]] = {}
    while arrivals or ends:
        now = min([*(job.arrives for _, job in arrivals[:1]), *(end for end, _ in ends)])
        for end, jobid in sorted(ends):
            if end <= now:
                schedule.free(jobid)
                del held[jobid]
        ends = [item for item in ends if item[0] > now]
        while arrivals and arrivals[0][1].arrives <= now:
            jobid, job = arrivals.pop(0)
            schedule.submit(Job(jobid, job.shape, job.duration, job.priority, job.arrives))
        decisions = schedule.decide(now)
        for started, grant in decisions.started:
            _take(held, started.id, grant)
            story.started[started.id] = now
            story.order.append(started.id)
            ends.append((now + jobs[started.id].lasts, started.id))
        for waiting, start in decisions.waiting.items():
            if start is not None and math.isfinite(start):
                story.estimates.setdefault(waiting.id, []).append(start)
    return story


def _take(held: dict[int, set[Unit]], jobid: int, grant: Grant) -> None:
    mine = units(grant.allocation)
    for other, theirs in held.items():
        assert not mine & theirs, f"{jobid} and {other} share {mine & theirs}"
    held[jobid] = mine


def schedule(policy: str, count: int = 4, cores: int = 1, **more: object) -> Schedule:
    """A schedule with `count` nodes of `cores` cores."""
    made = Schedule(policy)
    made.grow(machine(count, cores, **more), -1)  # type: ignore[arg-type]  # passed through
    return made
