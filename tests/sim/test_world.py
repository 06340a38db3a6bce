"""A world repeats from its seed, and leaves Trio as it was."""

from __future__ import annotations

from math import inf

import pytest
import trio

from flux_trio.sim import SteppedRun, run_world


async def order_of_tasks() -> tuple[str, ...]:
    order: list[str] = []

    async def task(name: str) -> None:
        for _ in range(20):
            order.append(name)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for name in "abcde":
            nursery.start_soon(task, name)
    return tuple(order)


def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    orders = [run_world(order_of_tasks, seed) for seed in (1, 1, 2, 3, 1)]
    assert orders[0] == orders[1] == orders[4]
    assert len({*orders}) == 3


def test_what_trio_draws_outside_does_not_depend_on_the_seed() -> None:
    before = trio._core._run._r.getstate()
    allowed = trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING
    run_world(order_of_tasks, 1)
    assert trio._core._run._r.getstate() == before
    assert allowed == trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING


def test_a_year_passes_at_once() -> None:
    async def sleep_a_year() -> float:
        began = trio.current_time()
        await trio.sleep(365 * 86400)
        return trio.current_time() - began

    assert run_world(sleep_a_year, 0) == 365 * 86400


def test_an_error_of_main_comes_out_as_it_is() -> None:
    async def fail() -> None:
        with trio.fail_after(1):
            await trio.sleep(inf)

    with pytest.raises(trio.TooSlowError):
        run_world(fail, 0)


def test_stepped_run_stands_still_until_its_caller_lets_it_go_on() -> None:
    now = [10.0]
    seen: list[float] = []

    async def main() -> None:
        for _ in range(3):
            seen.append(trio.current_time())
            await trio.sleep(5.0)

    run = SteppedRun(main, 1, lambda: now[0])
    assert not run.go_on()
    assert (seen, run.next_deadline) == ([10.0], 15.0)
    assert not run.go_on()
    assert seen == [10.0]
    now[0] = 15.0
    assert not run.go_on()
    assert (seen, run.next_deadline) == ([10.0, 15.0], 20.0)
    run.finish()
    assert run.is_over
    assert run.error is None
    assert seen == [10.0, 15.0, 20.0]
    run_world(order_of_tasks, 1)


def test_stepped_run_keeps_the_error_of_main_and_the_order_of_the_seed() -> None:
    async def fail() -> None:
        raise ValueError("as planned")

    run = SteppedRun(fail, 1, lambda: 0.0)
    assert run.go_on()
    assert isinstance(run.error, ValueError)
    orders: list[tuple[str, ...]] = []

    async def note() -> None:
        orders.append(await order_of_tasks())

    for seed in (1, 1, 2):
        SteppedRun(note, seed, lambda: 0.0).finish()
    assert orders[0] == orders[1] != orders[2]


def test_tasks_that_wake_each_other_for_ever_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flux_trio.sim.world.TICKS_MAX", 50)
    scope = trio.CancelScope()

    async def spin() -> None:
        with scope:
            while True:
                await trio.lowlevel.checkpoint()

    run = SteppedRun(spin, 1, lambda: 0.0)
    with pytest.raises(RuntimeError, match="wake each other after 50 rounds"):
        run.go_on()
    scope.cancel()
    run.finish()


@pytest.mark.parametrize("ends", ["go_on", "finish"])
def test_interrupt_of_a_stepped_run_reaches_its_caller(ends: str) -> None:
    async def be_interrupted() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyboardInterrupt

    run = SteppedRun(be_interrupted, 1, lambda: 0.0)
    with pytest.raises(KeyboardInterrupt):
        getattr(run, ends)()
    assert run.is_over
