"""What a loaded plugin can use: the instance, its jobs, and operations on them."""

from __future__ import annotations

import reprlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from flux_trio.clock import passing, wait_s_max
from flux_trio.config import Config
from flux_trio.formats import FormatError, ResourceSet
from flux_trio.jobtap.decorators import Function
from flux_trio.jobtap.failures import attempt, place_of
from flux_trio.jobtap.host_services import HostServices
from flux_trio.jobtap.job import Job, JobHost
from flux_trio.jobtap.loaded import STATE_HANDLER, Entry, Loaded
from flux_trio.jobtap.plugin import Plugin
from flux_trio.jobtap.question import PendingAnswer
from flux_trio.jobtap.values import ANSWER_BYTES_MAX, NotAllowed, plain, readable
from flux_trio.messages import Level
from flux_trio.protocols import STATE_TOPICS, AskHook, JobState, JobView, Operation, Reprioritize
from flux_trio.protocols import Jobs as JobsOfManager
from flux_trio.protocols.operations import Queued

_SCHED: Final = STATE_TOPICS[JobState.SCHED]


class HandleHost(Protocol):
    """What the handle of a plugin uses of the plugin host."""

    given: HostServices
    config: Config
    jobs: JobsOfManager

    @property
    def pending_question(self) -> PendingAnswer | None: ...
    def keep(self) -> None: ...
    def look_again(self) -> None: ...
    def subscribe(self, jobid: int, plugin: str) -> None: ...
    def unsubscribe(self, jobid: int, plugin: str) -> None: ...
    def timed(self, entry: Entry, view: JobView | None, arg: Any) -> Any: ...
    def start_task(self, loaded: Loaded, function: Function, args: Any) -> None: ...
    def call(self, topic: str, args: Any) -> Any: ...


class PluginHandle:
    """One plugin's `Host`, the `JobHost` of its jobs, and the `StateRunner` of its tracker."""

    def __init__(self, host: HandleHost, loaded: Loaded) -> None:
        self._host = host
        self._loaded = loaded
        self._thread = threading.get_ident()

    def _check_thread(self) -> None:
        """Raise NotAllowed in another thread than the job manager's.

        What wakes a task of Trio there is half done when it fails, and nobody wakes the task again.
        """
        if threading.get_ident() != self._thread:
            raise NotAllowed(
                f"plugin {self._loaded.name}: expected a call in the job manager's thread, got one"
                f" in {threading.current_thread().name}: use trio.from_thread.run_sync there"
            )

    # --- what job handles ask (`JobHost`)

    @property
    def plugin(self) -> Plugin:
        return self._loaded.plugin

    def do(self, operation: Operation) -> None:
        self._check_is_there()
        pending = self._host.pending_question
        if pending is None:
            self._host.given.post(operation)
        else:
            pending.do(operation)

    def _check_is_there(self) -> None:
        """Raise NotAllowed for a plugin that is gone: a task of it was abandoned and goes on."""
        self._check_thread()
        if self._loaded.is_gone:
            raise NotAllowed(f"plugin {self._loaded.name} is removed")

    def current(self, view: JobView) -> JobView | None:
        found = self._host.jobs.get(view.id)
        if found is not None:
            return found
        pending = self._host.pending_question
        return view if pending is not None and pending.is_about(view.id) else None

    def queued(self, view: JobView) -> Queued:
        yield from view.queued()
        pending = self._host.pending_question
        if pending is not None:
            yield from pending.posts_to(view.id)

    def allocate(self, question: AskHook | None, resource_set: dict[str, Any]) -> None:
        self._check_thread()
        pending = self._host.pending_question
        if pending is None or pending.question is not question or question.topic != _SCHED:
            raise NotAllowed(f"a job is allocated in its {_SCHED} only")
        try:
            ResourceSet.parse(resource_set, "R")
        except FormatError as error:
            raise NotAllowed(str(error)) from None
        pending.resource_set = resource_set

    def data_of(self, view: JobView) -> dict[str, Any]:
        data = self._loaded.data.get(view.id)
        if data is None:
            data = {}
            if self._is_active(view) and not self._loaded.is_removed:
                self._loaded.data[view.id] = data
                self._host.keep()
        return data

    def subscribe(self, view: JobView) -> None:
        self._check_is_there()
        if not self._is_active(view):
            raise NotAllowed("an inactive job has no more events")
        self._host.subscribe(view.id, self._loaded.name)

    def _is_active(self, view: JobView) -> bool:
        """Return whether the job is active now; a plugin may have kept an old view of it."""
        now = self.current(view)
        return now is not None and now.state != JobState.INACTIVE

    def unsubscribe(self, jobid: int) -> None:
        self._check_thread()
        self._host.unsubscribe(jobid, self._loaded.name)

    # --- what its tracker asks

    def run_state_handler(self, label: str, function: Function, job: Job) -> BaseException | None:
        """Call an enter or leave handler; return its error."""
        entry = self._loaded.entry(label, function, STATE_HANDLER)
        said, error = attempt(self._host.timed, entry, job.view, job)
        if said is not None:
            return TypeError(
                f"{label}: expected None, got {reprlib.repr(said)}{place_of(function)}"
            )
        return error

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
        self._check_thread()
        self._host.given.log(Level(level), readable(f"{self._loaded.name}: {text}"))

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        self._check_thread()
        if self._loaded.is_removed:
            raise NotAllowed(f"plugin {self._loaded.name} is removed")
        if not callable(function):
            raise TypeError(f"start_soon expected an async function, not called, got {function!r}")
        self._host.start_task(self._loaded, function, args)

    def call(self, topic: str, args: Any = None) -> Any:
        self._check_thread()
        return self._host.call(topic, args)

    async def rpc(self, topic: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        self._check_thread()
        asked = None if payload is None else plain(payload, topic, ANSWER_BYTES_MAX)
        return await self._host.given.rpc(topic, asked)

    def listen(self, topic: str, *, wanted: bool) -> None:
        self._check_thread()
        patterns = [pattern for pattern, _ in self._loaded.handlers.topics]
        if topic not in patterns:
            raise NotAllowed(f"no handler of {topic!r}: there are {', '.join(patterns) or 'none'}")
        if self._loaded.listen(topic, wanted=wanted):
            self._host.look_again()

    def reprioritize_all(self) -> None:
        self.do(Reprioritize(self._loaded.name))


class Jobs:
    """`JobLookup` for one plugin."""

    def __init__(self, host: HandleHost, job_host: JobHost) -> None:
        self._host = host
        self._job_host = job_host

    def get(self, jobid: int) -> Job | None:
        view = self._host.jobs.get(jobid)
        return None if view is None else Job(view, None, self._job_host)

    def active(self) -> Iterator[Job]:
        for view in self._host.jobs.active():
            yield Job(view, None, self._job_host)

    def result(self, jobid: int) -> str | None:
        job = self.get(jobid)
        return None if job is None else job.result
