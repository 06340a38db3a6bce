"""How many active jobs there are: by queue and state, and by what plugins hold them for.

Counted as jobs change, so that neither a request nor a turn has to look at every job.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from flux_trio.protocols import JobState

Name = str | None  # of a queue; None: the anonymous one


class Tally:
    """The counts; whoever changes a job tells of it."""

    def __init__(self) -> None:
        self._states: defaultdict[Name, Counter[JobState]] = defaultdict(Counter)
        self._held: dict[int, tuple[Name, str]] = {}  # id → queue and reason it is counted under
        self._reasons: defaultdict[Name, Counter[str]] = defaultdict(Counter)

    def jobs(self, states: int, queue: Name = None) -> int:
        """How many are in any of `states`, a mask; in every queue unless one is named."""
        counted = self._states.values() if queue is None else [self._states[queue]]
        return sum(n for each in counted for state, n in each.items() if state & states)

    def reasons(self, queue: Name) -> dict[str, int]:
        """Why jobs of `queue` are held, and how many for each reason."""
        return dict(self._reasons[queue])

    def came(self, queue: Name, state: JobState) -> None:
        """One more is active."""
        self._states[queue][state] += 1

    def went(self, jobid: int, queue: Name, state: JobState) -> None:
        """It is active no more."""
        self._states[queue][state] -= 1
        self.released(jobid)

    def moved(self, queue: Name, before: JobState, after: JobState) -> None:
        states = self._states[queue]
        states[before] -= 1
        states[after] += 1

    def requeued(self, jobid: int, state: JobState, before: Name, after: Name) -> None:
        """From one queue to another."""
        self._states[before][state] -= 1
        self._states[after][state] += 1
        if jobid in self._held:
            self.held(jobid, after, self._held[jobid][1])

    def held(self, jobid: int, queue: Name, reason: str) -> None:
        """A plugin holds it, or for another reason than before."""
        self.released(jobid)
        self._held[jobid] = (queue, reason)
        self._reasons[queue][reason] += 1

    def released(self, jobid: int) -> None:
        """Nothing holds it, if anything did."""
        counted = self._held.pop(jobid, None)
        if counted is None:
            return
        queue, reason = counted
        self._reasons[queue][reason] -= 1
        if not self._reasons[queue][reason]:
            del self._reasons[queue][reason]
