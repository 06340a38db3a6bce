"""How many active jobs there are: by queue and state, and by what plugins hold them for.

Counted as jobs change, so that neither a request nor a turn has to look at every job.
"""

from __future__ import annotations

from collections import Counter

from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId
from flux_trio.protocols import JobState

Name = str | None  # of a queue; None: the anonymous one


class Tally(Part):
    """The counts; the part that changes a job tells of it."""

    states: dict[Name, Counter[JobState]]
    held_jobs: dict[JobId, tuple[Name, str]]  # id → queue and reason it is counted under
    held_for: dict[Name, Counter[str]]

    def __init__(self) -> None:
        self.states = {}
        self.held_jobs = {}
        self.held_for = {}

    def jobs(self, states: int, queue: Name = None) -> int:
        """How many are in any of `states`, a mask; in every queue unless one is named."""
        counted = self.states.values() if queue is None else [self._of(queue)]
        return sum(n for each in counted for state, n in each.items() if state & states)

    def reasons(self, queue: Name) -> dict[str, int]:
        """Why jobs of `queue` are held, and how many for each reason."""
        return dict(self.held_for.get(queue, ()))

    def came(self, queue: Name, state: JobState) -> None:
        """One more is active."""
        self._of(queue)[state] += 1

    def went(self, jobid: int, queue: Name, state: JobState) -> None:
        """It is active no more."""
        self.states[queue][state] -= 1
        self.released(jobid)

    def moved(self, queue: Name, before: JobState, after: JobState) -> None:
        states = self.states[queue]
        states[before] -= 1
        states[after] += 1

    def requeued(self, jobid: int, state: JobState, before: Name, after: Name) -> None:
        """From one queue to another."""
        self.states[before][state] -= 1
        self._of(after)[state] += 1
        if jobid in self.held_jobs:
            self.held(jobid, after, self.held_jobs[jobid][1])

    def held(self, jobid: int, queue: Name, reason: str) -> None:
        """A plugin holds it, or for another reason than before."""
        self.released(jobid)
        self.held_jobs[jobid] = (queue, reason)
        self.held_for.setdefault(queue, Counter())[reason] += 1

    def released(self, jobid: int) -> None:
        """Nothing holds it, if anything did."""
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
