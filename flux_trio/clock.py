"""The clock of a real instance: the wall's time for dates, the time that passes for durations.

People and NTP set the wall clock, in steps. CLOCK_BOOTTIME counts what passes: it never steps, and
goes on while the machine sleeps. Both are handed in. A virtual clock is no `Clock` but a function,
which never steps and serves for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

Now = Callable[[], float]

STEP_S_MIN: Final = 0.5  # a smaller change of the wall clock is no step; it counts with the next
LOOK_S: Final = 1.0  # a step, or a sleep of the machine, is found that late by those who wait


class Clock:
    """`wall` gives seconds since the Unix epoch, `passed` seconds since some moment."""

    def __init__(self, wall: Now, passed: Now) -> None:
        self.wall = wall
        self.passed = passed

    def __call__(self) -> float:
        """The wall's time."""
        return self.wall()


class Steps:
    """Finds the steps of the wall clock, as one who looks now and then."""

    def __init__(self, clock: Now) -> None:
        self._clock = clock
        self._seen = self.ahead()

    def found(self) -> float:
        """By how many seconds the wall clock was set since the last look; 0.0 if it was not."""
        ahead = self.ahead()
        by = ahead - self._seen
        if abs(by) < STEP_S_MIN:
            return 0.0
        self._seen = ahead
        return by

    def ahead(self) -> float:
        """Seconds that the wall shows now more than have passed."""
        clock = self._clock
        return clock.wall() - clock.passed() if isinstance(clock, Clock) else 0.0


def passing(clock: Now) -> Now:
    """What counts durations beside `clock`."""
    return clock.passed if isinstance(clock, Clock) else clock


def wait_s_max(clock: Now) -> float:
    """How long to wait by Trio's clock before looking at `clock` again: Trio's may stand still."""
    return LOOK_S if isinstance(clock, Clock) else math.inf
