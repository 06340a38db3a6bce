"""A Trio run in a thread of its own, driven by a plain function: its clock stands still.

A test without Trio settings of its own uses it, and so does an async test under any framework.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, TypeVar

import trio
import trio.testing

from flux_trio.broker import ModuleNotStarted
from flux_trio.formats import FormatError
from flux_trio.instance import error_of_start
from flux_trio.process.loop_thread import LoopThread, Main
from flux_trio.sim import seeded_tasks

T = TypeVar("T")

TIME_S_MAX: Final = 1e9
"""Seconds from the start to the latest time: some 30 years; a job id (RFC 19) holds 34."""


def beside_trio(function: Callable[..., T], *args: Any) -> T:
    """Call a function that needs a thread without a Trio run; a caller's own run stops meanwhile.

    The function sees the caller's context variables.
    """
    __tracebackhide__ = True
    if not trio.lowlevel.in_trio_run():
        return function(*args)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, function, *args).result()


class NothingHappens(AssertionError):
    """A call waits for what cannot come at this time; the text says for what."""


class IdleInstrument(trio.abc.Instrument):
    """An instrument of a Trio run: gives up the calls that wait when no task can run any more."""

    def __init__(self) -> None:
        self._waiting: set[trio.CancelScope] = set()  # of calls that have not returned

    @contextmanager
    def given_up(self, awaited: str) -> Iterator[None]:
        """Raise NothingHappens if the block waits for what cannot come; `awaited` names it."""
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                yield
            finally:
                self._waiting.discard(scope)
        if scope.cancelled_caught:
            raise NothingHappens(
                f"expected {awaited}, but nothing more happens until the time advances"
            )

    def before_io_wait(self, timeout: float) -> None:
        """Look whether all is at rest: Trio waits for some time only if no task can run."""
        if timeout > 0 and self._waiting and not _is_outer_world_awaited():
            for scope in self._waiting:
                trio.lowlevel.current_trio_token().run_sync_soon(scope.cancel)
            self._waiting.clear()


class TrioThread:
    """Keeps the block that `open_block` opens until `stop`; `seed` orders Trio's tasks.

    A harness has one in its `with` block; `name` is that of the harness.
    """

    def __init__(
        self,
        name: str,
        open_block: Callable[[], AbstractAsyncContextManager[Any]],
        seed: int | None = None,
    ) -> None:
        self._name = name
        self._open = open_block
        self._clock = trio.testing.MockClock()
        self._order = nullcontext() if seed is None else seeded_tasks(seed)
        self._rest = IdleInstrument()
        self._loop: LoopThread[trio.lowlevel.TrioToken] | None = None
        self._is_end_told = False

    def start(self, context: Context) -> None:
        """Return when the block is open and nothing more happens by itself; raises its error.

        The thread has the variables of `context`. The block is closed again if an interrupt comes
        meanwhile. Raises RuntimeError the second time.
        """
        if self._loop is not None:
            raise RuntimeError(
                f"expected one `with` block of the {self._name}, got another: make a new one"
            )
        self._loop = LoopThread(self._name, self._opened, self._run, context)
        self._loop.start()

    def expect_start(self) -> LoopThread[trio.lowlevel.TrioToken]:
        """Return the thread; RuntimeError if the block was not opened."""
        if self._loop is None:
            raise RuntimeError(
                f"expected a call in the `with` block of the {self._name}, got one before it"
            )
        return self._loop

    def stop(self) -> None:
        """Close the block; raises the error with which the run has ended, unless `do` did."""
        loop = self.expect_start()
        loop.close()
        if not self._is_end_told:
            loop.ended.result()

    def do(self, function: Callable[..., Awaitable[Any]], *args: Any, awaited: str = "") -> Any:
        """Run an async function in the thread; return when all tasks are blocked.

        Raises NothingHappens if the function waits, and nothing happens any more as long as the
        time stands still; `awaited` says what does not come, or it is the end of the function.
        Raises the error with which the run has ended, if it has. Raises RuntimeError before `start`
        and after `stop`, and in the thread itself, where the caller would wait for itself.
        """
        loop = self.expect_start()
        if loop.is_here:
            raise RuntimeError(
                f"expected a call from outside of the {self._name}'s thread, got one from a "
                "function that runs in it: such a function awaits"
            )
        token = loop.opened.result()
        awaited = awaited or f"the end of {getattr(function, '__name__', function)}"
        call = partial(self._settled, function, args, awaited)
        with suppress(trio.Cancelled, trio.RunFinishedError):  # the run of the thread is over
            return beside_trio(lambda: trio.from_thread.run(call, trio_token=token))
        self._is_end_told = True
        loop.ended.result()
        raise RuntimeError(f"expected a call before the end of the {self._name}")

    # --- time

    def elapsed(self) -> float:
        """Return seconds since the start."""
        return self._clock.current_time()

    def next_deadline(self) -> float:
        """Return seconds until the next deadline; infinite without one."""
        left: float = self.do(_next_deadline)
        return left

    def advance(self, seconds: float) -> None:
        """Jump from deadline to deadline until `seconds` have passed; FormatError."""
        left = TIME_S_MAX - self.elapsed()
        if not isinstance(seconds, int | float) or not 0 <= seconds <= left:
            raise FormatError(f"seconds from 0 to {left:.15g}", seconds, "advance")
        self.do(self._advance, seconds)

    async def _advance(self, seconds: float) -> None:
        until = trio.current_time() + seconds
        while (left := until - trio.current_time()) > 0:
            self._clock.jump(min(max(await _next_deadline(), 0.0), left))
            await trio.testing.wait_all_tasks_blocked()

    # --- the thread

    async def _settled(
        self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], awaited: str
    ) -> Any:
        try:
            with self._rest.given_up(awaited):
                return await function(*args)
        finally:
            await trio.testing.wait_all_tasks_blocked()

    def _run(self, main: Main) -> None:
        try:
            with self._order:
                trio.run(main, clock=self._clock, instruments=[self._rest])
        except (BaseExceptionGroup, ModuleNotStarted) as error:
            first = error_of_start(error)
            raise first from first.__cause__

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[trio.lowlevel.TrioToken]:
        async with self._open():
            await trio.testing.wait_all_tasks_blocked()
            yield trio.lowlevel.current_trio_token()


async def _next_deadline() -> float:
    return trio.lowlevel.current_statistics().seconds_to_next_deadline


def _is_outer_world_awaited() -> bool:
    """Return whether a task waits for a thread, a process or a connection."""
    files = trio.lowlevel.current_statistics().io_statistics
    nwaiting = files.tasks_waiting_read + files.tasks_waiting_write
    nthreads = trio.to_thread.current_default_thread_limiter().borrowed_tokens
    return nthreads > 0 or nwaiting > 1  # one is Trio's own, by which other threads wake it
