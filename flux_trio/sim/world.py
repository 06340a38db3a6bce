"""A world that repeats: one async main under a virtual clock, from one seed.

The clock stands still while anything can run and jumps to the next deadline when nothing can. Trio
runs the tasks of one step in a random order; from the same seed it is the same order, so that
whatever does not ask the real world runs the same way twice. Left out: threads, sockets and
processes, which no seed can order; and `trio.testing.wait_all_tasks_blocked`, which here waits for
the last deadline as well: to let all happen that is about to, sleep for a moment.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, TypeVar

import trio

T = TypeVar("T")

# The one reach into Trio's private names: its random generator, and the switch that makes it sort
# the tasks before they are shuffled. Trio's own tests make runs repeat in this way and there is no
# public one (python-trio issue 32).
_TRIO_RUN: Final = trio._core._run
_SORT_TASKS: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"


class _WorldClock(trio.abc.Clock):
    """Jumps as soon as Trio asks how long to wait, which it does when no task can run.

    Trio's own MockClock goes once more around the loop for each jump, and reads the real time.
    """

    def __init__(self, start: float) -> None:
        self._now = start

    def start_clock(self) -> None:
        """It stands still by itself."""

    def current_time(self) -> float:
        """Seconds, counted from what the world's start was called."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """None to wait: it is `deadline` now. Without one only a signal can go on."""
        if deadline == inf:
            return inf
        self._now = max(self._now, deadline)
        return 0.0


def run_world(main: Callable[[], Awaitable[T]], seed: int, start: float = 0.0) -> T:
    """Run `main` from the time `start` of a virtual clock and return what it returns."""
    with _seeded(seed):
        return trio.run(functools.partial(_await, main), clock=_WorldClock(start))


async def _await(main: Callable[[], Awaitable[T]]) -> T:
    return await main()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Trio's scheduler draws from `seed` inside, and from what it drew from before afterwards."""
    drawn = _TRIO_RUN._r.getstate()
    sorted_before = vars(_TRIO_RUN)[_SORT_TASKS]
    vars(_TRIO_RUN)[_SORT_TASKS] = True
    _TRIO_RUN._r.seed(seed)
    try:
        yield
    finally:
        _TRIO_RUN._r.setstate(drawn)
        vars(_TRIO_RUN)[_SORT_TASKS] = sorted_before
