"""The jobs that waited longest, and why. Pure.

What is known afterwards is which cores were free while a job waited, and which jobs went first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from flux_trio.sim.metrics import JobFacts
from flux_trio.views import Waited

SHOWN: Final = 10


class _Machine:
    """How many cores were free over time."""

    def __init__(self, jobs: Sequence[JobFacts], ncores: int) -> None:
        changes: dict[float, int] = {}
        for job in jobs:
            if job.t_start is not None:
                changes[job.t_start] = changes.get(job.t_start, 0) - job.ncores
                changes[job.t_end] = changes.get(job.t_end, 0) + job.ncores
        self._times = sorted(changes)
        self._free = list(accumulate((changes[at] for at in self._times), initial=ncores))

    def seconds_without(self, ncores: int, begin: float, end: float) -> float:
        """Return the seconds from `begin` to `end` in which fewer than `ncores` cores were free."""
        seconds = 0.0
        place = bisect_right(self._times, begin)
        at = begin
        while at < end:
            until = min(self._times[place], end) if place < len(self._times) else end
            if self._free[place] < ncores:
                seconds += until - at
            at, place = until, place + 1
        return seconds


def longest_waits(jobs: Sequence[JobFacts], ncores: int, count: int = SHOWN) -> list[Waited]:
    """Return the `count` jobs that waited longest on a machine of `ncores` cores, with a reason."""
    waited = [job for job in jobs if job.wait_s]
    waited.sort(key=lambda job: -(job.wait_s or 0.0))
    machine = _Machine(jobs, ncores)
    return [
        Waited(job.name, job.user or "-", job.ncores, job.wait_s or 0.0, _why(job, jobs, machine))
        for job in waited[:count]
    ]


def _why(job: JobFacts, jobs: Sequence[JobFacts], machine: _Machine) -> str:
    assert job.t_start is not None
    wait = job.t_start - job.t_submit
    full = machine.seconds_without(job.ncores, job.t_submit, job.t_start)
    passed = sum(
        job.t_submit < other.t_submit and (other.t_start or job.t_start) < job.t_start
        for other in jobs
    )
    ahead = sum(
        other.t_submit <= job.t_submit < (other.t_start or 0.0) <= job.t_start
        for other in jobs
        if other is not job
    )
    parts = [f"fewer than {job.ncores} cores were free for {full / wait:.0%} of the time"]
    if full < wait:
        parts.append("else others went first, its cores were scattered, or a plugin held it")
    parts.append(f"{ahead} earlier jobs waited before it, {passed} later ones passed it")
    return "; ".join(parts)
