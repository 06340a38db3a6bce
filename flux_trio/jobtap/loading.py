"""Finding plugins, by entry point, by name on a search path or by file.

A file is run anew each time it is loaded, so that an edit counts; it may import files beside it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import os
import sys
import traceback
import types
from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final

from flux_trio.jobtap.failures import attempt, describe
from flux_trio.jobtap.loaded import ModulePlugin, is_plugin_module
from flux_trio.jobtap.plugin import Plugin
from flux_trio.jobtap.values import PluginError
from flux_trio.process.private import untrusted

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
        if "/" in what or what.endswith(".py") or not what.strip("."):
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
