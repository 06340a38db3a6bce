"""Finding plugins, by entry point, by name on a search path or by file; and reading their handlers.

A file is run anew each time it is loaded, so that an edit counts; it may import files beside it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final

import msgspec

from flux_trio.jobtap.catalogue import HOOKS, check_handler, hook_of, takes
from flux_trio.jobtap.counter import Counter
from flux_trio.jobtap.decorators import ManyMark, Mark, OnMark, ServiceMark, StateMark, marks_of
from flux_trio.jobtap.errors import PluginError
from flux_trio.jobtap.failures import attempt, describe, place_of
from flux_trio.jobtap.plugin import Plugin
from flux_trio.process.private import untrusted
from flux_trio.protocols import JobState, handles

GROUP: Final = "flux_trio.jobtap"
"""The entry point group: each names a Plugin class or a module that is a plugin."""

PATH_VARIABLE: Final = "FLUX_TRIO_JOBTAP_PATH"
"""Directories with plugins, separated by colons; searched before all others."""

PLUGINS_DIRECTORY: Final = "jobtap"  # in a state directory

_OF_FILE: Final = "flux_trio_jobtap_"  # begins the name of a module that is run from a file

_PACKAGE: Final = Path(__file__).parent.parent


def name_meant(what: str) -> str:
    """Return the name of a plugin that flux-core has as a file: perilog for perilog.so."""
    return what if "/" in what else what.removesuffix(".so")


def search_path(environ: Mapping[str, str], statedir: Path | None = None) -> list[Path]:
    """Return the directories of plugins: the variable's, the instance's, those of flux-trio.

    The last are in the package, or beside it in a checkout.
    """
    given = [Path(each) for each in environ.get(PATH_VARIABLE, "").split(os.pathsep) if each]
    own = [] if statedir is None else [statedir / PLUGINS_DIRECTORY]
    packaged = [_PACKAGE / "jobtap" / "builtins", _PACKAGE / "plugins", _PACKAGE.parent / "plugins"]
    return [*given, *own, *packaged]


class Loader:
    """Makes plugins from names and paths; `builtins` are known by their names with a period."""

    def __init__(self, path: Iterable[Path] = (), builtins: Iterable[Plugin] = ()) -> None:
        self._path = list(path)
        self._builtins = {each.name: each for each in builtins}

    def find(self, what: str) -> tuple[Plugin, str]:
        """Return a new plugin and its origin. Raises PluginError, naming the searched places."""
        if what in self._builtins:
            return self._builtins[what], "builtin"
        what = name_meant(what)
        if "/" in what or what.endswith(".py"):
            self._check_there_is(Path(what))
            return load_file(Path(what)), str(Path(what).resolve())
        for entry_point in importlib.metadata.entry_points(group=GROUP, name=what):
            return _of_entry_point(entry_point)
        name = f"{what.replace('-', '_')}.py"
        if (found := self._on_path(name)) is not None:
            return load_file(found), str(found.resolve())
        places = ", ".join([f"the entry points {GROUP}", *map(str, self._path)])
        raise PluginError(f"no plugin {what}: looked for {name} in {places}")

    def _on_path(self, name: str) -> Path | None:
        """Return the first file of this name in the directories of plugins."""
        return next((each / name for each in self._path if _is_file(each / name)), None)

    def _check_there_is(self, path: Path) -> None:
        """Raise PluginError if there is no such file; it says which name finds the plugin."""
        if not _is_file(path) and (found := self._on_path(path.name)) is not None:
            name = path.stem.replace("_", "-")
            raise PluginError(f"{_no_file(path)}; {name} loads {found}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # no permission, or a name that no file can have
        raise PluginError(f"no plugin {path}: {error.strerror}") from None


def _no_file(path: Path, what: str = "plugin") -> str:
    """Return the error message about a path that is no file."""
    problem = "expected a file, got a directory" if path.is_dir() else "there is no such file"
    return f"no {what} {path}: {problem}"


def load_file(path: Path) -> Plugin:
    """Return the plugin of a file. Raises PluginError with file and line of the error."""
    module = run_file(path, _OF_FILE)
    path = path.resolve()
    return _of_module(module, path.stem.replace("_", "-"), str(path))


class _Anew(SourceFileLoader):
    """Compiles the file each time: Python's own cache misses a second edit within a second."""

    def get_code(self, _fullname: str) -> types.CodeType:
        code: types.CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def run_file(path: Path, prefix: str, what: str = "plugin") -> types.ModuleType:
    """Run a file of the user as the module `prefix` + its stem, and return this module.

    Raises PluginError with file and line of the error; `what` says what the file should be.
    """
    if not _is_file(path):
        raise PluginError(_no_file(path, what))
    path = path.resolve()
    try:
        reason = untrusted(path, imports=True)
    except OSError as error:
        raise PluginError(f"no {what} {path}: {error.strerror}") from None
    if reason:
        raise PluginError(f"no {what} {path}: {reason}")
    name = f"{prefix}{path.stem}"
    if path.suffix != ".py":
        expected = "expected a Python file, whose name ends in .py"
        raise PluginError(f"no {what} {path}: {expected}, got {path.name}")
    loader = _Anew(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look there
    sys.path.insert(0, str(path.parent))
    is_whole = False
    try:
        _, raised = attempt(loader.exec_module, module)
        if raised is not None:
            raise PluginError(f"{path}{_problem(raised, path)}")
        is_whole = True
    finally:
        sys.path.remove(str(path.parent))
        if not is_whole:
            sys.modules.pop(name, None)
    return module


def forget_code(plugin: Plugin) -> None:
    """Let the code of a removed plugin's file go; files that it has imported stay."""
    own = plugin.module if isinstance(plugin, ModulePlugin) else type(plugin)
    name = own.__name__ if isinstance(own, types.ModuleType) else own.__module__
    module = sys.modules.get(name)
    is_its = module is own or getattr(module, own.__name__, None) is own  # not the next version
    if name.startswith(_OF_FILE) and is_its:
        del sys.modules[name]


def may_wait(plugin: Plugin) -> bool:
    """Return whether the plugin's class, or its file, has an async function."""
    places: list[Any] = [plugin.module] if isinstance(plugin, ModulePlugin) else []
    for each in type(plugin).__mro__:
        if each not in (Plugin, ModulePlugin, object):
            places.append(each)
            if each.__module__.startswith(_OF_FILE):
                places.append(sys.modules[each.__module__])
    return any(
        inspect.iscoroutinefunction(value) for place in places for value in vars(place).values()
    )


def _of_entry_point(entry_point: importlib.metadata.EntryPoint) -> tuple[Plugin, str]:
    where = f"{GROUP} {entry_point.name} = {entry_point.value}"
    found, error = attempt(entry_point.load)
    if error is not None:
        raise PluginError(f"{where}: {describe(error)}")
    if isinstance(found, types.ModuleType):
        return _of_module(found, entry_point.name, where), where
    return _of_class(found, entry_point.name, where), where


def _of_module(module: types.ModuleType, name: str, where: str) -> Plugin:
    """Return a plugin of its only Plugin class, or of the module if it has decorated functions."""
    classes = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Plugin)
        and each.__module__ == module.__name__
        and not each.__name__.startswith("_")
    ]
    if len(classes) > 1:
        names = ", ".join(each.__name__ for each in classes)
        raise PluginError(f"{where}: expected one class of a plugin, got {names}")
    if classes:
        return _of_class(classes[0], name, where)
    if is_plugin_module(module):
        return ModulePlugin(module, name)
    raise PluginError(f"{where}: expected a jobtap.Plugin, or functions with jobtap's decorators")


def _of_class(found: Any, name: str, where: str) -> Plugin:
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        raise PluginError(f"{where}: expected a jobtap.Plugin, got {found!r}")

    def make() -> Plugin:
        plugin = found()
        plugin.name = plugin.name or name
        return plugin

    plugin, error = attempt(make)
    if error is not None:
        raise PluginError(f"{where}: {describe(error)}")
    assert isinstance(plugin, Plugin)
    return plugin


def _problem(error: BaseException, path: Path) -> str:
    """Return the line in the file, if it is known, and the error."""
    lines = [
        each.lineno
        for each in traceback.extract_tb(error.__traceback__)
        if each.filename == str(path)
    ]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    if lines and lines[-1] is not None:
        return f":{lines[-1]}: {describe(error)}"
    # Python names no line of a file with null bytes
    expected = "expected Python source: " if isinstance(error, (SyntaxError, ValueError)) else ""
    return f": {expected}{describe(error)}"


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
