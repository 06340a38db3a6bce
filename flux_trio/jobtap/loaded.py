"""A loaded plugin: its handlers by topic with what their calls took, and what is kept for it.

It is what the plugin sees as its host, and what the handles of its jobs ask.
"""

from __future__ import annotations

import reprlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from flux_trio.clock import passing, wait_s_max
from flux_trio.config import Config
from flux_trio.formats import FormatError, ResourceSet
from flux_trio.formats.glob import glob_matches, is_glob
from flux_trio.jobtap.catalogue import Hook, hook_of, takes
from flux_trio.jobtap.errors import NotAllowed
from flux_trio.jobtap.handlers import Function, Handlers
from flux_trio.jobtap.job import Job
from flux_trio.jobtap.plain import ANSWER_BYTES_MAX, plain, readable
from flux_trio.jobtap.plugin import Plugin
from flux_trio.jobtap.tracking import Tracker
from flux_trio.messages import Level
from flux_trio.protocols import (
    DEPENDENCY_PREFIX,
    NEW,
    STATE_TOPICS,
    UPDATED,
    AskHook,
    JobState,
    JobView,
    Operation,
    Reprioritize,
)
from flux_trio.protocols.operations import Queued

if TYPE_CHECKING:
    from flux_trio.jobtap.host import PluginHost

_ENTRIES_MAX: Final = 4096  # topics of updates and events are other people's words
_SCHED: Final = STATE_TOPICS[JobState.SCHED]
_STATE_HANDLER: Final = Hook("enter or leave", "A job comes into a state, or leaves it.")
_STATE_HOOKS: Final = frozenset(STATE_TOPICS.values())


