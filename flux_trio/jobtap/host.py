"""The plugin host: the loaded plugins, and what ends with each of them.

A plugin is loaded completely or not at all: first its handlers are checked, then its conf.update
may refuse. After a plugin is removed, nothing of it is called again: its tasks have ended or were
abandoned, its leave handlers have been called, and its data is deleted.
"""

from __future__ import annotations

import gc
import re
import reprlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import trio

from flux_trio.config import Config
from flux_trio.cores.pages import page_size
from flux_trio.editions.explain_requests import PluginReason
from flux_trio.formats import parse_duration
from flux_trio.formats.glob import glob_matches, is_glob
from flux_trio.jobtap.calls import blame
from flux_trio.jobtap.catalogue import CUSTOM, hook_of
from flux_trio.jobtap.counter import Tracker, recount
from flux_trio.jobtap.dispatch import Dispatcher, PendingQuestion
from flux_trio.jobtap.failures import attempt, describe
from flux_trio.jobtap.host_services import HostServices
from flux_trio.jobtap.loaded import Entry, Loaded, PluginMethod, read_handlers
from flux_trio.jobtap.loading import Loader, forget_code, name_meant
from flux_trio.jobtap.loop_watch import LOOK_S
from flux_trio.jobtap.plugin import Plugin
from flux_trio.jobtap.plugin_handle import PluginHandle
from flux_trio.jobtap.tasks import HostTasks, PluginTasks, TasksOfPlugin, Work, end_all
from flux_trio.jobtap.values import (
    ANSWER_BYTES_MAX,
    NotAllowed,
    PluginError,
    ServiceRequest,
    plain,
    readable,
)
from flux_trio.messages import Errno, FluxError, Level, topics
from flux_trio.protocols import (
    CONF_UPDATE,
    EXPLAIN,
    PRIORITY_GET,
    QUERY,
    AskHook,
    HookAnswer,
    HookArgs,
    JobView,
    PluginReplayed,
    PluginsChanged,
    Unavailable,
)
from flux_trio.trace import Kind

REMOVED: Final = "removed"
"""In the trace, the hook of a call of `Plugin.removed` that has failed."""
BUILTIN: Final = "builtin"  # the path of a plugin that is not of a file, as of a module
RECOUNT_S: Final = 60.0
RECOUNT_JOBS_MAX: Final = 1000  # about 5 ms
ALL: Final = "all"  # as a pattern: every plugin that is not builtin
ORDERS: Final = ("none", "state", "-state")
"""The orders in which active jobs are presented: oldest first, by state, by state in reverse."""


class Removed(NamedTuple):
    """Plugins that were removed, and which of their tasks were abandoned, each by name."""

    plugins: list[str]
    abandoned: list[str]


