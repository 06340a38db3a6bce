"""The job manager under Trio: its core, its plugins, and the requests about plugins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import assert_never

import trio

from flux_trio.broker import Handle, LocalHandle
from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import (
    FindUser,
    Housekeep,
    HousekeepingSignal,
    JobManagerAction,
    JobManagerInput,
    JobManagerOwnAction,
    JobManagerOwnInput,
    JobManagerTimer,
    User,
    UserFound,
)
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.state import Plain
from flux_trio.cores.turns import Core
from flux_trio.jobtap import HostServices, Loader, Plugin, PluginHost, open_host
from flux_trio.messages import Level, Request, topics
from flux_trio.protocols import AskHook, AskJobs, CancelHook, NotifyPlugins, PluginReplayed
from flux_trio.services.at_once import PluginNotes, PluginTurns
from flux_trio.services.explain_job import Explainer
from flux_trio.services.housekeeping import HousekeepingRuns
from flux_trio.services.plugin_methods import PluginMethods, named_directive
from flux_trio.services.recorded_core import Made, make_core
from flux_trio.services.runner import no_other_actions, run_core
from flux_trio.services.user_database import unix_user


async def run(
    handle: Handle,
    make_plugins: Callable[[], Sequence[Plugin]],
    config: Config | None = None,
    users: Callable[[int], Awaitable[User]] = unix_user,
    search_path: Iterable[Path] = (),
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `job-manager.*` until cancelled, with plugins.

    The plugins of `make_plugins` are asked first, then the configured plugins. `config` has the
    queues; `users` finds the name and the groups of a userid. Plugins that are given by name are
    searched in `search_path`. Raises PluginError for a plugin that cannot be loaded.
    """
    config, plugins = config or Config(), make_plugins()
    assert isinstance(handle, LocalHandle)  # the job manager runs in the broker's process

    notes = PluginNotes(lambda kind, notes: handle.note_all([(kind, data) for data in notes]))

    with handle.beside("jobtap") as asker:  # plugins send their requests through it
        given = HostServices(
            post=handle.post,
            note_all=notes.put,
            is_traced=handle.is_traced,
            now=handle.now,
            log=handle.log,
            rpc=asker.call,
            owner=handle.userid,
            users=users,
            abandon=handle.abandoned.extend,
        )
        async with open_host(given, config) as host:
            made = make_core(handle, JobManagerCore, handle.userid, config)
            host.jobs = core = made.core

            async def find_user(userid: int) -> None:
                handle.post(UserFound(userid, await users(userid)))

            housekeeping = HousekeepingRuns(
                host.nursery, handle.post, handle.log, pretends=config.exec.simulate
            )

            def perform(action: JobManagerOwnAction) -> None:
                match action:
                    case PluginReplayed():
                        host.replayed(action)
                    case FindUser():
                        host.nursery.start_soon(find_user, action.userid)
                    case Housekeep():
                        housekeeping.begin(action)
                    case HousekeepingSignal():
                        housekeeping.signal(action)
                    case AskHook() | AskJobs() | CancelHook() | NotifyPlugins():
                        no_other_actions(action)  # `PluginTurns` performs them
                    case _:
                        assert_never(action)

            handle.register(topics.JOB_MANAGER)
            handle.subscribe(topics.RESOURCE_EXPIRATION_EVENT)
            handle.subscribe(topics.KVS_DAMAGED_EVENT)
            loader = await load_all(host, plugins, config, search_path)
            explainer = Explainer(core, host, asker.call)
            methods = PluginMethods(host, loader, handle.answer, explainer.answer)
            machine = _Machine(made, host, notes, methods, handle.waiting)
            configured = host.names()
            try:
                await run_core(handle, machine, perform, task_status=task_status)
            finally:
                _tell_lost(handle, [name for name in host.names() if name not in configured])


async def load_all(
    host: PluginHost, plugins: Sequence[Plugin], config: Config, search_path: Iterable[Path]
) -> Loader:
    """Load `plugins`, then `[job-manager] plugins`, in order; return the loader that finds plugins.

    Raises PluginError, which names the directive of the configuration.
    """
    loader = Loader(search_path, plugins)
    for plugin in plugins:
        await host.load(plugin)
    for index, directive in enumerate(config.job_manager.plugins):
        with named_directive(index):
            if directive.remove is not None:
                await host.remove(directive.remove)
            if directive.load is not None:
                plugin, path = host.find_code(loader, directive.load)
                await host.load(plugin, directive.conf, path)
    return loader


def _tell_lost(handle: Handle, names: Sequence[str]) -> None:
    """Log that plugins which were loaded while the job manager ran are not loaded again."""
    if names:
        text = f"{', '.join(names)}: loaded at run time, not loaded again with the job manager"
        handle.log(Level.NOTICE, f"{text}; [job-manager] plugins would do that")


class _Machine(Core[JobManagerTimer, JobManagerOwnInput, JobManagerOwnAction]):
    """The core for the runner; requests about plugins or to them go to `PluginMethods`."""

    def __init__(
        self,
        made: Made[JobManagerCore],
        host: PluginHost,
        notes: PluginNotes,
        methods: PluginMethods,
        is_busy: Callable[[], int],
    ) -> None:
        self._manager = made.core
        self._core = made.turns_with(host, lambda core, plugins: PluginTurns(core, plugins, notes))
        self._host = host
        self._methods = methods
        self._is_busy = is_busy

    @property
    def part(self) -> JobManagerCore:
        """The core itself, which has the state."""
        return self._manager

    @property
    def entered(self) -> dict[str, list[int]]:
        """By plugin: the jobs that have entered a state and have not left it."""
        return self._host.entered

    @property
    def is_asking(self) -> bool:
        """Whether a question to a plugin is open."""
        return self._host.is_asking

    def dump(self) -> Plain:
        """Return the state of the core."""
        return self._manager.dump()

    def start(self, now: float) -> Sequence[JobManagerAction]:
        return self._core.start(now)

    def turn(self, now: float, inputs: Sequence[JobManagerInput]) -> Sequence[JobManagerAction]:
        serve = self._methods.serve
        rest = [each for each in inputs if not (isinstance(each, Request) and serve(each))]
        actions = self._core.turn(now, rest) if rest else []
        if not self._is_busy():
            self._host.recount_at_rest()
        return actions
