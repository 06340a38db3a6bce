"""Calling functions of plugins: watched, timed and traced; their errors are caught."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from sys import getrecursionlimit, setrecursionlimit
from time import perf_counter
from typing import Any, Final

import trio

from flux_trio.jobtap.calls import Asking, HostServices, NoJobs, blame, note_of
from flux_trio.jobtap.catalogue import CUSTOM
from flux_trio.jobtap.errors import HandlerFailed, PluginLoop
from flux_trio.jobtap.failures import (
    NoAnswer,
    attempt,
    describe,
    failure_in,
    is_awaitable,
    is_interrupt,
)
from flux_trio.jobtap.loaded import Entry, Loaded
from flux_trio.jobtap.places import place_of
from flux_trio.jobtap.plain import STACK_CHARS_MAX, readable
from flux_trio.jobtap.tasks import Work, thinking
from flux_trio.jobtap.watchdog import BLOCKED_S, Watchdog, stepped
from flux_trio.messages import Level
from flux_trio.protocols import Jobs, JobView
from flux_trio.trace import Kind

HOOK: Final[str] = Kind.HOOK.value  # looked up once: every call is traced

failure_listeners: Final[ContextVar[tuple[Callable[[BaseException], object], ...]]] = ContextVar(
    "failure_listeners", default=()
)
"""Called with each error of a plugin of the hosts in this context: for tests of plugins."""


@contextmanager
def reporting_failures(report: Callable[[BaseException], object]) -> Iterator[None]:
    """Call `report`, too, with each error of a plugin in this block."""
    token = failure_listeners.set((*failure_listeners.get(), report))
    try:
        yield
    finally:
        failure_listeners.reset(token)


ends_with_loop: Final[ContextVar[bool]] = ContextVar("ends_with_loop", default=False)
"""Whether the hosts of this context call no handler any more after an endless loop: for worlds."""


class Caller:
    """Calls functions of plugins.

    `jobs` is set to the jobs of the job manager before the first question.
    """

    def __init__(self, given: HostServices, blocked_s: float = BLOCKED_S) -> None:
        self.given = given
        self.jobs: Jobs = NoJobs()
        self.watchdog = Watchdog(blocked_s, self._blocked, put_back=self._say_put_back)
        self.recursion_limit = getrecursionlimit()
        self.plugins: list[Loaded] = []  # in the order in which they are asked
        self.ends_with_loop = ends_with_loop.get()
        self._now, self._note_all = given.now, given.note_all
        self._is_traced = given.is_traced
        self._asking: Asking | None = None  # the question whose sync handler runs

    @property
    def asking(self) -> Asking | None:
        """The question whose handler runs now in this task, if any."""
        if self._asking is not None:
            return self._asking
        work = thinking.get()
        asking: Asking | None = None if work is None else work.asking
        return asking

    def timed(self, entry: Entry, view: JobView | None, arg: Any) -> Any:
        """Call a handler outside a question, trace the call and re-raise its error."""
        began, t_began = self.given.now(), perf_counter()
        problem = None
        try:
            return self.watched(entry, view, arg)
        except BaseException as error:
            problem = describe(error)
            raise
        finally:
            self._record(entry, entry.label, view, None, problem, began, t_began)

    def watched(self, entry: Entry, view: JobView | None, *args: Any) -> Any:
        """Call a function of a plugin while the watchdog watches; re-raise its error."""
        outer = self.watchdog.running
        self.watchdog.running = (entry, view)
        try:
            return entry.function(*args)
        finally:
            self.put_back()
            self.watchdog.running = outer

    def put_back(self) -> None:
        """Put the recursion limit back, if the plugin that ran just now has changed it."""
        if getrecursionlimit() != self.recursion_limit:
            setrecursionlimit(self.recursion_limit)
            problem = f"changed the recursion limit, which is {self.recursion_limit} again"
            self._blame(self.watchdog.running, problem)

    def _say_put_back(self, changed: list[str]) -> None:
        text = f"a plugin has changed {', '.join(changed)}: put back"
        self.given.log(Level.ERR, text)

    async def awaited(
        self, entry: Entry, view: JobView | None, awaitable: Awaitable[Any], work: Work
    ) -> Any:
        """Await an awaitable of a plugin, in its task, while the watchdog watches each step."""

        def step(begins: bool) -> None:
            if not begins:
                self.put_back()
            self.watchdog.running = (entry, view) if begins else None

        return await stepped(awaitable, step, lambda: work.is_canceled)

    async def answer_of(self, work: Work, limit_s: float) -> tuple[Any, BaseException | None]:
        """Return the value and the error of a task; after `limit_s` seconds there is no answer."""
        with trio.move_on_after(limit_s):
            await work.settled.wait()
        if work.settled.is_set():
            return work.value, work.error
        work.end()
        return None, NoAnswer(f"no answer in {limit_s:g} s")

    async def outcome(self, entry: Entry, arg: Any) -> tuple[Any, BaseException | None]:
        """Call a handler that may be async, with the plugin's deadline; return result and error."""
        owner = entry.owner
        began, t_began = self._now(), perf_counter()
        said, error = attempt(self.watched, entry, None, arg)
        if error is None and is_awaitable(said):
            work = owner.tasks.new(entry.label)
            work.start(self.awaited(entry, None, said, work))
            said, error = await self.answer_of(work, owner.deadline)
        problem = None if error is None else describe(error)
        self._record(entry, entry.label, None, None, problem, began, t_began)
        return said, error

    def start_task(self, loaded: Loaded, function: Callable[..., Any], args: Any) -> None:
        """Run a background task of a plugin; log its error, which ends only this task."""
        entry = Entry(loaded, f"task {getattr(function, '__name__', function)}", function, CUSTOM)
        work = loaded.tasks.new(entry.label)
        work.start(self._run_task(entry, args, work))

    async def _run_task(self, entry: Entry, args: Any, work: Work) -> None:
        loaded, began = entry.owner, self.given.now()
        awaitable, error = attempt(entry.function, *args)
        if error is None and not is_awaitable(awaitable):
            error = TypeError(f"expected an async function, got one that returned {awaitable!r}")
        if error is None:
            try:
                await self.awaited(entry, None, awaitable, work)
            except BaseException as raised:
                error = failure_in(raised)
                if is_interrupt(error):
                    raise
        if error is not None:
            text = f"plugin {loaded.name}: {entry.label} ended: {describe(error)}"
            stack = "".join(traceback.format_exception(error))
            self.given.log(Level.ERR, f"{text}\n{readable(stack, STACK_CHARS_MAX)}")
            _report(error, text)
            self._silence_after(error)
            self.note_failure(entry, error, began)

    def note_failure(self, entry: Entry, error: BaseException, began: float) -> None:
        """Put a failure of a plugin outside any question into the trace."""
        duration = self.given.now() - began
        note = note_of(entry.plugin, entry.label, None, None, describe(error), duration)
        self.given.note_all(HOOK, [note])

    def failed(self, entry: Entry, text: str, error: BaseException | None) -> None:
        """Log a failure of a plugin, with the place in the plugin's file."""
        text += place_of(entry.function, error, entry.owner.files)
        self.given.log(Level.ERR, text)
        _report(error, text)
        self._silence_after(error)

    def _silence_after(self, error: BaseException | None) -> None:
        """Call no handler any more if the error is an endless loop that ends all."""
        if self.ends_with_loop and isinstance(error, PluginLoop):
            for loaded in self.plugins:
                loaded.silence()

    def _record(
        self,
        entry: Entry,
        hook: str,
        view: JobView | None,
        result: Any,
        problem: str | None,
        began: float,
        t_began: float,
    ) -> tuple[float, float]:
        """Trace a call by the instance's clock, count it by the real clock; return both times."""
        ended, t_ended = self._now(), perf_counter()
        entry.spent(t_ended - t_began)
        jobid = None if view is None else view.id
        self._note_all(HOOK, [note_of(entry.plugin, hook, jobid, result, problem, ended - began)])
        return ended, t_ended

    def _blocked(self, running: tuple[Entry | str, JobView | None], stack: str) -> None:
        self._blame(running, f"blocked the instance without a checkpoint:\n{stack}")

    def _blame(self, running: tuple[Entry | str, JobView | None], problem: str) -> None:
        """Log what the code of a plugin did; `running` is the watchdog's mark of it."""
        entry, view = running
        text = (
            f"{entry} {problem}"
            if isinstance(entry, str)
            else blame(entry, entry.label, view, problem)
        )
        self.given.log(Level.ERR, text)


def _report(error: BaseException | None, text: str) -> None:
    """Tell tests of an error of a plugin, with `text` as a note."""
    listeners = failure_listeners.get()
    if not listeners:
        return
    if error is None or error.__traceback__ is None:
        error = HandlerFailed(text)
    else:
        BaseException.add_note(error, text)
    for listener in listeners:
        listener(error)
