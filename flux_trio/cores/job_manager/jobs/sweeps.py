"""Sweeps: work on many jobs, a slice in each turn, so that requests do not wait for all of it.

An answer waits for the commits before it; so a sweep waits if too many commits are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.waiting import Sweep
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId

SLICE_JOBS: Final = 300
"""Jobs in a turn: below 25 ms with hooks of 50 us each, since a request may have to wait for two
slices. Smaller slices would need too many commits."""

QUICK_PER_SLOW: Final = 4
"""So many quick jobs take the time of one slow job. A quick job calls no handler (15 us)."""

COMMITS_MAX: Final = 3
"""With so many commits under way, no slice is begun; the kvs takes several at once."""


class Sweeper(Protocol):
    """Does the work of sweeps."""

    def choose(self, sweep: Sweep) -> Iterable[ActiveJob]:
        """Return the jobs of `sweep`, which begins now."""

    def is_quick(self, sweep: Sweep, job: ActiveJob) -> bool:
        """Return whether `sweep` calls no handler of a plugin for this job alone."""

    def do_some(self, sweep: Sweep, jobs: list[ActiveJob]) -> None:
        """Do the work of `sweep` for these jobs, in order."""

    def swept(self, sweep: Sweep) -> None:
        """Continue after the last job of `sweep`."""


class Sweeps(Part):
    """The sweeps, one after another."""

    open: deque[Sweep]
    jobids: deque[JobId] | None  # jobs left of the first sweep; None until it has begun
    left: int  # quick jobs that this turn may still do; a slow one counts QUICK_PER_SLOW

    def __init__(self, ledger: Ledger, sweeper: Sweeper) -> None:
        self._ledger = ledger
        self._sweeper = sweeper
        self.open = deque()
        self.jobids = None
        self.left = 0

    def begin(self, sweep: Sweep) -> None:
        """Queue `sweep`. Its jobs are chosen when it begins; inactive jobs are left out later."""
        self.open.append(sweep)

    @property
    def is_open(self) -> bool:
        """Return whether a sweep is under way."""
        return bool(self.open)

    def start_turn(self) -> None:
        """Allow one slice in this turn."""
        self.left = page_size(SLICE_JOBS) * QUICK_PER_SLOW

    def step(self) -> bool:
        """Do what this turn allows; return whether anything was done."""
        if not self.open or self.left <= 0 or self._is_ahead:
            return False
        self._do(self.open[0])
        return True

    def end_turn(self) -> None:
        """Set the timer for the next slice; the answer to a commit begins a turn, too."""
        if self.open and not self._is_ahead:
            self._ledger.outbox.set_timer("sweep", self._ledger.now)

    @property
    def _is_ahead(self) -> bool:
        return self._ledger.commits >= COMMITS_MAX

    def _do(self, sweep: Sweep) -> None:
        """Do a slice, or end the sweep when plugins have answered about its last jobs."""
        if self.jobids is None:
            self.jobids = deque(job.id for job in self._sweeper.choose(sweep))
        if not self.jobids:
            self.jobids = None
            self.open.popleft()
            self._sweeper.swept(sweep)
            return
        self._sweeper.do_some(sweep, self._slice_of(sweep, self.jobids))

    def _slice_of(self, sweep: Sweep, jobids: deque[JobId]) -> list[ActiveJob]:
        """Take the active jobs that this turn may still do from `jobids`."""
        active, is_quick = self._ledger.jobs, self._sweeper.is_quick
        jobs = []
        while jobids and self.left > 0:
            job = active.get(jobids.popleft())
            if job is not None:
                jobs.append(job)
                self.left -= 1 if is_quick(sweep, job) else QUICK_PER_SLOW
        return jobs
