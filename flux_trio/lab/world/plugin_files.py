"""Plugins of files in a world of cores: the host of an instance, without anything that waits.

In a world nothing runs beside the turns of the cores. So a plugin whose handlers answer at once
behaves as in an instance; one with an async handler is refused, and one that starts a task, or
sends a request, gets an error from that call.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import msgspec

from flux_trio.config import Config
from flux_trio.jobtap import (
    HostServices,
    NotAllowed,
    Plugin,
    PluginError,
    PluginHost,
    builtins,
    load_file,
)
from flux_trio.jobtap.builtins import PriorityDefault, UpdateDuration
from flux_trio.jobtap.calls import name_of
from flux_trio.jobtap.loop_watch import LOOK_S, LoopWatch

LOOP_S: Final = 3
"""Seconds of CPU time that a handler may use in one call before it ends the process of `flux-trio
fuzz`, or its worker. It is shorter than in an instance: a campaign stands still meanwhile."""


class PluginFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a jobtap plugin, and the conf that the plugin gets, as in a configuration."""

    load: str
    conf: dict[str, Any] = {}


Builtin = Literal["alloc-check", "dependency-singleton", "perilog", "held-epilog"]

_AT: Final[dict[str, tuple[Builtin, ...]]] = {
    "cores": ("alloc-check", "dependency-singleton"),
    "stack": ("alloc-check", "perilog", "held-epilog"),  # the other one is in every instance
}
"""By depth: the plugins of this program that a plan may load there. Two of them start tasks."""


def builtin_files(names: Sequence[Builtin], depth: str) -> tuple[PluginFile, ...]:
    """Return the files of these plugins, as far as worlds of this depth load them."""
    return tuple(PluginFile(str(_file_of(name))) for name in names if name in _AT[depth])


def _file_of(name: Builtin) -> Path:
    beside = __file__ if name == "held-epilog" else builtins.__file__
    return Path(beside).with_name(f"{name.replace('-', '_')}.py")


def plugin_file(plugin: str | PluginFile) -> PluginFile:
    """Return a plugin of a plan as a PluginFile; a plan may have only the path."""
    return PluginFile(plugin) if isinstance(plugin, str) else plugin


_AT_STACK: Final = (
    "At depth stack plugins may wait: --depth stack, in a test "
    '@pytest.mark.flux_depth("stack") or WorldHarness(depth="stack")'
)


class _NoTasks:
    """The tasks of the host and of each of its plugins."""

    running: tuple[()] = ()

    def new(self, *_: object) -> NoReturn:
        self.start_soon()

    def start_soon(self, *_: object) -> NoReturn:
        raise NotAllowed(f"at depth cores a plugin cannot start a task. {_AT_STACK}")


def host_of(
    files: Iterable[PluginFile], config: Config, given: HostServices, watch: LoopWatch | None = None
) -> PluginHost:
    """Return a host of plugins: priority-default, update-duration, and those of `files`.

    `watch` names their endless loops. Raises PluginError for a file without a plugin, or
    with one that cannot be in a world of cores.
    """
    none = _NoTasks()
    host = PluginHost(none, given, config, look_s=inf, make_tasks=lambda *_: none)
    if watch is not None:
        host.watch = watch
    for builtin in (PriorityDefault(), UpdateDuration()):
        _load(host, builtin, "builtin")
    for file in files:
        _load(host, load_file(Path(file.load)), file.load, file.conf)
    return host


def watch_of_world() -> LoopWatch:
    """Return a watch that names endless loops of plugins.

    Whoever makes one has to stop it; it begins with the first plugin that is loaded.
    """
    watch = LoopWatch(LOOK_S, name_of, lambda _text: None)
    watch.limit_s = LOOP_S
    return watch


def _load(host: PluginHost, plugin: Plugin, path: str, conf: dict[str, Any] | None = None) -> None:
    _at_once(host.load(plugin, conf, path), plugin)
    for topic, function in host.find(plugin.name).handlers.topics:
        if inspect.iscoroutinefunction(function):
            raise PluginError(
                f"plugin {plugin.name}: {function.__name__} of {topic} is async: at depth cores "
                f"handlers answer at once. {_AT_STACK}"
            )


def _at_once(loading: Coroutine[Any, Any, object], plugin: Plugin) -> None:
    """Run a coroutine that does not wait."""
    try:
        loading.send(None)
    except StopIteration:
        return
    loading.close()
    raise PluginError(f"plugin {plugin.name} waits while it is loaded")


def check_files(plugins: Iterable[str | PluginFile], depth: str = "cores") -> None:
    """Raise PluginError if one of the plugins cannot be in a world of this depth."""
    files = [plugin_file(each) for each in plugins]
    if depth == "stack":
        for file in files:
            load_file(Path(file.load))
        return
    given = HostServices(
        post=lambda _: None,
        note_all=lambda *_: None,
        is_traced=lambda: False,
        now=lambda: 0.0,
        log=lambda *_: None,
    )
    host_of(files, Config(), given)
