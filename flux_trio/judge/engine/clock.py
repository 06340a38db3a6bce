"""The age of records: tells whether a record is older than some seconds, from a few samples of the
time.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple, TypeAlias

from flux_trio.judge.engine.selector import payload
from flux_trio.trace import SLEEP, Record

TICKS: Final = 8
"""The number of samples in each span of `after_s` seconds: an answer is late by one sample at
most."""


Samples: TypeAlias = tuple[tuple[float, int], ...]
"""Times, each with the number of the last record by then, in order."""


class ClockState(NamedTuple):
    """The state of a `Clock`: its samples, the last old record, and the time of the next sample."""

    samples: Samples
    old: int
    next_t: float


class Clock:
    """Knows the last record that is at least `after_s` old; samples the times that it sees."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._samples: deque[tuple[float, int]] = deque()
        self._old = 0
        self.next_t = -math.inf
        """The time of the next sample."""

    def sample(self, t: float, last: tuple[float, int] | None) -> None:
        """Note the time `t` of a record, which is not before `next_t`.

        `last` has the time and the number of the record before it.
        """
        if last is not None:
            self._samples.append(last)
        self.next_t = t + self._after_s / TICKS

    def old(self, now: float) -> int:
        """Return the number of the last record that was there `after_s` seconds before `now`; 0 if
        none was.
        """
        samples = self._samples
        while samples and samples[0][0] <= now - self._after_s:
            self._old = samples.popleft()[1]
        return self._old

    def state(self) -> ClockState:
        """Return the state, as `take_up` takes it."""
        return ClockState(tuple(self._samples), self._old, self.next_t)

    def take_up(self, state: ClockState) -> None:
        """Replace the state by one that `state` has returned."""
        samples, self._old, self.next_t = state
        self._samples = deque(samples)


def step_of(record: Record) -> float:
    """Return by how many seconds the wall clock was set, as a record says."""
    return _seconds(payload(record).get("by"))


def slept_of(record: Record) -> float:
    """Return for how many seconds no party acts after a fault, as the fault's record says."""
    fault = payload(record)
    return _seconds(fault.get("seconds")) if fault.get("type") == SLEEP else 0.0


def _seconds(value: object) -> float:
    """Return `value`; 0 for what is no number, as in a trace of another implementation."""
    return value if isinstance(value, (int, float)) else 0.0
