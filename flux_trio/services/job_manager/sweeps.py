"""Work on many jobs, a slice a turn, so that requests that come meanwhile are answered between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from flux_trio.services.job_manager.ledger import ActiveJob, Ledger
from flux_trio.services.turns import SetTimer, TimerFired

SLICE_JOBS: Final = 500
"""Jobs a turn: below 50 ms with hooks of 50 us each."""

_KEY: Final = "sweep"
NEXT_SLICE: Final = TimerFired(_KEY)


@dataclass(slots=True)
class _Sweep:
    choose: Callable[[], Iterable[ActiveJob]]
    each: Callable[[ActiveJob], None]
    done: Callable[[], None]
    jobs: Iterator[ActiveJob] | None = None  # that are left, once it has begun


class Sweeps:
    """One after another."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: deque[_Sweep] = deque()
        self._left = 0  # jobs that this turn may still look at

    def begin(
        self,
        choose: Callable[[], Iterable[ActiveJob]],
        each: Callable[[ActiveJob], None],
        done: Callable[[], None],
    ) -> None:
        """Call `choose` when its turn comes, `each` with those active still, `done` at the end."""
        self._open.append(_Sweep(choose, each, done))

    @property
    def is_open(self) -> bool:
        """Whether there is more to do."""
        return bool(self._open)

    def start_turn(self) -> None:
        """A slice may be done."""
        self._left = SLICE_JOBS

    def step(self) -> bool:
        """Do what this turn allows; whether anything was done."""
        if not self._open or not self._left:
            return False
        self._do(self._open[0])
        return True

    def end_turn(self) -> list[Any]:
        """The timer for the rest."""
        return [SetTimer(_KEY, self._ledger.now)] if self._open else []

    def _do(self, sweep: _Sweep) -> None:
        if sweep.jobs is None:
            sweep.jobs = iter(sweep.choose())
        while self._left:
            self._left -= 1
            job = next(sweep.jobs, None)
            if job is None:
                self._open.popleft()
                sweep.done()
                return
            if job.id in self._ledger.jobs:
                sweep.each(job)
