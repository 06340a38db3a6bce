"""A thread that names the handler which blocks the loop, with its stack, while it blocks.

The host marks what runs (`running`), step by step for what is async; the thread looks whether the
mark stays the same. It touches nothing of Trio unless it has something to report.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
import types
from collections.abc import Awaitable, Callable, Generator
from math import inf
from pathlib import Path
from typing import Any, Final

import trio

from flux_trio.console import STDERR

BLOCKED_S: Final = 1.0  # seconds that a handler may hold the whole instance
CANCELS_MAX: Final = 100  # in an ending function: each await of its cleanup raises one
_OURS: Final = str(Path(__file__).parent)

Blamed = Callable[[Any, str], None]


class Watchdog:
    """Watches the thread in which it is started; with `blocked_s` infinite it does nothing.

    `report` is called there, as soon as it can, with the mark that stayed and the stack; the text
    goes to stderr at once, since that may never be.
    """

    def __init__(self, blocked_s: float, report: Blamed) -> None:
        self.running: Any = None  # a new object for each call that is under way, None between
        self.told: Any = None  # the last mark that was reported
        self._blocked_s = blocked_s
        self._report = report
        self._token: trio.lowlevel.TrioToken
        self._watched = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it is not started."""
        if self._thread is None and self._blocked_s < inf:
            self._token = trio.lowlevel.current_trio_token()
            self._watched = threading.get_ident()
            self._thread = threading.Thread(target=self._watch, name="jobtap", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for its end, which is immediate."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        seen = None
        while not self._stop.wait(self._blocked_s):
            running = self.running
            if running is not None and running is seen and running is not self.told:
                self._tell(running)
                self.told = running
            seen = running

    def _tell(self, running: Any) -> None:
        stack = self._stack()
        STDERR.write(f"flux-trio: the instance is blocked\n{stack}")
        with contextlib.suppress(trio.RunFinishedError):  # the run may have ended meanwhile
            self._token.run_sync_soon(self._report, running, stack)

    def _stack(self) -> str:
        """Return the stack of the watched thread, from the plugin's own code on."""
        frames = traceback.extract_stack(sys._current_frames().get(self._watched))
        last = max(
            (n for n, each in enumerate(frames) if each.filename.startswith(_OURS)), default=-1
        )
        return "".join(traceback.format_list(frames[last + 1 :] or frames))


@types.coroutine
def stepped(
    awaitable: Awaitable[Any], step: Callable[[bool], None], is_over: Callable[[], bool]
) -> Generator[Any, Any, Any]:
    """Await; `step(True)` comes before and `step(False)` after each stretch between checkpoints.

    Once it `is_over`, who goes on after CANCELS_MAX cancels is closed where it is.
    """
    iterator: Any = awaitable.__await__()
    value: Any = None
    thrown: BaseException | None = None
    cancels = 0
    while True:
        step(True)
        try:
            trap = iterator.send(value) if thrown is None else iterator.throw(thrown)
        except StopIteration as end:
            return end.value
        finally:
            step(False)
        value, thrown = None, None
        try:
            value = yield trap
        except BaseException as error:  # noqa: BLE001 - it is thrown into the awaitable itself
            thrown = error
        met = getattr(value, "error", None)  # Trio hands its outcomes in
        if isinstance(met, trio.Cancelled) and is_over():
            cancels += 1
            if cancels > CANCELS_MAX:
                with contextlib.suppress(RuntimeError):  # it ignores even that
                    iterator.close()
                raise met
