"""Steps of the wall clock are told from time that passes; waits include a sleep of the machine."""

from __future__ import annotations

import math

import trio
import trio.testing
from trio.testing import MockClock

from flux_trio.clock import LOOK_S, Clock, Durations, Steps, passing, wait_s_max
from tests.support.setting import SettableClock


class Hands:
    def __init__(self) -> None:
        self.wall, self.passed = 1000.0, 0.0
        self.clock = Clock(lambda: self.wall, lambda: self.passed)

    def go(self, passed: float, *, step: float = 0.0) -> None:
        self.passed += passed
        self.wall += passed + step


def test_time_that_passes_is_no_step_and_a_step_is_found_once() -> None:
    hands = Hands()
    steps = Steps(hands.clock)
    hands.go(3600)
    assert steps.found() == 0
    hands.go(1, step=-3600)
    assert steps.found() == -3600
    assert steps.found() == 0


def test_small_changes_add_up_to_a_step() -> None:
    hands = Hands()
    steps = Steps(hands.clock)
    hands.go(1, step=0.3)
    assert steps.found() == 0
    hands.go(1, step=0.3)
    assert math.isclose(steps.found(), 0.6)


def test_virtual_clock_never_steps_and_is_never_looked_at_again() -> None:
    times = iter([1.0, 5000.0, 2.0])
    virtual = lambda: next(times)  # noqa: E731
    steps = Steps(virtual)
    assert (steps.found(), steps.ahead(), wait_s_max(virtual)) == (0, 0, math.inf)
    assert passing(virtual) is virtual
    assert wait_s_max(Hands().clock) == LOOK_S


async def test_wait_ends_by_the_event_or_by_the_time(autojump_clock: MockClock) -> None:
    durations, event = Durations.of(trio.current_time), trio.Event()
    await durations.wait(event, 5)
    assert trio.current_time() == 5
    event.set()
    await durations.wait(event, math.inf)
    assert trio.current_time() == 5


async def test_sleep_of_the_machine_counts_and_its_wall_clock_does_not(
    autojump_clock: MockClock,
) -> None:
    clock = SettableClock()
    durations = Durations.of(clock)
    clock.step(1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(durations.sleep, 100)
        await trio.testing.wait_all_tasks_blocked()
        clock.sleep(95)
    assert 5 <= trio.current_time() <= 5 + LOOK_S
