"""The clock of a real instance: wall-clock time for dates, monotonic time for durations.

People and NTP set the wall clock in steps. CLOCK_BOOTTIME measures durations: it never steps, and
it advances while the machine sleeps. The caller passes both in. A virtual clock is not a `Clock`
but a function that never steps and serves for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec
import trio

Now = Callable[[], float]

STEP_S_MIN: Final = 0.5  # a smaller change of the wall clock is ignored until the sum is larger
LOOK_S: Final = 1.0  # how often waiting tasks look for a step or a sleep of the machine


class Clock:
    """`wall` returns seconds since the Unix epoch, `passed` monotonic seconds.

    `look_s` is how long to wait by Trio's clock at most before a look at this one. It is infinity
    in a simulated run, where Trio's clock never stands still.
    """

    def __init__(self, wall: Now, passed: Now, look_s: float = LOOK_S) -> None:
        self.wall = wall
        self.passed = passed
        self.look_s = look_s

    def __call__(self) -> float:
        return self.wall()


class Steps:
    """Detects steps of the wall clock between two looks at it."""

    def __init__(self, clock: Now) -> None:
        self._clock = clock if isinstance(clock, Clock) else None  # None: a virtual one
        self._seen = self.ahead()

    def found(self) -> float:
        """Return by how many seconds the wall clock was set since the last look, or 0.0."""
        if self._clock is None:
            return 0.0
        ahead = self.ahead()
        by = ahead - self._seen
        if abs(by) < STEP_S_MIN:
            return 0.0
        self._seen = ahead
        return by

    def ahead(self) -> float:
        """Return the wall-clock time minus the monotonic time, in seconds; 0.0 if virtual."""
        clock = self._clock
        return 0.0 if clock is None else clock.wall() - clock.passed()


def passing(clock: Now) -> Now:
    """Return the clock that measures durations for `clock`."""
    return clock.passed if isinstance(clock, Clock) else clock


def wait_s_max(clock: Now) -> float:
    """Return how long to wait by Trio's clock, which may stand still, before a look at `clock`."""
    return clock.look_s if isinstance(clock, Clock) else math.inf


class Durations(msgspec.Struct, frozen=True):
    """Waits by the monotonic clock `passed`, and looks at it at least every `look_s` seconds.

    The waits include the sleep of the machine and ignore steps of the wall clock. Trio's clock
    stands still while the machine sleeps: with that clock alone, a limit of one minute would end up
    to a minute after the user has opened the laptop again.
    """

    passed: Now
    look_s: float

    @classmethod
    def of(cls, clock: Now) -> Durations:
        return cls(passing(clock), wait_s_max(clock))

    async def sleep(self, seconds: float) -> None:
        await self.wait(trio.Event(), seconds)

    async def wait(self, event: trio.Event, seconds: float) -> None:
        """Wait until `event` is set or `seconds` have passed."""
        await trio.lowlevel.checkpoint()
        end = self.passed() + seconds
        while not event.is_set() and (left := end - self.passed()) > 0:
            with trio.move_on_after(min(left, self.look_s)):
                await event.wait()
