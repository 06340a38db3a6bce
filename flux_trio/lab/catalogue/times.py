"""Faults of time."""

from __future__ import annotations

from flux_trio.lab.catalogue.base import ClockChange, Moment, Seconds, Strike, Times
from flux_trio.lab.world.cores_world import CoresWorld


class ClockJump(Strike, frozen=True):
    """The wall clock is set `by` seconds ahead, or back if `by` is negative."""

    when: Moment
    by: ClockChange

    def strike(self, world: CoresWorld) -> None:
        world.set_clock(self.by)


class ClockDrift(Strike, frozen=True):
    """The wall clock is corrected `times` times, each second: `by` seconds ahead, or back."""

    when: Moment
    by: ClockChange
    times: Times = 5

    def strike(self, world: CoresWorld) -> None:
        for second in range(self.times):
            world.later(float(second), lambda: world.set_clock(self.by))


class Sleep(Strike, frozen=True):
    """The machine sleeps for `seconds`: all time passes at once, and every timer is late."""

    when: Moment
    seconds: Seconds

    def strike(self, world: CoresWorld) -> None:
        world.sleep(self.seconds)
