"""FIFO: strictly in order of the queue; the first job that does not fit holds up all others."""

from __future__ import annotations

from flux_trio.policies.policy import Decisions
from flux_trio.policies.state import Grant, Job, State


class Fifo:
    """Looks at the head of the queue only, and at the same head once until something is freed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._blocked: Job | None = None  # did not fit, and nothing was freed since

    def arrived(self, _job: Job, /) -> None:
        """Nothing to do: a better job is a new head."""

    def left(self, _job: Job, /) -> None:
        """Nothing to do: the next job is a new head."""

    def freed(self, _grant: Grant, /) -> None:
        """Look at the head again."""
        self._blocked = None

    def reshaped(self) -> None:
        """Look at the head again."""
        self._blocked = None

    def decide(self, now: float) -> Decisions:
        """Start jobs from the head on until one does not fit."""
        decisions = Decisions()
        self._blocked = start_from_head(self._state, now, decisions, self._blocked)
        if self._blocked is not None:
            decisions.waiting[self._blocked] = None
        return decisions


def start_from_head(
    state: State, now: float, decisions: Decisions, blocked: Job | None
) -> Job | None:
    """Start jobs in order until one does not fit, or is `blocked`; return that one."""
    while (job := state.queue.head) is not None and job is not blocked:
        allocation = state.pool.find(job.shape)
        if allocation is None:
            return job
        decisions.started.append((job, state.start(job, allocation, now)))
    return job
