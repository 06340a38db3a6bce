"""Finds out that a call of a test waits for what cannot come as long as the time stands still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class NothingHappens(AssertionError):
    """A call waits for what cannot come at this time; the text says for what."""


class Rest(trio.abc.Instrument):
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


def _is_outer_world_awaited() -> bool:
    """Return whether a task waits for a thread, a process or a connection."""
    files = trio.lowlevel.current_statistics().io_statistics
    nwaiting = files.tasks_waiting_read + files.tasks_waiting_write
    nthreads = trio.to_thread.current_default_thread_limiter().borrowed_tokens
    return nthreads > 0 or nwaiting > 1  # one is Trio's own, by which other threads wake it
