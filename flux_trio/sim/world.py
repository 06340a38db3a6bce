"""Repeatable runs: one async function under a virtual clock, from one seed.

The clock stands still while a task can run, and jumps to the next deadline when no task can. Trio
runs the tasks of one step in a random order; the same seed gives the same order, so code that does
not use the real world runs the same way each time. Left out: threads, sockets and processes, whose
order no seed decides. `trio.testing.wait_all_tasks_blocked` does not work here, because it also
waits for the last deadline; sleep for a short time instead.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Any, Final, TypeVar

import trio

from flux_trio.process.groups import holds

T = TypeVar("T")

TICKS_MAX: Final = 100_000  # of tasks that wake each other, before a `SteppedRun` gives up


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


class SteppedRun:
    """A Trio run that stands still until it is told to go on, in time that its caller keeps.

    It is Trio's guest mode, so it needs no thread, and the caller may use what does not wait:
    cancel a scope, start a task. Other runs of this thread have to wait until it `is_over`.
    """

    def __init__(self, main: Callable[[], Awaitable[object]], seed: int, now: Callable[[], float]):
        self.is_over = False
        self.error: BaseException | None = None  # of `main`, when the run is over
        self._has_returned = False  # `main`; Trio has still to tidy up
        self._ticks: deque[Callable[[], object]] = deque()
        self._clock = _SteppedClock(now)
        self._ending = ExitStack()
        self._ending.enter_context(seeded_tasks(seed))
        trio.lowlevel.start_guest_run(
            self._until_returned,
            main,
            run_sync_soon_threadsafe=self._ticks.append,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,  # no signal needs to wake a run that never waits
            clock=self._clock,
        )

    @property
    def next_deadline(self) -> float:
        """When a task wants to run again by itself; infinity if none does."""
        return self._clock.deadline

    def go_on(self, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Run until no task can run at this time; return whether the run is over.

        Returns before that if it `is_enough`, which is asked after each round of tasks.
        Raises RuntimeError if tasks wake each other for ever, and KeyboardInterrupt if that has
        ended the run.
        """
        self._clock.is_idle = False
        for _ in range(TICKS_MAX):
            if self.is_over or (self._clock.is_idle and not self._has_returned):
                self._check_interrupt()
                return self.is_over
            if is_enough():
                return False
            self._ticks.popleft()()
        raise RuntimeError(f"tasks still wake each other after {TICKS_MAX} rounds")

    def finish(self) -> None:
        """Run to the end, in which time passes for the tasks of this run alone.

        The caller has cancelled what the run does. Raises as `go_on` does.
        """
        for _ in range(TICKS_MAX):
            if self.is_over:
                self._check_interrupt()
                return
            if self._clock.is_idle and self._clock.deadline < inf:
                self._clock.skip()
            self._clock.is_idle = False
            self._ticks.popleft()()
        raise RuntimeError(f"a cancelled run goes on after {TICKS_MAX} rounds")

    async def _until_returned(self, main: Callable[[], Awaitable[object]]) -> None:
        try:
            await main()
        finally:
            self._has_returned = True

    def _check_interrupt(self) -> None:
        """Raise KeyboardInterrupt if it has ended the run: it is meant for the caller."""
        if self.error is not None and holds(self.error, KeyboardInterrupt):
            raise KeyboardInterrupt from self.error

    def _done(self, outcome: Any) -> None:
        self.is_over = True
        self.error = getattr(outcome, "error", None)
        self._clock.deadline = inf
        self._ending.close()


class _SteppedClock(trio.abc.Clock):
    """Never lets Trio sleep; notes that no task can run, and the next deadline."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._skipped = -inf  # time that only the tasks of an ending run have seen
        self.is_idle = False
        self.deadline = inf

    def start_clock(self) -> None:
        """Do nothing: the caller keeps the time."""

    def current_time(self) -> float:
        """Return the caller's time, in seconds."""
        return max(self._now(), self._skipped)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return 0.0. Trio asks when no task can run."""
        self.deadline = deadline
        self.is_idle = deadline > self.current_time()
        return 0.0

    def skip(self) -> None:
        """Go to the next deadline."""
        self._skipped = self.deadline


async def _await(main: Callable[[], Awaitable[T]]) -> T:
    return await main()


@contextmanager
def seeded_tasks(seed: int) -> Iterator[None]:
    """Seed Trio's scheduler in this block, and restore its generator afterwards.

    Private names of Trio, used only here: its random generator, and the switch that makes it sort
    the tasks before it shuffles them. Trio's own tests use them to make runs repeatable, and there
    is no public way (python-trio issue 32).
    """
    scheduler = trio._core._run
    drawn = scheduler._r.getstate()
    sorted_before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    scheduler._r.seed(seed)
    try:
        yield
    finally:
        scheduler._r.setstate(drawn)
        vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = sorted_before
