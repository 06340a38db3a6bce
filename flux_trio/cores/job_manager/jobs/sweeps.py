"""Work on many jobs, a slice a turn, so that requests that come meanwhile are answered between.

An answer waits for the commits before it; so a sweep waits, too, when it is ahead of the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.cores.turns import SetTimer

SLICE_JOBS: Final = 300
"""Jobs a turn: below 25 ms with hooks of 50 us each, since a request may have to wait for two
slices. With smaller ones the commits cost more than they bring."""

COMMITS_MAX: Final = 3
"""Commits under way with which no other slice is begun; the kvs takes up several at once."""

_KEY: Final = "sweep"


class _Sweep(msgspec.Struct):
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
        if not self._open or not self._left or self._is_ahead:
            return False
        self._do(self._open[0])
        return True

    def end_turn(self) -> list[Any]:
        """The timer for the rest; a commit that is answered makes a turn as well."""
        is_due = self._open and not self._is_ahead
        return [SetTimer(_KEY, self._ledger.now)] if is_due else []

    @property
    def _is_ahead(self) -> bool:
        return self._ledger.commits >= COMMITS_MAX

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
