"""Waiting for so much time to pass: the sleep of the machine counts."""

from __future__ import annotations

import math

import trio
import trio.testing
from trio.testing import MockClock

from flux_trio.clock import LOOK_S
from flux_trio.durations import Durations
from tests.support.setting import SettableClock


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
