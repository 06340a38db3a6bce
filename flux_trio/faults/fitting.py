"""Checks of a plan that look at several of its values, each of which is right by itself."""

from __future__ import annotations

from flux_trio.faults.catalogue import ClockDrift, ClockJump, Fault, Sleep
from flux_trio.faults.catalogue.base import LONGEST_S
from flux_trio.formats import FormatError


def check_clock(faults: tuple[Fault, ...]) -> None:
    """Raise FormatError if the faults together may move the clock by more than LONGEST_S."""
    moved = 0.0
    for place, fault in enumerate(faults):
        match fault:
            case ClockJump(by=by):
                name, seconds = "by", abs(by)
            case ClockDrift(by=by, times=times):
                name, seconds = "by", abs(by) * times
            case Sleep(seconds=seconds):
                name = "seconds"
            case _:
                continue
        moved += seconds
        if moved > LONGEST_S:
            expected = f"at most {LONGEST_S:.0f} seconds by which all faults of time move the clock"
            raise FormatError(expected, moved, f"faults[{place}].{name}")