class PluginHost(Dispatcher):
    """The loaded plugins, in the order in which they are asked.

    What the host does meanwhile runs in `nursery` (see `open_host`). A call that holds the whole
    instance from one look of the watch to the next, `look_s` seconds later, is named.
    """

    def __init__(
        self,
        nursery: HostTasks,
        given: HostServices,
        config: Config | None = None,
        look_s: float = LOOK_S,
        make_tasks: Callable[[str, HostTasks, Callable[[str], None]], PluginTasks] = TasksOfPlugin,
    ) -> None:
        super().__init__(given, config or Config(), look_s)
        self.nursery = nursery
        self._make_tasks = make_tasks
        self._methods: dict[str, PluginMethod] = {}  # by topic
        self._tickets = 0
        self._recounted = given.now()
        self._use(self.config)
        self._replays: dict[int, trio.Event] = {}

    # --- loading

    async def load(
        self,
        plugin: Plugin,
        conf: dict[str, Any] | None = None,
        path: str = "",
        *,
        remove: str | None = None,
    ) -> Removed:
        """Add `plugin` behind those that are loaded. Raises PluginError, naming the rule.

        Without `conf` the plugin keeps the conf that it was made with. Plugins that match the
        pattern `remove` are removed when the new one has accepted its configuration. `replay`
        presents the active jobs to the new plugin.
        """
        gone = [] if remove is None else self._meant(remove)
        if any(each.plugin is plugin for each in gone):  # the object cannot be loaded twice
            removed = await self._remove(gone)
            await self._enter(plugin, conf, path, [])
        else:
            removed = await self._enter(plugin, conf, path, gone)
        del gone  # else it keeps the plugins whose memory is given back
        _give_back(removed)
        return removed

    async def _enter(
        self, plugin: Plugin, conf: dict[str, Any] | None, path: str, gone: list[Loaded]
    ) -> Removed:
        """Configure `plugin`, then put it in the place of the plugins in `gone`."""
        loaded, error = attempt(self._make, plugin, conf, path)
        if isinstance(error, PluginError):
            raise error
        if error is not None:
            raise PluginError(f"{plugin!r} is not a plugin: {describe(error)}")
        if any(each.name == plugin.name for each in self.plugins if each not in gone):
            raise PluginError(f"plugin {plugin.name} is already loaded")
        if not loaded.is_builtin:
            self.watch.start()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._not_entered, loaded, gone)
            config = await self._configure(loaded)
            removed = await self._remove(gone)
            if config is not self.config:  # it has changed while tasks of `gone` ended
                await self._configure(loaded)
            self._call_loaded(loaded)
            undo.pop_all()
        self.plugins.append(loaded)
        self._changed()
        return removed

    async def _not_entered(self, loaded: Loaded, gone: list[Loaded]) -> None:
        await self._end([loaded])
        if any(each.is_removed for each in gone):
            self.announce()

    @property
    def is_asking(self) -> bool:
        """Whether a question is open, or active jobs are being presented to a plugin."""
        return bool(self._awaited or self._replays)

    @property
    def entered(self) -> dict[str, list[int]]:
        """By name of each plugin that follows states: the jobs that entered one, in order."""
        return {
            each.name: each.tracker.entered for each in self.plugins if each.tracker is not None
        }

    def find_code(self, loader: Loader, what: str) -> tuple[Plugin, str]:
        """Find a plugin (`Loader.find`) while the watch looks at its file's code."""
        self.watch.start()
        outer, self.watch.running = self.watch.running, (f"the file of plugin {what}", None)
        try:
            return loader.find(what)
        finally:
            self.watch.running = outer

    def _make(self, plugin: Plugin, conf: dict[str, Any] | None, path: str) -> Loaded:
        plugin.name = plugin.name or _name_of_class(plugin)
        loaded = Loaded(plugin, read_handlers(plugin), path)
        handle = PluginHandle(self, loaded)
        loaded.job_host = handle
        say = partial(self.given.log, Level.ERR)
        loaded.tasks = self._make_tasks(plugin.name, self.nursery, say)
        enter, leave, counters = loaded.handlers.of_states
        follows = enter or leave or counters
        loaded.tracker = Tracker(enter, leave, counters, handle) if follows else None
        plugin.conf = dict(plugin.conf if conf is None else conf)
        plugin._jobtap = handle
        return loaded

    async def replay(self, name: str, order: str = "none") -> None:
        """Present every active job to a plugin; then all priorities are computed again.

        `order` is one of ORDERS.
        """
        self._tickets += 1
        done = self._replays[self._tickets] = trio.Event()
        self.given.post(PluginsChanged(name, order, self._tickets))
        await done.wait()

    def replayed(self, action: PluginReplayed) -> None:
        """End the `replay` that the job manager has finished."""
        done = self._replays.pop(action.ticket, None)
        if done is not None:
            done.set()

    async def remove(self, pattern: str) -> Removed:
        """Remove the plugins that match a name or glob.

        A builtin matches only a pattern that begins with a period. `all` means every plugin that is
        not builtin, and never fails; any other pattern without a match raises PluginError. The
        caller then calls `announce`, or loads a plugin in their place.
        """
        removed = await self._remove(self._meant(pattern))
        _give_back(removed)
        return removed

    def _meant(self, pattern: str) -> list[Loaded]:
        """Return the plugins that match. Raises PluginError if no plugin does."""
        name = name_meant(pattern)
        found = [each for each in self.plugins if _is_meant(each, name)]
        if not found and pattern != ALL:
            raise PluginError(f"no plugin matches {pattern}")
        return found

    async def _remove(self, gone: list[Loaded]) -> Removed:
        for loaded in gone:
            self.plugins.remove(loaded)
        self._changed()
        removed = Removed([loaded.name for loaded in gone], await self._end(gone))
        for loaded in gone:
            forget_code(loaded.plugin)
        return removed

    def announce(self) -> None:
        """Tell the job manager that plugins were removed: it asks again about held jobs."""
        self.given.post(PluginsChanged())

    def _changed(self) -> None:
        """Compute again the chains and methods from the list of plugins."""
        self.look_again()
        self._methods = {
            f"{topics.JOB_MANAGER}.{loaded.name.lstrip('.')}.{method.name}": method
            for loaded in self.plugins
            for method in loaded.methods()
        }

    def names(self, *, builtins: bool = False) -> list[str]:
        """Return the names, in the order in which the plugins are asked."""
        return [each.name for each in self.plugins if builtins or not each.is_builtin]

    async def query(self, name: str) -> dict[str, Any]:
        """Return the plugin's own data, with its name, path, hook times and counters.

        Raises PluginError if no plugin has this name, or if the query fails.
        """
        loaded = self.find(name)
        asked = await self._put(loaded, QUERY, None)
        if asked is not None and asked.error is not None:
            raise PluginError(asked.error)
        own = asked.said or {} if asked is not None else {}
        counters, error = attempt(loaded.counters)
        try:
            found = plain(own, "answer", ANSWER_BYTES_MAX)
        except NotAllowed as unfit:
            error = unfit
        if error is not None:
            raise PluginError(f"plugin {name} failed in {QUERY}: {describe(error)}")
        path = loaded.path or BUILTIN
        found |= {"name": loaded.name, "path": path, "hooks": loaded.statistics()}
        return found | ({"counters": counters} if counters else {})

    async def explain(self, view: JobView) -> list[PluginReason]:
        """Ask each plugin for the job's priority and for a sentence about it; do nothing else.

        Operations that handlers call are not performed.
        """
        found: list[PluginReason] = []
        for loaded in list(self.plugins):
            ranked = await self._put(loaded, PRIORITY_GET, None, view)
            explained = await self._put(loaded, EXPLAIN, None, view)
            priority = None if ranked is None else ranked.priority
            said = PluginReason(
                loaded.name,
                priority=priority if isinstance(priority, int) else None,
                unavailable=isinstance(priority, Unavailable),
                text=(explained.said or "") if explained is not None else "",
                error="; ".join(each.error for each in (ranked, explained) if each and each.error),
            )
            if said != PluginReason(loaded.name):
                found.append(said)
        return found

    def find(self, name: str) -> Loaded:
        """Return the loaded plugin of this name. Raises PluginError if it is not loaded."""
        for loaded in self.plugins:
            if loaded.name == name:
                return loaded
        raise PluginError(f"plugin {name} is not loaded")

    def method(self, topic: str) -> PluginMethod | None:
        """Return the plugin's method with this topic, if any."""
        return self._methods.get(topic)

    async def serve(self, method: PluginMethod, request: ServiceRequest) -> dict[str, Any]:
        """Call a plugin's method and return its answer. Raises FluxError."""
        owner = method.owner
        entry = owner.entry(f"service {method.name}", method.function, CUSTOM)
        if not owner.is_removed:
            said, error = await self.outcome(entry, request)
        if owner.is_removed:
            raise FluxError(Errno.ENOSYS, f"plugin {owner.name} was removed")
        if isinstance(error, FluxError) and _is_sendable(error):
            raise FluxError(error.errnum, readable(error.text))
        answer: dict[str, Any] | None = None
        if error is None:
            answer, error = attempt(_answer, said)  # a value may have code of its own
        if error is None:
            assert answer is not None
            return answer
        problem = str(error) if isinstance(error, NotAllowed) else describe(error)
        text = blame(entry, entry.label, None, problem)
        self.failed(entry, text, error)
        raise FluxError(Errno.EINVAL, text)

    def ask(self, question: AskHook) -> HookAnswer | None:
        answer = super().ask(question)
        if answer is not None and question.topic == CONF_UPDATE:
            self._adopt(question, answer)
        return answer

    # --- outside the job manager's turns

    def recount_at_rest(self) -> None:
        """Recount if few jobs count and no question is open; at most every RECOUNT_S seconds."""
        now = self.given.now()
        if now < self._recounted + RECOUNT_S or self.is_asking:
            return
        self._recounted = now
        trackers = [each.tracker for each in self.plugins if each.tracker is not None]
        if sum(len(tracker.entered) for tracker in trackers) <= page_size(RECOUNT_JOBS_MAX):
            self.recount()

    def recount(self) -> int:
        """Recount all declared counters, log and correct differences; return their number."""
        differences = 0
        for loaded in self.plugins:
            if loaded.tracker is None or not loaded.tracker.counters:
                continue
            counts = recount(loaded.tracker, self.jobs, loaded.job_host)
            for text in counts.failures + counts.differences:
                self.given.log(Level.ERR, f"plugin {loaded.name}: {text}")
            data = {"declared": counts.declared, "recounted": counts.recounted}
            self.given.note_all(Kind.COUNTERS, [{"plugin": loaded.name, **data}])
            differences += len(counts.differences)
        return differences

    async def close(self) -> None:
        """End the tasks of all plugins, and tell the plugins that they are removed."""
        try:
            if names := await end_all(_tasks_of(self.plugins)):
                self.given.abandon(names)
        finally:
            self.watch.stop()
            self.call_removed()

    def call_removed(self) -> None:
        """Tell all plugins that they are removed; their watch goes on, if others share it."""
        for loaded in self.plugins:
            self._call_removed(loaded)

    async def _configure(self, loaded: Loaded) -> Config:
        """Ask conf.update, again if the configuration changes meanwhile; return the last one."""
        config = None
        while config is not self.config:
            config = self.config
            asked = await self._put(loaded, CONF_UPDATE, config)
            if asked is not None and asked.is_decided:
                raise PluginError(asked.error or asked.reject)
        return config

    def _call_loaded(self, loaded: Loaded) -> None:
        entry = Entry(loaded, "loaded", loaded.plugin.loaded, CUSTOM)
        _, error = attempt(self.watched, entry, None)
        if error is not None:
            raise PluginError(f"plugin {loaded.name} failed when it was loaded: {describe(error)}")

    def _answered(self, pending: PendingQuestion, answer: HookAnswer) -> None:
        if pending.question.topic == CONF_UPDATE:
            self._adopt(pending.question, answer)
        super()._answered(pending, answer)

    def _adopt(self, question: AskHook, answer: HookAnswer) -> None:
        """Use the configuration, unless a plugin has refused it."""
        config = question.args
        if isinstance(config, Config) and answer.error is None and answer.reject is None:
            self._use(config)

    def _use(self, config: Config) -> None:
        self.config = config
        self.watch.limit_s = parse_duration(config.job_manager.plugin_loop_limit)

    async def _end(self, gone: list[Loaded]) -> list[str]:
        """End plugins; nothing of them is called afterwards.

        Returns the names of their tasks that were abandoned.
        """
        for loaded in gone:
            loaded.is_removed = True
        abandoned = await end_all(_tasks_of(gone))
        for loaded in gone:
            self.forget(loaded)
            self._call_removed(loaded)
        return abandoned

    def _call_removed(self, loaded: Loaded) -> None:
        entry = Entry(loaded, REMOVED, loaded.plugin.removed, CUSTOM)
        began = self.given.now()
        _, error = attempt(self.watched, entry, None)
        if error is not None:
            text = f"plugin {loaded.name} failed when it was removed: {describe(error)}"
            self.failed(entry, text, error)
            self.note_failure(entry, error, began)
        loaded.plugin._jobtap = None
        loaded.is_gone = True

    async def _put(
        self, loaded: Loaded, topic: str, args: HookArgs, view: JobView | None = None
    ) -> PendingQuestion | None:
        """Ask one plugin a question that changes no job; None if it has no handler, or is gone."""
        entry = None if loaded.is_removed else loaded.find(topic)
        if entry is None:
            return None
        ended = trio.Event()

        def done(_pending: PendingQuestion, _answer: HookAnswer) -> None:
            ended.set()

        pending = PendingQuestion(AskHook(0, topic, view, args), hook_of(topic), [entry], done)
        if self._advance(pending) is None:
            await ended.wait()
        return pending


