"""The observer of bookings names what is held twice, and jobs whose lives are wrong."""

from __future__ import annotations

from typing import Any

from tests.support.bookings import booked_twice, held_cores, wrong_lives
from tests.support.scheduling import machine

R = machine(2, 1).to_json()
LAST = machine(1, 1, first=1).to_json()


def life(*events: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "timestamp": time} for name, time in events]


FIRST = life(("alloc", 1.0), ("start", 1.1), ("finish", 2.0), ("free", 2.1), ("clean", 2.2))


def twice(second: list[dict[str, Any]], kept: dict[tuple[int, int], float]) -> list[str]:
    return booked_twice([held_cores(1, FIRST, R, kept), held_cores(2, second, LAST, kept)])


def test_what_is_free_may_be_held_again() -> None:
    assert twice(life(("alloc", 2.1), ("free", 3.0)), {}) == []


def test_core_of_two_jobs_is_named() -> None:
    found = twice(life(("alloc", 2.05)), {})
    assert found == ["rank1/core0: jobs 1 and 2, at 2.050000 until 2.100000"]


def test_node_in_housekeeping_is_held_until_its_end() -> None:
    assert twice(life(("alloc", 2.5)), {(1, 0): 9.0}) == []
    found = twice(life(("alloc", 2.5)), {(1, 1): 2.6})
    assert found == ["rank1/core0: jobs 1 and 2, at 2.500000 until 2.600000"]


def test_job_that_is_not_free_yet_holds_what_it_has() -> None:
    held = [held_cores(1, life(("alloc", 1.0)), R, {}), held_cores(2, FIRST, LAST, {})]
    assert len(booked_twice(held)) == 1


def test_job_without_resources_holds_nothing() -> None:
    assert held_cores(1, life(("submit", 1.0), ("clean", 2.0)), None, {}) == {}


def test_what_happens_once_and_the_end_are_demanded() -> None:
    assert wrong_lives({1: FIRST}) == []
    again = [*FIRST[:2], *FIRST[1:]]
    assert wrong_lives({1: again, 2: FIRST[:1]}) == [
        "job 1: 2 times start",
        "job 2 is not over: alloc",
    ]
