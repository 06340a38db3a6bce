"""A function on a thread of its own, which works only while somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Semaphore, Thread
from typing import Generic, TypeVar

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
        self._done: Future[T] = Future()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def go_on(self) -> bool:
        """Let the next slice be done, and return whether it was the last one."""
        self._begins.release()
        self._ends.acquire()
        return self._done.done()

    def result(self) -> T:
        """Return what `do` has returned, or raise what it has raised."""
        return self._done.result()

    def stop(self) -> None:
        """Raise Stopped in `do` where it waits, and wait for its end."""
        self._is_stopped = True
        self._begins.release()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._wait()
            self._done.set_result(self._do(self._between))
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._done.set_exception(error)
        self._ends.release()

    def _between(self) -> None:
        self._ends.release()
        self._wait()

    def _wait(self) -> None:
        self._begins.acquire()
        if self._is_stopped:
            raise Stopped
