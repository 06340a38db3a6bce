"""A thread that names code of a plugin which never gives the processor back.

A plugin is trusted, and nothing is raised into its code: such a loop cannot be helped. The host
marks each call (`LoopWatch.running`), and Trio tells which of its tasks runs (`before_task_step`).
The thread looks each second whether the same call, or the same step of a plugin's task, still goes
on. It names that on standard error at once, and in the log when the loop is free again.

A program that may be ended with its plugins says so (`own_process`). It ends when such a call has
used `limit_s` seconds of CPU time. A debugger's prompt, a process that is stopped and a busy
machine use none: what only takes long is named, and ends nothing. Code in C that keeps Python's
lock holds this thread up as well; `LockTimers` are for that.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final

import trio

from flux_trio.jobtap.lock_timers import (
    LockTimers,
    OwnProcess,
    frames_of_plugin,
    own_process,
    place_of,
)
from flux_trio.jobtap.tasks import current_work
from flux_trio.process.console import STDERR

LOOK_S: Final = 1.0  # seconds between two looks; what goes on from one to the next is named
AGAIN_S: Final = 30.0  # seconds until it is named again

_held: Final[set[str]] = set()  # in this process: calls that were named and go on
_has_run: Final = threading.Event()


def held() -> list[str]:
    """Return the texts about calls of plugins that hold a loop of this process now."""
    return sorted(_held)


def plugins_have_run() -> bool:
    """Return whether a plugin that is not builtin was loaded in this process."""
    return _has_run.is_set()


class LoopWatch(trio.abc.Instrument):
    """Watches the thread in which it is started; with an infinite `look_s` it does nothing.

    `name` names the call that a mark stands for. `report` is called with a text for the log, in the
    watched thread, when Trio runs there and is free again.
    """

    def __init__(
        self, look_s: float, name: Callable[[Any], str], report: Callable[[str], object]
    ) -> None:
        self.running: Any = None  # a new object for each call that is under way, None between
        self.limit_s = inf  # [job-manager] plugin-loop-limit
        self.nnamed = 0  # how often something was named
        self._step: tuple[trio.lowlevel.Task, ...] = ()  # a new one for each step of a task
        self._look_s = look_s
        self._name = name
        self._report = report
        self._own = own_process.get()
        self._token: trio.lowlevel.TrioToken | None = None
        self._watched = 0
        self._cpu_clock = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it is not started."""
        if self._thread is not None or self._look_s == inf:
            return
        _has_run.set()
        if trio.lowlevel.in_trio_run():
            self._token = trio.lowlevel.current_trio_token()
            trio.lowlevel.add_instrument(self)
        self._watched = threading.get_ident()
        self._cpu_clock = time.pthread_getcpuclockid(self._watched)
        self._thread = threading.Thread(target=self._watch, name="jobtap", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for its end, which is immediate."""
        self._stop.set()
        if self._thread is not None:
            if self._token is not None:
                trio.lowlevel.remove_instrument(self)
            self._thread.join()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step = (task,)

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - Trio gives it
        self._step = ()

    # --- in the thread

    def _watch(self) -> None:
        timers = None if self._own is None else LockTimers(self._own.note, self._watched)
        seen, nlooks, began_s, text, last = None, 0, 0.0, "", ""
        while self._pauses(timers):
            mark, used_s = self._mark(), self._used_s()
            if mark is None or mark is not seen:
                _held.difference_update((text, last))
                seen, nlooks, began_s = mark, 0, used_s
                continue
            nlooks += 1  # the clock would count while the process is stopped
            if nlooks % round(AGAIN_S / self._look_s) == 1:
                _held.discard(text)
                text = self._tell(mark, nlooks * self._look_s)
            if self._own is not None and used_s - began_s >= self.limit_s:
                last = self._end(self._own, mark)
        _held.difference_update((text, last))
        if timers is not None:
            timers.close()

    def _pauses(self, timers: LockTimers | None) -> bool:
        """Wait until the next look; return False if the watch is over."""
        if timers is None:
            return not self._stop.wait(self._look_s)
        began_s = self._used_s()
        timers.set(self.limit_s)
        is_over = self._stop.wait(self._look_s)
        if text := timers.look(self._used_s() - began_s):
            self._say(text)
        return not is_over

    def _used_s(self) -> float:
        """Return the CPU time of the watched thread, in seconds."""
        return time.clock_gettime(self._cpu_clock)

    def _mark(self) -> Any:
        """Return the mark of the call, or the step of a plugin's task, that runs; None without."""
        if (running := self.running) is not None:
            return running
        step = self._step
        return step if step and step[0].context.get(current_work) is not None else None

    def _tell(self, mark: Any, seconds: float) -> str:
        text, stack = self._described(mark, f"holds the instance, for {seconds:.3g} s now")
        self._say(f"{text}\n{stack}")
        _held.add(text)
        self.nnamed += 1
        return text

    def _end(self, own: OwnProcess, mark: Any) -> str:
        what = f"has used {self.limit_s:g} s of CPU time in one call, which ends the process"
        text, stack = self._described(mark, what)
        _held.add(text)
        own.end(f"{text}\n{stack}")
        return text

    def _described(self, mark: Any, what: str) -> tuple[str, str]:
        """Return a sentence about the call that a mark stands for, and its stack."""
        work = mark[0].context[current_work] if isinstance(mark[0], trio.lowlevel.Task) else None
        name = self._name(mark) if work is None else work.name
        stack = traceback.extract_stack(sys._current_frames().get(self._watched))
        theirs = frames_of_plugin(reversed(stack))
        shown = "".join(traceback.format_list(theirs[::-1] or stack)).rstrip()
        return f"{name} {what}{place_of(theirs)}", shown

    def _say(self, text: str) -> None:
        STDERR.write(f"flux-trio: {text}")
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # the run may have ended meanwhile
                self._token.run_sync_soon(self._report, text)
