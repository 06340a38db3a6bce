"""Counts of active jobs: by queue and state, and by the reason for which plugins hold them.

Jobs are counted as they change, so that neither a request nor a turn looks at every job.
"""

from __future__ import annotations

from collections import Counter

from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId
from flux_trio.protocols import JobState

Name = str | None  # of a queue; None: the anonymous queue


class Tally(Part):
    """The counts; the ledger reports each change of a job."""

    states: dict[Name, Counter[JobState]]
    held_jobs: dict[JobId, tuple[Name, str]]  # the queue and reason under which a job is counted
    held_for: dict[Name, Counter[str]]

    def __init__(self) -> None:
        self.states = {}
        self.held_jobs = {}
        self.held_for = {}

    def jobs(self, states: int, queue: Name = None) -> int:
        """Return the number of jobs in `states`, a mask; in all queues unless one is named."""
        counted = self.states.values() if queue is None else [self._of(queue)]
        return sum(n for each in counted for state, n in each.items() if state & states)

    def by_queue(self) -> dict[str, dict[str, int]]:
        """Return the number of jobs in each state, by queue; "" is the anonymous queue."""
        return {
            name or "": {state.name.lower(): n for state, n in states.items() if state.name}
            for name, states in self.states.items()
        }

    def reasons(self, queue: Name) -> dict[str, int]:
        """Return the reasons that jobs of `queue` are held for, with the number of jobs."""
        return dict(self.held_for.get(queue, ()))

    def came(self, queue: Name, state: JobState) -> None:
        """Count a job that is active now."""
        self._of(queue)[state] += 1

    def went(self, jobid: int, queue: Name, state: JobState) -> None:
        """Stop counting a job that is inactive now."""
        self.states[queue][state] -= 1
        self.released(jobid)

    def moved(self, queue: Name, before: JobState, after: JobState) -> None:
        states = self.states[queue]
        states[before] -= 1
        states[after] += 1

    def requeued(self, jobid: int, state: JobState, before: Name, after: Name) -> None:
        """Move a job from one queue to another."""
        self.states[before][state] -= 1
        self._of(after)[state] += 1
        if jobid in self.held_jobs:
            self.held(jobid, after, self.held_jobs[jobid][1])

    def held(self, jobid: int, queue: Name, reason: str) -> None:
        """Count a job that a plugin holds, or holds for another reason than before."""
        self.released(jobid)
        self.held_jobs[jobid] = (queue, reason)
        self.held_for.setdefault(queue, Counter())[reason] += 1

    def released(self, jobid: int) -> None:
        """Stop counting a job as held."""
        counted = self.held_jobs.pop(jobid, None)
        if counted is None:
            return
        queue, reason = counted
        self.held_for[queue][reason] -= 1
        if not self.held_for[queue][reason]:
            del self.held_for[queue][reason]

    def _of(self, queue: Name) -> Counter[JobState]:
        states = self.states.get(queue)
        if states is None:
            states = self.states[queue] = Counter()
        return states
