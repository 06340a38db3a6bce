"""A loaded plugin: its handlers, read from its class or module, and what they have cost."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from flux_trio.formats.glob import is_glob
from flux_trio.jobtap.catalogue import HOOKS, Hook, check_handler, hook_of, takes
from flux_trio.jobtap.counter import Counter, Handling, Tracker
from flux_trio.jobtap.decorators import (
    Function,
    ManyMark,
    Mark,
    OnMark,
    ServiceMark,
    StateMark,
    marks_of,
)
from flux_trio.jobtap.failures import place_of
from flux_trio.jobtap.job import JobHost
from flux_trio.jobtap.plugin import Plugin
from flux_trio.jobtap.tasks import PluginTasks
from flux_trio.jobtap.values import PluginError
from flux_trio.protocols import NEW, STATE_TOPICS, UPDATED, JobState, handles

_NAME: Final = re.compile(r"\.?[A-Za-z0-9][A-Za-z0-9_-]*")
_METHOD: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

# A job comes into each of these states after NEW, and leaves all but the last one.
_ENTERED: Final = frozenset(JobState) - {JobState.NEW}
_LEFT: Final = _ENTERED - {JobState.INACTIVE}
_COUNTED: Final = _LEFT | {JobState.NEW}  # from job.new on: the next job.validate sees it

_ENTRIES_MAX: Final = 4096  # users choose the topics of updates and events
STATE_HANDLER: Final = Hook("enter or leave", "A job comes into a state, or leaves it.")
_MOVES: Final = (NEW, *STATE_TOPICS.values())  # by which a tracker follows the states of a job


class Handlers(msgspec.Struct):
    """The handlers, services and counters of a plugin, in the order of its source."""

    topics: list[tuple[str, Function]] = []  # topic or glob
    many: dict[str, Function] = {}  # by topic: for many jobs at once
    enter: dict[JobState, list[Function]] = {}
    leave: dict[JobState, list[Function]] = {}
    services: dict[str, tuple[Function, bool]] = {}  # function, owner only
    counters: list[Counter] = []

    @property
    def of_states(self) -> tuple[Handling, Handling, list[Counter]]:
        """What needs every change of a job's state."""
        return self.enter, self.leave, self.counters


class ModulePlugin(Plugin):
    """A module as a plugin; its functions `loaded` and `removed`, if any, take this object."""

    def __init__(self, module: types.ModuleType, name: str) -> None:
        self.module = module
        self.name = getattr(module, "name", name)

    def loaded(self) -> None:
        self._call("loaded")

    def removed(self) -> None:
        self._call("removed")

    def _call(self, name: str) -> None:
        function = getattr(self.module, name, None)
        if isinstance(function, types.FunctionType):
            function(self)


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


# --- reading the handlers of a plugin


def read_handlers(plugin: Plugin) -> Handlers:
    """Return the handlers of `plugin`. Raises PluginError, naming the rule that it breaks."""
    name, deadline = plugin.name, plugin.deadline
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PluginError(f"{name!r} is not a plugin name: expected letters, digits and hyphens")
    if type(deadline) not in (int, float) or not deadline > 0:
        raise PluginError(f"plugin {name}: expected a deadline in seconds, got {deadline!r}")
    found = Handlers()
    for value in _members(plugin):
        if isinstance(value, Counter):
            found.counters.append(value)
            continue
        for mark in marks_of(value):
            try:
                _add_handler(found, mark, value)
            except PluginError as error:
                raise PluginError(f"plugin {plugin.name}: {error}{place_of(value)}") from None
    for topic, function in found.many.items():
        if not any(handles(pattern, topic) for pattern, _ in found.topics):
            raise PluginError(
                f"plugin {name}: {_name(function)}: on_many({topic!r}) expects a handler"
                f" on({topic!r}), too{place_of(function)}"
            )
    for counter in found.counters:
        if not counter.states or not counter.states <= _COUNTED:
            raise PluginError(
                f"plugin {plugin.name}: counter {counter.name} counts in {_names(_COUNTED)}"
            )
    return found


def is_plugin_module(module: types.ModuleType) -> bool:
    """Return whether a module has a decorated function or a counter."""
    return any(marks_of(value) or isinstance(value, Counter) for value in vars(module).values())


def _members(plugin: Plugin) -> Iterator[Any]:
    """Yield functions and counters in the order of the source; those of base classes first."""
    if isinstance(plugin, ModulePlugin):
        for name, value in vars(plugin.module).items():
            if isinstance(value, Counter):
                value.name = name
            yield value
        return
    names: dict[str, None] = {}
    for each in reversed(type(plugin).__mro__):
        names |= dict.fromkeys(vars(each))
    for name in names:
        raw = getattr(type(plugin), name, None)
        if isinstance(raw, Counter) or marks_of(raw):
            yield getattr(plugin, name)


def _add_handler(found: Handlers, mark: Mark, function: Function) -> None:
    match mark:
        case OnMark(topics):
            if not topics:
                raise PluginError(f"{_name(function)}: on() expects at least one topic")
            for topic in topics:
                check_handler(topic, function)
                if not hook_of(topic).waits_for_async and inspect.iscoroutinefunction(function):
                    raise PluginError(f"handler {_name(function)} of {topic} cannot be async")
                found.topics.append((topic, function))
        case ManyMark(topics):
            for topic in topics:
                _check_many(found, topic, function)
                found.many[topic] = function
        case StateMark(states, leaving):
            _check_states(function, states, leaving)
            for state in states:
                (found.leave if leaving else found.enter).setdefault(state, []).append(function)
        case ServiceMark(method, owner_only):
            _check_service(found, function, method)
            found.services[method] = (function, owner_only)


def _check_many(found: Handlers, topic: str, function: Function) -> None:
    if not hook_of(topic).of_many:
        known = ", ".join(hook.topic for hook in HOOKS if hook.of_many)
        raise PluginError(f"on_many() of {_name(function)} takes {known}, got {topic!r}")
    if topic in found.many:
        raise PluginError(f"there are two handlers on_many({topic!r})")
    if inspect.iscoroutinefunction(function):
        raise PluginError(f"on_many() handler {_name(function)} cannot be async")
    if not takes(function, 1):
        raise PluginError(f"on_many() handler {_name(function)}: expected (jobs)")


def _check_states(function: Function, states: tuple[JobState, ...], leaving: bool) -> None:
    what, possible = ("leave", _LEFT) if leaving else ("enter", _ENTERED)
    if not states or not possible.issuperset(states):
        raise PluginError(f"{what}() of {_name(function)} takes {_names(possible)}")
    if inspect.iscoroutinefunction(function):
        raise PluginError(f"{what}() handler {_name(function)} cannot be async: use on()")
    if not takes(function, 1):
        raise PluginError(f"{what}() handler {_name(function)}: expected (job)")


def _check_service(found: Handlers, function: Function, method: str) -> None:
    if not _METHOD.fullmatch(method):
        raise PluginError(f"{method!r} is no name of a method: words with periods between")
    if method in found.services:
        raise PluginError(f"there are two services {method}")
    if not takes(function, 1):
        raise PluginError(f"service {_name(function)}: expected (request)")


def _names(states: frozenset[JobState]) -> str:
    return ", ".join(state.name for state in sorted(states))


def _name(function: Function) -> str:
    return getattr(function, "__name__", repr(function))
