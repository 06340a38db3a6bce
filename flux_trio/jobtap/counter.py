"""Declared counters: sums over the jobs in some states, by key, kept by the host.

A plugin declares what counts. The host adds an amount when a job comes into one of the states, and
subtracts the same amount when the job leaves them, so that no amount is left over. A job is counted
anew when its jobspec has changed; if a key or an amount depends on something else, the plugin calls
`update`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import isclose, isfinite
from typing import Any

from flux_trio.jobtap.failures import place_of
from flux_trio.jobtap.job import Job
from flux_trio.protocols import JobState

Key = Callable[[Job], Hashable]
Amount = Callable[[Job], float]


class Counter(Mapping[Hashable, float]):
    """Amounts by key, of the jobs in `states`; a key for which no job counts has 0.

    A counter in a class is copied for each plugin object; a counter in a module is used itself.
    """

    def __init__(self, states: tuple[JobState, ...], key: Key, amount: Amount) -> None:
        self.states = frozenset(states)
        self.key = key
        self.amount = amount
        self.name = ""
        self._of_job: dict[int, tuple[Hashable, float]] = {}
        self._totals: dict[Hashable, float] = {}
        self._jobs: dict[Hashable, int] = {}  # the number of jobs in each total

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, plugin: Any, owner: type | None = None) -> Counter:
        if plugin is None:
            return self
        own = plugin.__dict__.get(self.name)
        if own is None:
            own = plugin.__dict__[self.name] = Counter(tuple(self.states), self.key, self.amount)
            own.name = self.name
        assert isinstance(own, Counter)
        return own

    def __getitem__(self, key: Hashable) -> float:
        return self._totals.get(key, 0)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._totals)

    def __len__(self) -> int:
        return len(self._totals)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<Counter {self.name} {self._totals}>"

    @property
    def total(self) -> float:
        """The sum over all keys."""
        return sum(self._totals.values())

    def update(self, job: Job) -> None:
        """Count the job as it is now: its key or its amount has changed."""
        self.drop(job.id)
        now = job._now()
        if now is not None:
            self.count(now, now.state)

    # --- for the host

    def shown(self) -> dict[str, float]:
        """Return the amounts by key as text."""
        return {str(key): amount for key, amount in self._totals.items()}

    def count(self, job: Job, state: JobState) -> None:
        """Count the job, or stop counting it, now that it is in `state`."""
        jobid = job.id
        counted = jobid in self._of_job
        if state in self.states:
            if not counted:
                key, amount = self.key(job), self.amount(job)
                try:
                    hash(key)
                except TypeError:
                    raise self._wrong("a key that can be hashed", key, self.key) from None
                if not isinstance(amount, (int, float)) or not isfinite(amount):
                    raise self._wrong("a number", amount, self.amount)
                self._add(jobid, key, amount)
        elif counted:
            self.drop(jobid)

    def drop(self, jobid: int) -> None:
        """Stop counting the job."""
        counted = self._of_job.pop(jobid, None)
        if counted is None:
            return
        key, amount = counted
        self._jobs[key] -= 1
        self._totals[key] -= amount
        if not self._jobs[key]:
            del self._jobs[key], self._totals[key]

    def clear(self) -> None:
        """Stop counting all jobs."""
        self._of_job, self._totals, self._jobs = {}, {}, {}

    def recount(self, jobs: Iterable[Job]) -> dict[Hashable, float]:
        """Count `jobs` again; return the amounts before, by key."""
        kept = self._totals
        self.clear()
        for job in jobs:
            self.count(job, job.state)
        close = {key for key, amount in self._totals.items() if isclose(amount, kept.get(key, 0))}
        return {key: self[key] if key in close else amount for key, amount in kept.items()}

    def _wrong(self, wanted: str, got: Any, function: Callable[[Job], Any]) -> TypeError:
        where = place_of(function)
        return TypeError(f"counter {self.name}: expected {wanted}, got {reprlib.repr(got)}{where}")

    def _add(self, jobid: int, key: Hashable, amount: float) -> None:
        self._of_job[jobid] = (key, amount)
        self._jobs[key] = self._jobs.get(key, 0) + 1
        self._totals[key] = self._totals.get(key, 0) + amount


def counter(*states: JobState, key: Key | None = None, amount: Amount | None = None) -> Counter:
    """Count the jobs that are in one of `states`: by `key`, the sum of `amount`.

    Without `key` there is one key, None; without `amount` each job counts 1.
    """
    return Counter(states, key or _no_key, amount or _one)


def _no_key(_job: Job) -> None:
    return None


def _one(_job: Job) -> float:
    return 1
