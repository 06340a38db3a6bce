"""Which state each job was last seen in, for plugins with enter and leave handlers or counters.

Whatever way a job takes, what was entered is left exactly once: the next state, the job's end or
the plugin's removal does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flux_trio.jobtap.handlers import Function
from flux_trio.jobtap.job import Job
from flux_trio.protocols import JobState, JobView

if TYPE_CHECKING:
    from flux_trio.jobtap.loaded import Loaded

Handling = dict[JobState, list[Function]]


class Tracker:
    """Calls the enter and leave handlers of one plugin, and keeps its counters."""

    def __init__(self, owner: Loaded) -> None:
        self._owner = owner
        self._enter = owner.handlers.enter
        self._leave = owner.handlers.leave
        self.counters = owner.handlers.counters
        self._in: dict[int, JobState] = {}

    def moved(self, job: Job) -> None:
        """The job is in the state it has now. Raises what the first handler raised."""
        state, before = job.state, self._in.get(job.id)
        if state == before:
            return
        if state == JobState.INACTIVE:
            self._in.pop(job.id, None)  # it cannot be left
        else:
            self._in[job.id] = state
        errors = [
            *self._run(self._leave, before, job),
            *[self._owner.attempt(counter.take, job, state) for counter in self.counters],
            *self._run(self._enter, state, job),
        ]
        for error in errors:
            if error is not None:
                raise error

    def updated(self, job: Job) -> None:
        """Its jobspec has changed: count it anew. Raises what the first counter raised."""
        errors = [self._owner.attempt(counter.update, job) for counter in self.counters]
        for error in errors:
            if error is not None:
                raise error

    def gone(self, view: JobView) -> list[BaseException]:
        """The job is over, or the plugin: leave what it was in. What was raised."""
        for counter in self.counters:
            counter.drop(view.id)
        before = self._in.pop(view.id, None)
        errors = self._run(self._leave, before, Job(self._owner, view, None))
        return [error for error in errors if error is not None]

    @property
    def entered(self) -> list[int]:
        """The jobs that are in a state now, by id, in the order they came."""
        return list(self._in)

    def _run(
        self, handlers: Handling, state: JobState | None, job: Job
    ) -> list[BaseException | None]:
        if state is None:
            return []
        what = "enter" if handlers is self._enter else "leave"
        return [
            self._owner.run_state_handler(f"{what} {state.name}", function, job)
            for function in handlers.get(state, ())
        ]
