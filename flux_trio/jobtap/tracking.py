"""The state of each job, for plugins with enter and leave handlers or counters.

Each state that a job has entered is left exactly once: when the job enters its next state, when it
ends, or when the plugin is removed.
"""

from __future__ import annotations

from typing import Protocol

from flux_trio.jobtap.failures import attempt
from flux_trio.jobtap.handlers import Function, Handlers
from flux_trio.jobtap.job import Job
from flux_trio.protocols import JobState

Handling = dict[JobState, list[Function]]


class StateRunner(Protocol):
    """Calls the state handlers of one plugin."""

    def run_state_handler(self, label: str, function: Function, job: Job) -> BaseException | None:
        """Call an enter or leave handler; return what it raised."""


class Tracker:
    """Calls the enter and leave handlers of one plugin, and keeps its counters."""

    def __init__(self, handlers: Handlers, runner: StateRunner) -> None:
        self._enter = handlers.enter
        self._leave = handlers.leave
        self.counters = handlers.counters
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
            *[attempt(counter.take, job, state)[1] for counter in self.counters],
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
