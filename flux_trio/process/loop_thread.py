"""An event loop in a thread of its own, which keeps one block open.

Calls go through a portal of anyio. Its `start_blocking_portal` is not enough: it does not say with
which error the loop has ended, and an interrupt while it starts leaves its thread behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from contextvars import Context
from typing import Any, Generic, TypeVar

import outcome
import trio
from anyio.from_thread import BlockingPortal

from flux_trio.process.groups import error_of_block

T = TypeVar("T")
Main = Callable[[], Awaitable[None]]


def run_asyncio(main: Callable[[], Any]) -> None:
    """Run an async function in asyncio, as `trio.run` does in Trio."""
    asyncio.run(main())


class LoopThread(Generic[T]):
    """Keeps the block that `open_block` opens until `stop`, in a thread that is called `name`.

    `run` is `trio.run`, or what calls it, or `run_asyncio`. The thread has the variables of
    `context`. It is a daemon: it never keeps the program alive.
    """

    def __init__(
        self,
        name: str,
        open_block: Callable[[], AbstractAsyncContextManager[T]],
        run: Callable[[Main], object],
        context: Context | None = None,
    ) -> None:
        self.name = name
        self.opened: Future[T] = Future()
        """What the block yields; fails if the loop ends before."""
        self.ended: Future[None] = Future()
        """Done when the loop has ended; its error is the loop's."""
        self.portal: BlockingPortal
        self._open = open_block
        self._run = run
        self._let_end: Callable[[], object]
        target = (context or Context()).run
        self._thread = threading.Thread(target=target, args=[self._keep], name=name, daemon=True)

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def begin(self) -> None:
        """Start the thread; it opens the block."""
        self._thread.start()

    def start(self) -> T:
        """Start the thread, and return what the block yields; raises the error of the loop.

        The block is closed again if an interrupt comes meanwhile.
        """
        with ExitStack() as undo:
            undo.callback(self.close)
            self.begin()
            value = self.opened.result()
            undo.pop_all()
        return value

    def let_end(self) -> None:
        """Let the block end as soon as it is open; any thread may call this."""
        if not self.opened.cancel():  # else the thread has not begun, and opens nothing
            self.opened.add_done_callback(self._end_block)

    def close(self) -> None:
        """Let the block end, and wait for the end of the thread, unless it is the caller's."""
        self.let_end()
        if not self.is_here and self._thread.ident is not None:
            self._thread.join()

    def stop(self) -> None:
        """Close the block; raises the error of the loop."""
        self.close()
        if not self.is_here:
            self.ended.result()

    def _end_block(self, opened: Future[T]) -> None:
        if opened.exception() is None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._let_end()

    def _keep(self) -> None:
        """Run the loop; what ends it is raised where somebody waits."""
        if not self.opened.set_running_or_notify_cancel():
            self.ended.set_result(None)
            return
        ended = outcome.capture(self._run, self._main)
        if isinstance(ended, outcome.Value):
            self.ended.set_result(None)
            return
        if not self.opened.done():
            self.opened.set_exception(ended.error)
        self.ended.set_exception(ended.error)

    async def _main(self) -> None:
        end: trio.Event | asyncio.Event
        if trio.lowlevel.in_trio_run():
            end = trio.Event()
            soon: Callable[..., object] = trio.lowlevel.current_trio_token().run_sync_soon
        else:
            end = asyncio.Event()
            soon = asyncio.get_running_loop().call_soon_threadsafe
        self._let_end = lambda: soon(end.set)
        with error_of_block():
            async with BlockingPortal() as self.portal, self._open() as value:
                self.opened.set_result(value)
                await end.wait()
