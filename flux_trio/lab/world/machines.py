"""The modules of a world of cores, as the room `at_once` has them, with what faults need.

The store answers at once unless its disk is slow, the user database knows every user, and plugins
answer at once unless a fault lets them answer later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import User
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.formats import Idset, ResourceSet
from flux_trio.jobtap.loop_watch import LoopWatch
from flux_trio.lab.world.disk import StoreKind
from flux_trio.lab.world.plugin_files import PluginFile, host_of
from flux_trio.lab.world.plugins import USUAL, Answering, PluginsOfWorld
from flux_trio.protocols import AskHook
from flux_trio.services.at_once import JobManagerAtOnce
from flux_trio.trace import Kind

USERID: Final = 1000  # the owner of the instance


@dataclass(frozen=True)
class Surroundings:
    """What the modules of a world are given.

    `exclude` and `missing` are the targets that are excluded and down from the start of each life.
    `hooks` are the topics that the plugin handles beside those of each world. `plugins` are files
    of jobtap plugins, `builtins` those of builtin ones that not every world has. `store` is where
    the kvs keeps its values.
    """

    inventory: ResourceSet
    exclude: Idset = Idset()  # noqa: RUF009 - it is frozen
    missing: Mapping[int, str] | None = None
    hooks: tuple[str, ...] = ()
    plugins: tuple[PluginFile, ...] = ()
    builtins: tuple[PluginFile, ...] = ()
    store: StoreKind = "memory"


def job_manager_of_world(
    config: Config,
    given: Surroundings,
    fault_of: Callable[[AskHook], Answering | None],
    watch: LoopWatch,
) -> JobManagerAtOnce:
    """Return the job manager's core with its plugins, for a world of cores.

    `fault_of` returns the fault that answers a question in place of the plugins, or None.
    """
    core = JobManagerCore(USERID, config)
    manager = JobManagerAtOnce(core, lambda userid: User(f"user{userid}"))
    interests = tuple(dict.fromkeys((*USUAL, *given.hooks)))
    plugins = PluginsOfWorld(interests, fault_of, manager.note_all)
    if files := (*given.builtins, *given.plugins):
        usual = manager.given(USERID, lambda: True)
        parts = msgspec.structs.replace(
            usual,
            post=lambda operation: plugins.post(operation, usual.post),
            note_all=lambda kind, notes: manager.note_all(kind, _wrong_ones(kind, notes)),
        )
        plugins.host = host_of(files, config, parts, watch)
        plugins.host.jobs = core
    manager.use(plugins, plugins.host, plugins)
    return manager


def _wrong_ones(kind: str, notes: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the records of plugins; of counters those that are wrong."""
    if kind != Kind.COUNTERS:
        return notes
    return [each for each in notes if each["declared"] != each["recounted"]]
