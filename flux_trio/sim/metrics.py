"""Metrics of a run: the outcomes of its jobs, and the use of the machine. Pure.

The definitions are the usual ones: wait is from submit to start; slowdown is (wait + run) / run,
with a lower bound of run (Feitelson); a percentile is the nearest rank; utilisation is the
core-seconds that jobs held, divided by the core-seconds of the machine between the first submit and
the last end. Waits and slowdowns count the jobs that started; the other jobs are only counted by
outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import ceil
from statistics import fmean
from typing import Final

SLOWDOWN_BOUND_S: Final = 10.0  # without a bound, the shortest jobs dominate the mean
POINTS_MAX: Final = 500  # per time series; a picture cannot show more

Series = list[tuple[float, float]]
"""A step function: (time in seconds since the Unix epoch, value from then on), times ascending."""

Gapped = list[tuple[float, float | None]]
"""A step function with gaps, in which the value is None."""


class Outcome(StrEnum):
    COMPLETED = "completed"
    TIMEOUT = "timeout"
    FAILED = "failed"
    CANCELED = "canceled"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job that is over. Times are seconds since the Unix epoch."""

    name: str
    t_submit: float
    t_start: float | None
    """None if the job never ran."""
    t_end: float
    ncores: int
    """The cores that it requested, and held while it ran."""
    outcome: Outcome
    note: str = ""
    """Why it did not complete, if that is known."""
    user: str | None = None
    bank: str | None = None
    """The last bank of the job, from its jobspec or set by a plugin."""
    priorities: tuple[tuple[float, int], ...] = ()
    """Pairs of (time, priority from then on)."""

    @property
    def wait_s(self) -> float | None:
        return None if self.t_start is None else self.t_start - self.t_submit

    @property
    def run_s(self) -> float:
        return 0.0 if self.t_start is None else self.t_end - self.t_start


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of a run. Times are in seconds; a mean over no jobs is None."""

    njobs: int
    outcomes: dict[Outcome, int]
    """The number of jobs for every outcome, including 0."""
    t_begin: float
    """The first submit, in seconds since the Unix epoch."""
    t_end: float
    """The last end, in seconds since the Unix epoch."""
    wait_mean_s: float | None
    wait_p95_s: float | None
    slowdown_mean: float | None
    """A run time counts as at least `SLOWDOWN_BOUND_S`."""
    utilisation: float
    """From 0 to 1."""
    utilisation_series: Series
    queue_length_series: Series
    """Jobs that were submitted and have not started."""

    @property
    def makespan_s(self) -> float:
        """Seconds from the first submit to the last end."""
        return self.t_end - self.t_begin


def measure(jobs: Sequence[JobFacts], ncores: int, points_max: int = POINTS_MAX) -> Metrics:
    """Return the metrics of a run on `ncores` cores; a series has at most `points_max` points."""
    t_begin = min((job.t_submit for job in jobs), default=0.0)
    t_end = max((job.t_end for job in jobs), default=0.0)
    waits = sorted(job.wait_s for job in jobs if job.wait_s is not None)
    slowdowns = [bounded_slowdown(job) for job in jobs if job.t_start is not None]
    counts = Counter(job.outcome for job in jobs)
    available = ncores * (t_end - t_begin)
    held = sum(job.ncores * job.run_s for job in jobs)

    def reduce(series: Series) -> Series:
        return downsample(series, t_end, points_max)

    return Metrics(
        njobs=len(jobs),
        outcomes={outcome: counts[outcome] for outcome in Outcome},
        t_begin=t_begin,
        t_end=t_end,
        wait_mean_s=fmean(waits) if waits else None,
        wait_p95_s=percentile(waits, 0.95) if waits else None,
        slowdown_mean=fmean(slowdowns) if slowdowns else None,
        utilisation=held / available if available else 0.0,
        utilisation_series=reduce(_utilisation(jobs, ncores)),
        queue_length_series=reduce(_queue_length(jobs)),
    )


def bounded_slowdown(job: JobFacts) -> float:
    """Return (wait + run) / run of a job that ran, with run at least the bound; at least 1."""
    return max(1.0, (job.t_end - job.t_submit) / max(job.run_s, SLOWDOWN_BOUND_S))


def percentile(ascending: Sequence[float], fraction: float) -> float:
    """Return the smallest value that is not below `fraction` of all values (nearest rank)."""
    return ascending[max(1, ceil(fraction * len(ascending))) - 1]


def downsample(series: Series, t_end: float, points_max: int) -> Series:
    """Return `thinned` of a series without gaps."""
    return [(at, value or 0.0) for at, value in thinned(series, t_end, points_max)]


def thinned(series: Sequence[tuple[float, float | None]], t_end: float, points_max: int) -> Gapped:
    """Return `series`, or if it is longer, its means over `points_max` equal spans to `t_end`.

    A mean is that of the seconds that have a value; a span without a value has None.
    """
    if len(series) <= points_max:
        return list(series)
    t_begin = series[0][0]
    span = (t_end - t_begin) / points_max
    edges = [*(t_begin + place * span for place in range(points_max)), t_end]
    step = 0  # the last one that has begun
    means: Gapped = []
    for begin, end in pairwise(edges):
        total, seconds, at = 0.0, 0.0, begin
        while at < end:
            while step + 1 < len(series) and series[step + 1][0] <= at:
                step += 1
            until = min(series[step + 1][0], end) if step + 1 < len(series) else end
            value = series[step][1]
            if value is not None:
                total += value * (until - at)
                seconds += until - at
            at = until
        means.append((begin, total / seconds if seconds else None))
    return means


def _utilisation(jobs: Iterable[JobFacts], ncores: int) -> Series:
    """Return held cores divided by all cores, over time."""
    changes: Counter[float] = Counter()
    for job in jobs:
        changes[job.t_submit] += 0  # the machine may be idle before the first start
        if job.t_start is not None:
            changes[job.t_start] += job.ncores
            changes[job.t_end] -= job.ncores
    return [(at, held / ncores) for at, held in _running_sum(changes)]


def _queue_length(jobs: Iterable[JobFacts]) -> Series:
    changes: Counter[float] = Counter()
    for job in jobs:
        changes[job.t_submit] += 1
        changes[job.t_end if job.t_start is None else job.t_start] -= 1
    return _running_sum(changes)


def _running_sum(changes: Counter[float]) -> Series:
    """Return a step at each time at which the sum of the changes so far differs from before."""
    series: Series = []
    total = 0
    for at in sorted(changes):
        total += changes[at]
        if not series or series[-1][1] != total:
            series.append((at, float(total)))
    return series
