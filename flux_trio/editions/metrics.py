"""Durations in the answers to stats-get requests: this project's own, the same in all editions."""

from __future__ import annotations

import msgspec


class Histogram(msgspec.Struct, frozen=True):
    """Durations by length: how many there were for each of `bounds` (seconds), and longer ones.

    A duration is counted at the first bound that it does not exceed. `sum` is in seconds.
    """

    bounds: list[float]
    counts: list[int]
    sum: float
