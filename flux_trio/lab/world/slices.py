"""A function on a thread of its own, which works only while somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Semaphore, Thread
from typing import Generic, TypeVar

import outcome

T = TypeVar("T")


class Stopped(Exception):
    """The function is not to go on."""


class InSlices(Generic[T]):
    """A call of `do`, which gets a function that it calls between two slices of its work.

    Its thread works in `go_on` and `stop` only, so that who calls them decides what happens between
    two slices.
    """

    def __init__(self, do: Callable[[Callable[[], None]], T]) -> None:
        self._do = do
        self._begins, self._ends = Semaphore(0), Semaphore(0)  # of a slice
        self._is_stopped = False
        self._outcome: outcome.Outcome[T] | None = None
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def go_on(self) -> bool:
        """Let the next slice be done, and return whether it was the last one."""
        self._begins.release()
        self._ends.acquire()
        return self._outcome is not None

    def result(self) -> T:
        """Return what `do` has returned, or raise what it has raised; once, after its end."""
        assert self._outcome is not None, "it has not ended"
        return self._outcome.unwrap()

    def stop(self) -> None:
        """Raise Stopped in `do` where it waits, and wait for its end."""
        self._is_stopped = True
        self._begins.release()
        self._thread.join()

    def _work(self) -> None:
        self._outcome = outcome.capture(self._begin)
        self._ends.release()

    def _begin(self) -> T:
        self._wait()
        return self._do(self._between)

    def _between(self) -> None:
        self._ends.release()
        self._wait()

    def _wait(self) -> None:
        self._begins.acquire()
        if self._is_stopped:
            raise Stopped
