"""How a run served each user and bank, and the jobs that waited longest. Pure.

`received` is the part of all jobs' core-seconds that the group's jobs held. `owed` is its part of
the shares; without a policy, all groups have the same share.

Why a job waited is read from what is known afterwards: which cores were free meanwhile, and which
jobs went first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Final

from flux_trio.sim.metrics import POINTS_MAX, Gapped, JobFacts, Metrics, percentile, thinned
from flux_trio.views import Served, ServedRun, Waited

NOBODY = "-"  # the user or bank of a job that has none


def served_run(
    name: str, jobs: Sequence[JobFacts], metrics: Metrics, shares: Mapping[str, float], ncores: int
) -> ServedRun:
    """Return the figures of a run on `ncores` cores; `shares` are by user name, in any unit."""
    banks: dict[str, float] = defaultdict(float)
    bank_of = {job.user: job.bank for job in jobs}
    for user, share in shares.items():
        banks[bank_of.get(user) or NOBODY] += share
    return ServedRun(
        name,
        len(jobs),
        serve_by(jobs, lambda job: job.user, shares, metrics.t_end),
        serve_by(jobs, lambda job: job.bank, banks, metrics.t_end),
        metrics.t_begin,
        metrics.t_end,
        metrics.wait_mean_s,
        metrics.wait_p95_s,
        metrics.slowdown_mean,
        metrics.utilisation,
        metrics.utilisation_series,
        metrics.queue_length_series,
        longest_waits(jobs, ncores),
    )


def serve_by(
    jobs: Sequence[JobFacts],
    of: Callable[[JobFacts], str | None],
    shares: Mapping[str, float],
    t_end: float,
) -> list[Served]:
    """Return the figures of each group of jobs with the same `of`, sorted by name."""
    groups: dict[str, list[JobFacts]] = defaultdict(list)
    for job in jobs:
        groups[of(job) or NOBODY].append(job)
    used = {name: sum(job.ncores * job.run_s for job in mine) for name, mine in groups.items()}
    all_used = sum(used.values()) or 1.0
    owed = {name: shares.get(name, 0.0) for name in groups} if shares else dict.fromkeys(groups, 1)
    all_owed = sum(owed.values()) or 1.0
    return [
        _served(name, groups[name], used[name] / all_used, owed[name] / all_owed, t_end)
        for name in sorted(groups)
    ]


def _served(
    name: str, jobs: Sequence[JobFacts], received: float, owed: float, t_end: float
) -> Served:
    waits = sorted(job.wait_s for job in jobs if job.wait_s is not None)
    priority = mean_priority(jobs)
    return Served(
        name,
        len(jobs),
        fmean(waits) if waits else None,
        percentile(waits, 0.95) if waits else None,
        received,
        owed,
        thinned(priority, t_end, POINTS_MAX),
    )


def mean_priority(jobs: Iterable[JobFacts]) -> Gapped:
    """Return the mean priority of the pending jobs over time; None while none has a priority."""
    changes: list[tuple[float, float, int]] = []  # time, change of the sum and of the count
    for job in jobs:
        held = 0.0
        for place, (at, value) in enumerate(job.priorities):
            changes.append((at, value - held, int(place == 0)))
            held = float(value)
        if job.priorities:
            over = job.t_end if job.t_start is None else job.t_start
            changes.append((max(over, job.priorities[-1][0]), -held, -1))
    series: Gapped = []
    total, count = 0.0, 0
    for at, by, more in sorted(changes):
        total, count = total + by, count + more
        mean = total / count if count else None
        if series and series[-1][0] == at:
            series[-1] = (at, mean)
        elif not series or series[-1][1] != mean:
            series.append((at, mean))
    return series


# --- the jobs that waited longest


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
