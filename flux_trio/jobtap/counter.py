"""Declared counters: sums over the jobs in some states, by key, kept by the host.

A plugin declares what counts. The host adds an amount when a job comes into one of the states, and
subtracts the same amount when the job leaves them, so that no amount is left over. A job is counted
anew when its jobspec has changed; if a key or an amount depends on something else, the plugin calls
`update`.

A `Tracker` follows the states of jobs for a plugin: for its counters, its enter and leave handlers.
Each state that a job has entered is left exactly once: when the job enters its next state, when it
ends, or when the plugin is removed.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import isclose, isfinite
from typing import Any, NamedTuple, Protocol

from flux_trio.jobtap.decorators import Function
from flux_trio.jobtap.failures import attempt, describe, place_of
from flux_trio.jobtap.job import Job, JobHost
from flux_trio.protocols import Jobs, JobState

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

    >>> from flux_trio import jobtap
    >>> class RunningOfUser(jobtap.Plugin):
    ...     running = jobtap.counter(jobtap.State.RUN, key=lambda job: job.userid)
    ...
    ...     @jobtap.enter(jobtap.State.RUN)
    ...     def entered(self, job: jobtap.Job) -> None:
    ...         job.annotate({"running": self.running[job.userid]})
    >>> from flux_trio.testing import PluginHarness
    >>> with PluginHarness(RunningOfUser) as harness:
    ...     harness.submit().run()
    """
    return Counter(states, key or _no_key, amount or _one)


def _no_key(_job: Job) -> None:
    return None


def _one(_job: Job) -> float:
    return 1


# --- what follows the states of jobs


Handling = dict[JobState, list[Function]]


class StateRunner(Protocol):
    """Calls the state handlers of one plugin."""

    def run_state_handler(self, label: str, function: Function, job: Job) -> BaseException | None:
        """Call an enter or leave handler; return what it raised."""


class Tracker:
    """Calls the enter and leave handlers of one plugin, and keeps its counters."""

    def __init__(
        self, enter: Handling, leave: Handling, counters: list[Counter], runner: StateRunner
    ) -> None:
        self._enter = enter
        self._leave = leave
        self.counters = counters
        self._runner = runner
        self._in: dict[int, JobState] = {}

    def moved(self, job: Job) -> None:
        """Call the handlers of a change of state. Raises the first handler's error."""
        state, before = job.state, self._in.get(job.id)
        if state == before:
            return
        if state == JobState.INACTIVE:
            self._in.pop(job.id, None)  # a job does not leave it
        else:
            self._in[job.id] = state
        errors = [  # the counters come first: handlers see the amounts after the move
            *[attempt(counter.count, job, state)[1] for counter in self.counters],
            *self._run(self._leave, before, job),
            *self._run(self._enter, state, job),
        ]
        for error in errors:
            if error is not None:
                raise error

    def updated(self, job: Job) -> None:
        """Count the job again: its jobspec has changed. Raises the first counter's error."""
        errors = [attempt(counter.update, job)[1] for counter in self.counters]
        for error in errors:
            if error is not None:
                raise error

    def gone(self, job: Job) -> list[BaseException]:
        """Leave the state of the job: the job or the plugin has ended. Return the errors."""
        for counter in self.counters:
            counter.drop(job.id)
        before = self._in.pop(job.id, None)
        errors = self._run(self._leave, before, job)
        return [error for error in errors if error is not None]

    @property
    def entered(self) -> list[int]:
        """The ids of the jobs that have entered a state, in order."""
        return list(self._in)

    def _run(
        self, handlers: Handling, state: JobState | None, job: Job
    ) -> list[BaseException | None]:
        if state is None:
            return []
        what = "enter" if handlers is self._enter else "leave"
        return [
            self._runner.run_state_handler(f"{what} {state.name}", function, job)
            for function in handlers.get(state, ())
        ]


class Recount(NamedTuple):
    """The amounts of a plugin's counters, by counter and key, as they were kept and as recounted.

    `differences` and `failures` are sentences for the log.
    """

    declared: dict[str, Any]
    recounted: dict[str, Any]
    differences: list[str]
    failures: list[str]


def recount(tracker: Tracker, jobs: Jobs, job_host: JobHost) -> Recount:
    """Count the active jobs again in each counter of a plugin, which corrects it."""
    handles = list(_active(tracker, jobs, job_host))
    found = Recount({}, {}, [], [])
    for counter in tracker.counters:
        _, error = attempt(_recount, counter, handles, found)  # a key is the plugin's own code
        if error is not None:
            found.failures.append(f"counter {counter.name}: {describe(error)}")
    return found


def _recount(counter: Counter, handles: Iterable[Job], found: Recount) -> None:
    kept = counter.recount(handles)
    found.declared[counter.name] = {str(key): amount for key, amount in kept.items()}
    found.recounted[counter.name] = counter.shown()
    found.differences.extend(_differences(counter, kept))


def _active(tracker: Tracker, jobs: Jobs, job_host: JobHost) -> Iterator[Job]:
    """Yield the active jobs that the tracker knows."""
    for jobid in tracker.entered:
        view = jobs.get(jobid)
        if view is not None and view.state != JobState.INACTIVE:
            yield Job(view, None, job_host)


def _differences(counter: Counter, kept: dict[Hashable, float]) -> Iterator[str]:
    for key in dict.fromkeys([*kept, *counter]):
        had, has = kept.get(key, 0), counter[key]
        if had != has:
            yield f"counter {counter.name} of {key!r} had {had}, there are {has}"
