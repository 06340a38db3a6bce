"""How old records are: a monitor needs no more than whether a record is older than some seconds."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from flux_trio.trace import Record

TICKS: Final = 8
"""Samples for each span of `after_s`: the answer is late by one sample at most."""


class Clock:
    """Knows the last record that is at least `after_s` old; samples the times that it sees."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._samples: deque[tuple[float, int]] = deque()
        self._old = 0
        self.next_t = -math.inf
        """The time of the next sample."""

    def sample(self, t: float, last: Record | None) -> None:
        """Take the time `t` of a record, which is not before `next_t`, and the record before it."""
        if last is not None:
            self._samples.append((last.t, last.n))
        self.next_t = t + self._after_s / TICKS

    def old(self, now: float) -> int:
        """Return the number of the last record that was there `after_s` before `now`; 0 if none."""
        samples = self._samples
        while samples and samples[0][0] <= now - self._after_s:
            self._old = samples.popleft()[1]
        return self._old
