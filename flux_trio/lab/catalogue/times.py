"""Faults of time."""

from __future__ import annotations

from flux_trio.lab.catalogue.aim import any_moment, one_of
from flux_trio.lab.catalogue.base import Strike, fault
from flux_trio.lab.catalogue.places import ClockChange, Moment, Seconds, Times
from flux_trio.lab.world.cores_world import CoresWorld


@fault
class ClockJump(Strike, frozen=True):
    """The wall clock is set `by` seconds ahead, or back if `by` is negative."""

    when: Moment
    by: ClockChange

    draws = (any_moment, one_of(-3600.0, -1.0, 1.0, 3600.0))

    @property
    def clock_moves(self) -> tuple[str, float]:
        return "by", abs(self.by)

    def strike(self, world: CoresWorld) -> None:
        world.set_clock(self.by)


@fault
class ClockDrift(Strike, frozen=True):
    """The wall clock is corrected `times` times, each second: `by` seconds ahead, or back."""

    when: Moment
    by: ClockChange
    times: Times = 5

    draws = (any_moment, one_of(-0.5, 0.5))

    @property
    def clock_moves(self) -> tuple[str, float]:
        return "by", abs(self.by) * self.times

    def strike(self, world: CoresWorld) -> None:
        for second in range(self.times):
            world.later(float(second), lambda: world.set_clock(self.by))


@fault
class Sleep(Strike, frozen=True):
    """The machine sleeps for `seconds`: all time passes at once, and every timer is late."""

    when: Moment
    seconds: Seconds

    draws = (any_moment, one_of(3.0, 3600.0))

    @property
    def clock_moves(self) -> tuple[str, float]:
        return "seconds", self.seconds

    def strike(self, world: CoresWorld) -> None:
        world.sleep(self.seconds)
