"""A loaded plugin, and the state of each job for its enter and leave handlers and counters.

Each state that a job has entered is left exactly once: when the job enters its next state, when it
ends, or when the plugin is removed.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from flux_trio.formats.glob import is_glob
from flux_trio.jobtap.catalogue import Hook, hook_of, takes
from flux_trio.jobtap.counter import Counter
from flux_trio.jobtap.failures import attempt, describe
from flux_trio.jobtap.job import Job, JobHost
from flux_trio.jobtap.loading import Function, Handlers, ModulePlugin
from flux_trio.jobtap.plugin import Plugin
from flux_trio.jobtap.tasks import PluginTasks
from flux_trio.protocols import NEW, STATE_TOPICS, UPDATED, Jobs, JobState, handles

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


_ENTRIES_MAX: Final = 4096  # users choose the topics of updates and events
STATE_HANDLER: Final = Hook("enter or leave", "A job comes into a state, or leaves it.")
_MOVES: Final = (NEW, *STATE_TOPICS.values())  # by which a tracker follows the states of a job


class Entry:
    """One handler of a plugin for one topic, and the durations of its calls in seconds."""

    __slots__ = (
        "count",
        "extra",  # takes a second argument
        "function",
        "label",  # its topic, or another word for the reason of the call
        "longest",
        "many",  # the entry that answers for many jobs at once, if the plugin has one
        "of_job",  # takes the job
        "owner",
        "plugin",  # its name
        "total",
    )

    def __init__(self, owner: Loaded, label: str, function: Function, hook: Hook) -> None:
        self.owner = owner
        self.plugin = owner.name
        self.label = label
        self.function = function
        self.of_job = hook.parameters[:1] == ("job",)
        more = len(hook.parameters) - self.of_job
        self.extra = bool(more) and takes(function, self.of_job + more)
        self.many: Entry | None = None
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    def spent(self, seconds: float) -> None:
        """Count a call of this duration."""
        self.count += 1
        self.total += seconds
        if seconds > self.longest:
            self.longest = seconds


class PluginMethod(msgspec.Struct, frozen=True):
    owner: Loaded
    name: str
    function: Function
    owner_only: bool


def _files_of(plugin: Plugin) -> frozenset[str]:
    """Return the files of a plugin's class and of those it derives from, or of its module."""
    if isinstance(plugin, ModulePlugin):
        modules = [plugin.module]
    else:
        classes = [each for each in type(plugin).__mro__ if each not in (Plugin, object)]
        modules = [
            sys.modules[each.__module__] for each in classes if each.__module__ in sys.modules
        ]
    return frozenset(str(getattr(each, "__file__", "")) for each in modules)


