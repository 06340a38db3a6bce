"""Work on many jobs, a slice a turn, so that requests that come meanwhile are answered between.

An answer waits for the commits before it; so a sweep waits, too, when it is ahead of the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from flux_trio.cores.job_manager.hooks.waiting import Sweep
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId

SLICE_JOBS: Final = 300
"""Jobs a turn: below 25 ms with hooks of 50 us each, since a request may have to wait for two
slices. With smaller ones the commits cost more than they bring."""

COMMITS_MAX: Final = 3
"""Commits under way with which no other slice is begun; the kvs takes up several at once."""


class Sweeper(Protocol):
    """Does what sweeps are for."""

    def choose(self, sweep: Sweep) -> Iterable[ActiveJob]:
        """The jobs that `sweep` is about, now that its turn has come."""

    def do_some(self, sweep: Sweep, jobs: list[ActiveJob]) -> None:
        """Do with these jobs, in order, what `sweep` is for."""

    def swept(self, sweep: Sweep) -> None:
        """No job of `sweep` is left."""


class Sweeps(Part):
    """One after another; `sweeper` is set once all parts are made."""

    open: deque[Sweep]
    jobids: deque[JobId] | None  # those left of the first sweep; None until it has begun
    left: int  # jobs that this turn may still look at

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.sweeper: Sweeper
        self.open = deque()
        self.jobids = None
        self.left = 0

    def begin(self, sweep: Sweep) -> None:
        """Choose the jobs when the turn of `sweep` comes, and do each that is active still."""
        self.open.append(sweep)

    @property
    def is_open(self) -> bool:
        """Whether there is more to do."""
        return bool(self.open)

    def start_turn(self) -> None:
        """A slice may be done."""
        self.left = SLICE_JOBS

    def step(self) -> bool:
        """Do what this turn allows; whether anything was done."""
        if not self.open or not self.left or self._is_ahead:
            return False
        self._do(self.open[0])
        return True

    def end_turn(self) -> None:
        """Set the timer for the rest; a commit that is answered makes a turn as well."""
        if self.open and not self._is_ahead:
            self._ledger.outbox.set_timer("sweep", self._ledger.now)

    @property
    def _is_ahead(self) -> bool:
        return self._ledger.commits >= COMMITS_MAX

    def _do(self, sweep: Sweep) -> None:
        """A slice, or the end: it comes once plugins have answered about the last jobs."""
        if self.jobids is None:
            self.jobids = deque(job.id for job in self.sweeper.choose(sweep))
        if not self.jobids:
            self.jobids = None
            self.open.popleft()
            self.sweeper.swept(sweep)
            return
        jobs = []
        while self.jobids and self.left:
            self.left -= 1
            job = self._ledger.jobs.get(self.jobids.popleft())
            if job is not None:
                jobs.append(job)
        self.sweeper.do_some(sweep, jobs)
