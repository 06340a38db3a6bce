"""Calling functions of plugins: watched, timed and traced; their errors are caught."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

import trio

from flux_trio.formats import format_fluid
from flux_trio.jobtap.catalogue import CUSTOM
from flux_trio.jobtap.failures import NoAnswer, attempt, describe, is_awaitable, place_of
from flux_trio.jobtap.host_services import HostServices, NoJobs
from flux_trio.jobtap.loaded import Entry, Loaded
from flux_trio.jobtap.loop_watch import LOOK_S, LoopWatch
from flux_trio.jobtap.tasks import Work
from flux_trio.jobtap.values import STACK_CHARS_MAX, HandlerFailed, readable, shown
from flux_trio.messages import Level
from flux_trio.protocols import Jobs, JobView
from flux_trio.trace import Kind

CANCELED: Final = "canceled"
"""The error, in the trace, of a call whose answer is no longer awaited; it is not a failure."""


class Call(NamedTuple):
    """One call of a handler: how many operations there were before it, and when it began."""

    entry: Entry
    mark: int
    began: float
    t_began: float

    @property
    def times(self) -> tuple[float, float]:
        """When the call began, by the instance's clock and by the real clock."""
        return self.began, self.t_began


def note_of(
    plugin: str, hook: str, jobid: int | None, result: Any, error: str | None, duration: float
) -> dict[str, Any]:
    """Return the trace record of a call; `duration` is in seconds."""
    return {
        "plugin": plugin,
        "hook": hook,
        "id": jobid,
        "result": result,
        "error": error,
        "duration": duration,
    }


def notes_of_many(
    entry: Entry, hook: str, views: Sequence[JobView], said: Sequence[Any], duration: float
) -> list[dict[str, Any]]:
    """Return the trace records of a call about many jobs; `duration` is for each of them."""
    common = note_of(entry.plugin, hook, None, None, None, duration)
    return [
        {**common, "id": view.id, "result": value if type(value) is int else shown(value)}
        for view, value in zip(views, said, strict=True)
    ]


def blame(entry: Entry, hook: str, view: JobView | None, problem: str) -> str:
    """Return a text that names plugin, hook, job and problem."""
    return f"plugin {entry.owner.name} failed in {hook}{of_job(view)}: {problem}"


def of_job(view: JobView | None) -> str:
    """Return a text that names the job behind what is done for it, if there is one."""
    return "" if view is None else f" for job {format_fluid(view.id, 'f58')}"


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


class Caller:
    """Calls functions of plugins.

    `jobs` is set to the jobs of the job manager before the first question.
    """

    def __init__(self, given: HostServices, look_s: float = LOOK_S) -> None:
        self.given = given
        self.jobs: Jobs = NoJobs()
        self.watch = LoopWatch(look_s, name_of, partial(given.log, Level.ERR))
        self.plugins: list[Loaded] = []  # in the order in which they are asked
        self._now, self._note_all = given.now, given.note_all
        self._is_traced = given.is_traced

    def timed(self, entry: Entry, view: JobView | None, arg: Any) -> Any:
        """Call a handler outside a question, trace the call and re-raise its error."""
        began, t_began = self.given.now(), perf_counter()
        said, error = attempt(self.watched, entry, view, arg)
        problem = None if error is None else describe(error)
        self._record(entry, entry.label, view, None, problem, began, t_began)
        if error is not None:
            raise error
        return said

    def watched(self, entry: Entry, view: JobView | None, *args: Any) -> Any:
        """Call a function of a plugin, marked for the watch; re-raise its error."""
        outer, self.watch.running = self.watch.running, (entry, view)
        try:
            return entry.function(*args)
        finally:
            self.watch.running = outer

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
            work.start(said)
            said, error = await self.answer_of(work, owner.deadline)
        problem = None if error is None else describe(error)
        self._record(entry, entry.label, None, None, problem, began, t_began)
        return said, error

    def start_task(self, loaded: Loaded, function: Callable[..., Any], args: Any) -> None:
        """Run a background task of a plugin; log its error, which ends only this task."""
        entry = Entry(loaded, f"task {getattr(function, '__name__', function)}", function, CUSTOM)
        work = loaded.tasks.new(entry.label)
        work.start(_run_task(function, args), partial(self._task_failed, entry, self.given.now()))

    def _task_failed(self, entry: Entry, began: float, error: BaseException) -> None:
        text = f"plugin {entry.plugin}: {entry.label} ended: {describe(error)}"
        stack = "".join(traceback.format_exception(error))
        self.given.log(Level.ERR, f"{text}\n{readable(stack, STACK_CHARS_MAX)}")
        _report(error, text)
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


def name_of(mark: tuple[Entry | str, JobView | None]) -> str:
    """Return the name of the call that a mark of the watch stands for."""
    entry, view = mark
    return (
        entry if isinstance(entry, str) else f"plugin {entry.plugin}: {entry.label}{of_job(view)}"
    )


async def _run_task(function: Callable[..., Any], args: Any) -> None:
    """Run a background task of a plugin. Raises what it raises."""
    awaitable = function(*args)
    if not is_awaitable(awaitable):
        raise TypeError(f"expected an async function, got one that returned {awaitable!r}")
    await awaitable


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