class Loaded:
    """`tasks`, `job_host` and `tracker` are set while the plugin is loaded, before it is asked."""

    tasks: PluginTasks
    job_host: JobHost
    tracker: Tracker | None  # if it follows the states of jobs

    def __init__(self, plugin: Plugin, handlers: Handlers, path: str) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self.path = path
        self.handlers = handlers
        self.is_removed = False
        self.is_gone = False  # and has been told
        self.deadline = plugin.deadline
        self.data: dict[int, dict[str, Any]] = {}  # the plugin's own data, by job
        self.files = _files_of(plugin)
        self._silent: set[str] = set()  # topics and globs whose handlers are not called now
        self._entries: dict[tuple[str, Function], Entry] = {}  # all that were looked up
        self._found: dict[str, Entry | None] = {}  # by topic
        for counter in handlers.counters:
            counter.clear()

    @property
    def is_builtin(self) -> bool:
        """Whether the name begins with a period; then it is hidden, and `*` does not match it."""
        return self.name.startswith(".")

    # --- its handlers

    def listen(self, pattern: str, *, wanted: bool) -> bool:
        """Start or stop calling the handler of a topic or glob; return whether that is a change."""
        if wanted == (pattern not in self._silent):
            return False
        self._silent ^= {pattern}
        self._found.clear()
        return True

    def find(self, topic: str) -> Entry | None:
        """Return the first handler that matches, if any."""
        try:
            return self._found[topic]
        except KeyError:
            if len(self._found) > _ENTRIES_MAX:
                self._found.clear()
            entry = self._found[topic] = self._find(topic)
            return entry

    def topics(self) -> Iterator[str]:
        """Yield the topics and globs for which `chained` has something."""
        if self.tracker is not None:
            yield from _MOVES
            if self.tracker.counters:
                yield UPDATED
        for pattern, _ in self.handlers.topics:
            if pattern not in self._silent:
                yield pattern

    def chained(self, topic: str) -> Iterator[Entry]:
        """Yield the entries that are called for a topic, in order."""
        if self.tracker is not None and topic in _MOVES:
            yield self.entry("states", self.tracker.moved, STATE_HANDLER)
        if self.tracker is not None and self.tracker.counters and topic == UPDATED:
            yield self.entry("counters", self.tracker.updated, STATE_HANDLER)
        if (entry := self.find(topic)) is not None:
            yield entry

    def entry(self, label: str, function: Function, hook: Hook) -> Entry:
        """Return the entry of a function and its label; the same one each time."""
        entry = self._entries.get((label, function))
        if entry is None:
            entry = self._entries[label, function] = Entry(self, label, function, hook)
        return entry

    def statistics(self) -> dict[str, dict[str, float]]:
        """Return by hook the number of calls, their total and longest duration in seconds."""
        found: dict[str, dict[str, float]] = {}
        for entry in self._entries.values():
            if not entry.count:
                continue
            figures = found.setdefault(entry.label, {"count": 0, "total": 0.0, "max": 0.0})
            figures["count"] += entry.count
            figures["total"] += entry.total
            figures["max"] = max(figures["max"], entry.longest)
        return found

    def counters(self) -> dict[str, dict[str, float]]:
        """Return the amounts of the declared counters: by name, by key."""
        found = [] if self.tracker is None else self.tracker.counters
        return {counter.name: counter.shown() for counter in found}

    def methods(self) -> Iterator[PluginMethod]:
        for name, (function, owner_only) in self.handlers.services.items():
            yield PluginMethod(self, name, function, owner_only)

    def _find(self, topic: str) -> Entry | None:
        for pattern, function in self.handlers.topics:
            if pattern not in self._silent and handles(pattern, topic):
                hook = hook_of(topic)
                # a glob is counted as one, because users choose the topics of a family
                label = pattern if hook.prefix and is_glob(pattern) else topic
                entry = self.entry(label, function, hook)
                if topic in self.handlers.many:
                    entry.many = self.entry(label, self.handlers.many[topic], hook)
                return entry
        return None


class Recount(NamedTuple):
    """The amounts of a plugin's counters, by counter and key, as they were kept and as recounted.

    `differences` and `failures` are sentences for the log.
    """

    declared: dict[str, Any]
    recounted: dict[str, Any]
    differences: list[str]
    failures: list[str]


def recount(loaded: Loaded, tracker: Tracker, jobs: Jobs) -> Recount:
    """Count the active jobs again in each counter of a plugin, which corrects it."""
    handles = list(_active(loaded, tracker, jobs))
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


def _active(loaded: Loaded, tracker: Tracker, jobs: Jobs) -> Iterator[Job]:
    """Yield the active jobs that the tracker knows."""
    for jobid in tracker.entered:
        view = jobs.get(jobid)
        if view is not None and view.state != JobState.INACTIVE:
            yield Job(view, None, loaded.job_host)


def _differences(counter: Counter, kept: dict[Hashable, float]) -> Iterator[str]:
    for key in dict.fromkeys([*kept, *counter]):
        had, has = kept.get(key, 0), counter[key]
        if had != has:
            yield f"counter {counter.name} of {key!r} had {had}, there are {has}"