class Entry:
    """One handler of a plugin for one topic, and how long its calls took, in seconds."""

    __slots__ = (
        "count",
        "extra",  # takes more than the job
        "function",
        "label",  # its topic, or what else it is called for
        "longest",
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
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    def spent(self, seconds: float) -> None:
        """One more call."""
        self.count += 1
        self.total += seconds
        if seconds > self.longest:
            self.longest = seconds


@dataclass(frozen=True, slots=True)
class PluginMethod:
    owner: Loaded
    name: str
    function: Function
    owner_only: bool


class Loaded:
    def __init__(self, host: PluginHost, plugin: Plugin, handlers: Handlers, path: str) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self.path = path
        self.handlers = handlers
        for counter in handlers.counters:
            counter.clear()
        self._entries: dict[tuple[str, Function], Entry] = {}  # all that were looked up
        self.tracker = Tracker(self) if handlers.follows_states else None
        self.nursery: trio.Nursery
        self.ended = trio.Event()  # its nursery has
        self.is_removed = False
        self.deadline = plugin.deadline
        self._host = host
        self._data: dict[int, dict[str, Any]] = {}
        self._found: dict[str, Entry | None] = {}  # by topic

    @property
    def is_builtin(self) -> bool:
        """Spelled with a period: hidden, and not removed by a glob."""
        return self.name.startswith(".")

    @property
    def is_ending(self) -> bool:
        """It is removed, or the instance ends: its tasks are cancelled."""
        return self.is_removed or self._host.is_ending

    # --- its handlers

    def find(self, topic: str) -> Entry | None:
        """The first handler that matches, if any."""
        try:
            return self._found[topic]
        except KeyError:
            if len(self._found) > _ENTRIES_MAX:
                self._found.clear()
            entry = self._found[topic] = self._find(topic)
            return entry

    def chained(self, topic: str) -> Iterator[Entry]:
        """What of it is called for a topic, in order."""
        if self.tracker is not None and (topic == NEW or topic in _STATE_HOOKS):
            yield self.entry("states", self.tracker.moved, _STATE_HANDLER)
        if self.tracker is not None and self.tracker.counters and topic == UPDATED:
            yield self.entry("counters", self.tracker.updated, _STATE_HANDLER)
        if (entry := self.find(topic)) is not None:
            yield entry

    def entry(self, label: str, function: Function, hook: Hook) -> Entry:
        """What is known of the calls of `label`."""
        entry = self._entries.get((label, function))
        if entry is None:
            entry = self._entries[label, function] = Entry(self, label, function, hook)
        return entry

    def statistics(self) -> dict[str, dict[str, float]]:
        """By hook: the calls there were, and their seconds in all and at most."""
        found: dict[str, dict[str, float]] = {}
        for entry in self._entries.values():
            if not entry.count:
                continue
            told = found.setdefault(entry.label, {"count": 0, "total": 0.0, "max": 0.0})
            told["count"] += entry.count
            told["total"] += entry.total
            told["max"] = max(told["max"], entry.longest)
        return found

    def counters(self) -> dict[str, dict[str, float]]:
        """Those it has declared, by name: amounts by key."""
        found = [] if self.tracker is None else self.tracker.counters
        return {counter.name: counter.shown() for counter in found}

    def methods(self) -> Iterator[PluginMethod]:
        for name, (function, owner_only) in self.handlers.services.items():
            yield PluginMethod(self, name, function, owner_only)

    def _find(self, topic: str) -> Entry | None:
        for pattern, function in self.handlers.topics:
            if _matches(topic, pattern):
                hook = hook_of(topic)
                # topics of a family are other people's words: who takes any is known by the glob
                label = pattern if hook.prefix and is_glob(pattern) else topic
                return self.entry(label, function, hook)
        return None

    # --- what job handles ask (`Keeper`)

    def do(self, operation: Operation) -> None:
        asking = self._host.asking
        if asking is None:
            self._host.given.tell(operation)
        else:
            asking.do(operation)

    def queued(self, view: JobView) -> Queued:
        yield from view.queued()
        asking = self._host.asking
        if asking is not None:
            yield from asking.posts_to(view.id)

    def allocate(self, question: AskHook | None, resource_set: dict[str, Any]) -> None:
        asking = self._host.asking
        if asking is None or asking.question is not question or question.topic != _SCHED:
            raise NotAllowed(f"a job is allocated in its {_SCHED} only")
        try:
            ResourceSet.parse(resource_set, "R")
        except FormatError as error:
            raise NotAllowed(str(error)) from None
        asking.resource_set = resource_set

    def data_of(self, view: JobView) -> dict[str, Any]:
        data = self._data.get(view.id)
        if data is None:
            data = {}
            if view.state != JobState.INACTIVE and not self.is_removed:
                self._data[view.id] = data
        return data

    def subscribe(self, view: JobView) -> None:
        if view.state == JobState.INACTIVE:
            raise NotAllowed("an inactive job has no more events")
        self._host.subscribers.setdefault(view.id, set()).add(self.name)

    def unsubscribe(self, jobid: int) -> None:
        names = self._host.subscribers.get(jobid, set())
        names.discard(self.name)
        if not names:
            self._host.subscribers.pop(jobid, None)

    def forget(self, view: JobView) -> None:
        """The job is gone, and with it who subscribed to it."""
        if self.tracker is not None:
            self._leave([view])
        self._data.pop(view.id, None)

    def forget_all(self) -> None:
        """The plugin is gone: it leaves every state it was told of, and nothing is kept for it."""
        if self.tracker is not None:
            views = [self._host.jobs.get(jobid) for jobid in self.tracker.entered]
            self._leave([view for view in views if view is not None])
        self._data.clear()
        for jobid in list(self._host.subscribers):
            self.unsubscribe(jobid)

    def _leave(self, views: list[JobView]) -> None:
        assert self.tracker is not None
        for view in views:
            for error in self.tracker.gone(view):
                self._host.failed(f"plugin {self.name} failed to leave {view.state.name}", error)

    # --- what its tracker asks

    def run_state_handler(self, label: str, function: Function, job: Job) -> BaseException | None:
        """Call an enter or leave handler; what it raised."""
        entry = self.entry(label, function, _STATE_HANDLER)
        said, error = self._host.attempt(self._host.timed, entry, job.view, job)
        if said is not None:
            return TypeError(f"{label}: expected None, got {reprlib.repr(said)}")
        return error

    def attempt(self, function: Function, *args: Any) -> BaseException | None:
        """Call part of the plugin; what it raised."""
        return self._host.attempt(function, *args)[1]

    # --- what the plugin asks (`Host`)

    @property
    def owner(self) -> int:
        return self._host.given.owner

    @property
    def users(self) -> Any:
        return self._host.given.users

    @property
    def config(self) -> Config:
        return self._host.config

    @property
    def jobs(self) -> Jobs:
        return Jobs(self._host, self)

    def now(self) -> float:
        return self._host.given.now()

    def passed(self) -> float:
        return passing(self._host.given.now)()

    def clock_look_s(self) -> float:
        return wait_s_max(self._host.given.now)

    def log(self, level: int, text: str) -> None:
        self._host.given.log(Level(level), readable(f"{self.name}: {text}"))

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        if self.is_removed:
            raise NotAllowed(f"plugin {self.name} is removed")
        if not callable(function):
            raise TypeError(f"start_soon expected an async function, not called, got {function!r}")
        self.nursery.start_soon(self._host.run_task, self, function, args)

    def call(self, topic: str, args: Any) -> Any:
        return self._host.call(topic, args)

    async def rpc(self, topic: str, payload: dict[str, Any] | None) -> dict[str, Any]:
        asked = None if payload is None else plain(payload, topic, ANSWER_BYTES_MAX)
        return await self._host.given.rpc(topic, asked)

    def reprioritize_all(self) -> None:
        self.do(Reprioritize(self.name))


class Jobs:
    """Jobs by id, as handles of one plugin (`JobLookup`)."""

    def __init__(self, host: PluginHost, owner: Loaded) -> None:
        self._host = host
        self._owner = owner

    def get(self, jobid: int) -> Job | None:
        view = self._host.jobs.get(jobid)
        return None if view is None else Job(self._owner, view, None)

    def active(self) -> Iterator[Job]:
        for view in self._host.jobs.active():
            yield Job(self._owner, view, None)

    def result(self, jobid: int) -> str | None:
        job = self.get(jobid)
        return None if job is None else job.result


def _matches(topic: str, pattern: str) -> bool:
    if not is_glob(pattern):
        return topic == pattern
    # who handles every hook of a job does not thereby know every scheme of dependencies
    if topic.startswith(DEPENDENCY_PREFIX) and not pattern.startswith(DEPENDENCY_PREFIX):
        return False
    return glob_matches(pattern, topic)
