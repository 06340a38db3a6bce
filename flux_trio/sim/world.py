"""Repeatable runs: one async function under a virtual clock, from one seed.

The clock stands still while a task can run, and jumps to the next deadline when no task can. Trio
runs the tasks of one step in a random order; the same seed gives the same order, so code that does
not use the real world runs the same way each time. Left out: threads, sockets and processes, whose
order no seed decides. `trio.testing.wait_all_tasks_blocked` does not work here, because it also
waits for the last deadline; sleep for a short time instead.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, TypeVar

import trio

T = TypeVar("T")

# Private names of Trio, used only here: its random generator, and the switch that makes it sort the
# tasks before it shuffles them. Trio's own tests use them to make runs repeatable, and there is no
# public way (python-trio issue 32).
_TRIO_RUN: Final = trio._core._run
_SORT_TASKS: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"


class _WorldClock(trio.abc.Clock):
    """Jumps when Trio asks how long to wait, that is, when no task can run.

    Trio's MockClock needs one more turn of the loop for each jump, and reads the real time.
    """

    def __init__(self, start: float) -> None:
        self._now = start

    def start_clock(self) -> None:
        """Do nothing: the clock stands still by itself."""

    def current_time(self) -> float:
        """Return seconds; the first value is the `start` of `run_world`."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to `deadline` and return 0; without a deadline return inf (wait for a signal)."""
        if deadline == inf:
            return inf
        self._now = max(self._now, deadline)
        return 0.0


def run_world(main: Callable[[], Awaitable[T]], seed: int, start: float = 0.0) -> T:
    """Run `main` under a virtual clock that begins at `start`, and return its result."""
    with seeded_tasks(seed):
        return trio.run(functools.partial(_await, main), clock=_WorldClock(start))


async def _await(main: Callable[[], Awaitable[T]]) -> T:
    return await main()


@contextmanager
def seeded_tasks(seed: int) -> Iterator[None]:
    """Seed Trio's scheduler in this block, and restore its generator afterwards."""
    drawn = _TRIO_RUN._r.getstate()
    sorted_before = vars(_TRIO_RUN)[_SORT_TASKS]
    vars(_TRIO_RUN)[_SORT_TASKS] = True
    _TRIO_RUN._r.seed(seed)
    try:
        yield
    finally:
        _TRIO_RUN._r.setstate(drawn)
        vars(_TRIO_RUN)[_SORT_TASKS] = sorted_before