@asynccontextmanager
async def open_host(
    given: HostServices, config: Config | None = None, look_s: float = LOOK_S
) -> AsyncIterator[PluginHost]:
    """Open a host without plugins; at the end of the block their tasks end or are abandoned."""
    host = None
    try:
        async with trio.open_nursery() as nursery:
            host = PluginHost(nursery, given, config, look_s)
            yield host
            nursery.cancel_scope.cancel()
    finally:
        if host is not None:
            await host.close()


def _give_back(removed: Removed) -> None:
    """Give the memory of removed plugins back: a class and its module are parts of cycles."""
    if removed.plugins:
        gc.collect()


def _tasks_of(plugins: Iterable[Loaded]) -> list[Work]:
    return [work for loaded in plugins for work in loaded.tasks.running]


def _is_meant(loaded: Loaded, pattern: str) -> bool:
    if pattern == ALL:
        return not loaded.is_builtin
    if loaded.is_builtin and not pattern.startswith("."):
        return False
    return glob_matches(pattern, loaded.name) if is_glob(pattern) else loaded.name == pattern


def _answer(said: Any) -> dict[str, Any]:
    """Return the value of a method as a payload."""
    if not isinstance(said, dict | None):
        raise NotAllowed(f"expected a dict, got {reprlib.repr(said)}")
    return plain(said or {}, "answer", ANSWER_BYTES_MAX)


def _is_sendable(error: FluxError) -> bool:
    """Return whether the error has a number and a text; a plugin may have given it other types."""
    return isinstance(error.errnum, int) and error.errnum > 0 and isinstance(error.text, str)


def _name_of_class(plugin: Plugin) -> str:
    """Return the name of the class with hyphens: HoldUntil → hold-until."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(plugin).__name__).lower()
