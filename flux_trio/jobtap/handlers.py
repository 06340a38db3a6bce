"""Reading the decorated functions of a plugin, and checking them."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from flux_trio.jobtap.catalogue import HOOKS, check_handler, hook_of, takes
from flux_trio.jobtap.counter import Counter
from flux_trio.jobtap.decorators import ManyMark, Mark, OnMark, ServiceMark, StateMark, marks_of
from flux_trio.jobtap.errors import PluginError
from flux_trio.jobtap.places import place_of
from flux_trio.jobtap.plugin import Plugin
from flux_trio.protocols import JobState, handles

Function = Callable[..., Any]

_NAME: Final = re.compile(r"\.?[A-Za-z0-9][A-Za-z0-9_-]*")
_METHOD: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

# A job comes into each of these states after NEW, and leaves all but the last one.
_ENTERED: Final = frozenset(JobState) - {JobState.NEW}
_LEFT: Final = _ENTERED - {JobState.INACTIVE}
_COUNTED: Final = _LEFT | {JobState.NEW}  # from job.new on: the next job.validate sees it


class Handlers(msgspec.Struct):
    """The handlers, services and counters of a plugin, in the order of its source."""

    topics: list[tuple[str, Function]] = []  # topic or glob
    many: dict[str, Function] = {}  # by topic: for many jobs at once
    enter: dict[JobState, list[Function]] = {}
    leave: dict[JobState, list[Function]] = {}
    services: dict[str, tuple[Function, bool]] = {}  # function, owner only
    counters: list[Counter] = []

    @property
    def follows_states(self) -> bool:
        """Whether the plugin needs every change of a job's state."""
        return bool(self.enter or self.leave or self.counters)


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
                _take(found, mark, value)
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


def _take(found: Handlers, mark: Mark, function: Function) -> None:
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
