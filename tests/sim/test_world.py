"""A world repeats from its seed, and leaves Trio as it was."""

from __future__ import annotations

from math import inf

import pytest
import trio

from flux_trio.sim import run_world


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
