"""The tasks of plugins, for whose end nobody has to wait.

A function of a plugin may go on after it was cancelled: it waits in a thread, or in a shielded
scope, or it catches every exception. In a nursery of the job manager it would keep the job manager,
and with it the instance. So it runs as a system task of Trio (`Work`). Who has started it waits for
`settled`, which a cancel sets at once. A task that goes on END_S seconds after its cancel is
abandoned: nobody waits for its end, and the log names it. A run of Trio does not return before its
system tasks have ended: a process that is to end asks `going_on`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar, copy_context
from typing import Any, Final, NoReturn, Protocol

import trio

from flux_trio.jobtap.failures import attempt_async, is_interrupt

END_S: Final = 5.0
"""Seconds that a task of a plugin has to end after it was cancelled; then it is abandoned."""

_canceled: Final[set[Work]] = set()  # in this process: cancelled, and not ended


def going_on() -> list[str]:
    """Return the names of the tasks of this process that were cancelled and have not ended."""
    return sorted(work.name for work in _canceled)


class Work:
    """One async function of a plugin.

    `settled` is set when it has ended or was cancelled. `value` and `error` say how it ended; both
    are None after a cancel. What it calls belongs to `pending` (a PendingQuestion, or None),
    until it is settled.
    """

    def __init__(self, name: str, tasks: TasksOfPlugin, pending: Any) -> None:
        self.name = name
        self.settled = trio.Event()
        self.ended = trio.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_abandoned = False
        self._pending = pending
        self._tasks = tasks
        self._scope = trio.CancelScope()

    @property
    def pending(self) -> Any:
        """The question that it answers, None if it does not any more."""
        pending = self._pending
        return None if pending is None or pending.closed or self.settled.is_set() else pending

    @property
    def is_canceled(self) -> bool:
        """Whether it was cancelled; it may go on."""
        return self._scope.cancel_called

    def start(
        self,
        running: Awaitable[Any],
        failed: Callable[[BaseException], object] = lambda _error: None,
    ) -> None:
        """Run it in a task of its own; `failed` is called with its error, if it has one."""
        self._tasks.running.add(self)
        context = copy_context()  # the plugin sees what the asking task has set
        trio.lowlevel.spawn_system_task(self._run, running, failed, name=self.name, context=context)

    @trio.lowlevel.disable_ki_protection  # ctrl-C ends a simulation whose plugin loops
    async def _run(
        self, running: Awaitable[Any], failed: Callable[[BaseException], object]
    ) -> None:
        current_work.set(self)
        try:
            self.value, self.error = await attempt_async(self._within_scope(running))
            if self.error is not None and is_interrupt(self.error):
                self._tasks.start_soon(_raise, self.error)
            elif self.error is not None:
                failed(self.error)
        finally:
            self._tasks.running.discard(self)
            _canceled.discard(self)
            self.settled.set()
            self.ended.set()

    async def _within_scope(self, running: Awaitable[Any]) -> Any:
        with self._scope:
            return await running
        return None

    def end(self) -> None:
        """Cancel it, and name it if it goes on."""
        self.cancel()
        self._tasks.start_soon(end_all, [self])

    def cancel(self) -> None:
        """Cancel it; nobody waits for its answer any more."""
        if not self.ended.is_set():
            _canceled.add(self)
            self._scope.cancel()
            self.settled.set()

    def abandon(self) -> None:
        """Wait for its end no longer."""
        if not self.is_abandoned:
            self.is_abandoned = True
            self._tasks.say(
                f"{self.name} goes on {END_S:g} s after it was cancelled, and is abandoned"
            )


current_work: ContextVar[Work | None] = ContextVar("current_work", default=None)
"""The task of a plugin in which this context is. Operations that an async handler calls go into the
answer of its question."""


class PluginTasks(Protocol):
    """The tasks of one plugin, or a substitute where no task can start."""

    @property
    def running(self) -> Iterable[Work]:
        """Those that have not ended."""

    def new(self, what: str, pending: Any = None) -> Work:
        """Return a task for `what` that has not started."""

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a function of the host on behalf of the plugin; it ends with the host."""


class HostTasks(Protocol):
    """The tasks of the plugin host: a nursery, or a substitute where no task can start."""

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None: ...


class TasksOfPlugin:
    """The tasks of the plugin `name`; `say` writes an error to the log."""

    def __init__(self, name: str, host: HostTasks, say: Callable[[str], None]) -> None:
        self.running: set[Work] = set()
        self.say = say
        self._name = name
        self._host = host

    def new(self, what: str, pending: Any = None) -> Work:
        """Return a task for `what` that has not started."""
        return Work(f"plugin {self._name}: {what}", self, pending)

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a function of the host on behalf of the plugin; it ends with the host."""
        self._host.start_soon(function, *args)


async def _raise(error: BaseException) -> NoReturn:
    """Raise an error in the host, which ends with it: here it would be a bug in Trio."""
    raise error


async def end_all(works: Iterable[Work]) -> list[str]:
    """Cancel tasks and wait at most END_S seconds; abandon the rest, and return its names."""
    works = list(works)
    if not works:  # outside of Trio there are none
        return []
    for work in works:
        work.cancel()
    with trio.move_on_after(END_S, shield=True):
        for work in works:
            if not work.is_abandoned:
                await work.ended.wait()
    left = [work for work in works if not work.ended.is_set()]
    for work in left:
        work.abandon()
    return [work.name for work in left]
