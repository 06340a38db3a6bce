"""Durations counted in fixed ranges: their size never grows. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from flux_trio.cores.state import Part
from flux_trio.editions.common import Histogram

SHORT_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Bounds for the durations of one step, in seconds."""

LONG_S: Final = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
"""Bounds for the times that jobs wait, in seconds."""


class Durations(Part):
    """How many durations were at most as long as each bound, and their sum, in seconds."""

    counts: list[int]  # for each bound, and for longer durations
    total: float

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration; if a clock step made it negative, the sum stays the same."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.total += max(seconds, 0.0)

    def histogram(self) -> Histogram:
        return Histogram(list(self._bounds), self.counts, self.total)
