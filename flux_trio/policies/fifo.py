"""FIFO: strictly in queue order; the first job that does not fit blocks all others."""

from __future__ import annotations

from flux_trio.policies.policy import Decisions
from flux_trio.policies.state import Grant, Job, State


class Fifo:
    """Examines only the head of the queue; examines a blocked head again after a free.

    The blocked head is derived: a head that is examined again without a free does not fit again.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._blocked: Job | None = None  # did not fit, and nothing was freed since then

    def __getstate__(self) -> State:
        return self._state

    def __setstate__(self, state: State) -> None:
        self._state = state
        self._blocked = None

    def arrived(self, _job: Job, /) -> None:
        """Do nothing: a job of higher rank is a new head."""

    def left(self, _job: Job, /) -> None:
        """Do nothing: the next job is a new head."""

    def freed(self, _grant: Grant, /) -> None:
        self._blocked = None

    def reshaped(self) -> None:
        self._blocked = None

    def decide(self, now: float) -> Decisions:
        """Start jobs from the head on until a job does not fit."""
        decisions = Decisions()
        self._blocked = start_from_head(self._state, now, decisions, self._blocked)
        if self._blocked is not None:
            decisions.waiting[self._blocked] = None
        return decisions


def start_from_head(
    state: State, now: float, decisions: Decisions, blocked: Job | None
) -> Job | None:
    """Start jobs in order until a job does not fit or is `blocked`; return that job, or None."""
    while (job := state.queue.head) is not None and job is not blocked:
        allocation = state.pool.find(job.shape)
        if allocation is None:
            return job
        decisions.started.append((job, state.start(job, allocation, now)))
    return job
