"""The figures of the runs that a comparison shows. Times are in seconds; None where nothing was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Points: TypeAlias = Sequence[tuple[float, float | None]]
"""A step function: (time in seconds since the Unix epoch, value from then on); None: no value."""


@dataclass(frozen=True, slots=True)
class Served:
    """The figures of one user or bank; the waits are None if no job of it started."""

    name: str
    njobs: int
    wait_mean_s: float | None
    wait_p95_s: float | None
    received: float
    """The part of all used core-seconds, 0 to 1."""
    owed: float
    """The part by the shares of the policy, 0 to 1."""
    priority: Points
    """The mean priority of its pending jobs over time; None while it has no pending job."""


@dataclass(frozen=True, slots=True)
class Waited:
    """A job that waited long, and why."""

    name: str
    user: str
    ncores: int
    wait_s: float
    why: str


@dataclass(frozen=True, slots=True)
class ServedRun:
    """One run; times are seconds since the Unix epoch."""

    name: str
    njobs: int
    users: Sequence[Served]
    banks: Sequence[Served]
    t_begin: float
    t_end: float
    wait_mean_s: float | None
    wait_p95_s: float | None
    slowdown_mean: float | None
    utilisation: float
    """From 0 to 1."""
    utilisation_series: Points
    queue_length_series: Points
    longest: Sequence[Waited]


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that did not come to its end, and why."""

    name: str
    why: str
