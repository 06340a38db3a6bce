"""A thread that names the handler which blocks the loop, with its stack, and interrupts it.

The host marks what runs (`running`), step by step for what is async; the thread looks whether the
mark stays the same. It touches nothing of Trio unless it has something to report. A handler that
cannot be interrupted, or goes on, keeps the instance from ending; then the thread ends the process.

Code in C that keeps the interpreter's lock stops this thread, too. For that, `faulthandler` has a
timer without Python, which the thread sets again and again: when it expires, it writes the stacks.

What a plugin must not change in the process of its instance.

The code of a plugin runs in the instance's process, and can change everything there. This is put
back: the recursion limit after each call (`calling`); the handlers of signals and the limit of open
files within a second. Closing a descriptor of the instance is refused: it would end the instance,
or a file that gets the same number would be written to in place of the state file.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import os
import resource
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Final

import trio

from flux_trio.jobtap.interrupting import Interrupter, end_process, is_plugins
from flux_trio.process.console import STDERR

_FD: Final = Path("/proc/self/fd")
_SOCKET: Final = "socket:"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGURG)

_ran_in: Final[list[int]] = []  # the process in which settings were made, if one has


def plugins_have_run() -> bool:
    """Return whether code of a plugin that is not builtin has run in this process."""
    return os.getpid() in _ran_in


class ProcessSettings:
    """The settings when this object was made, before the first plugin."""

    def __init__(self) -> None:
        _ran_in[:] = [os.getpid()]
        self._pid = os.getpid()
        handlers = {each: signal.getsignal(each) for each in _SIGNALS}
        self._handlers = {each: found for each, found in handlers.items() if found is not None}
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._held = {int(each.name): _link(each.name) for each in _FD.iterdir()}
        self._close, self._closerange = os.close, os.closerange
        os.close, os.closerange = self._checked_close, self._checked_closerange

    def stop(self) -> None:
        """Let descriptors be closed again."""
        os.close, os.closerange = self._close, self._closerange

    @property
    def are_changed(self) -> bool:
        """Whether a setting is another; in any thread."""
        if resource.getrlimit(resource.RLIMIT_NOFILE) != self._files:
            return True
        return any(signal.getsignal(each) != found for each, found in self._handlers.items())

    def put_back(self) -> list[str]:
        """Put the settings back, in the main thread; return what was changed."""
        changed = []
        for signum, handler in self._handlers.items():
            if signal.getsignal(signum) != handler:
                signal.signal(signum, handler)
                changed.append(f"the handler of {signum.name}")
        if resource.getrlimit(resource.RLIMIT_NOFILE) != self._files:
            changed.append("the limit of open files")
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # it stays if it was lowered
            self._files = (min(self._files[0], hard), hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, self._files)
        return changed

    def _checked_close(self, fd: int) -> None:
        if (
            is_plugins(sys._getframe(1))
            and os.getpid() == self._pid  # not in a child after fork
            and self._is_instances(fd)
        ):
            raise PermissionError(errno.EPERM, f"descriptor {fd} is the instance's", _link(fd))
        self._close(fd)

    def _checked_closerange(self, low: int, high: int) -> None:
        if os.getpid() == self._pid:
            text = f"descriptors {low} to {high - 1}: some are the instance's"
            raise PermissionError(errno.EPERM, text)
        self._closerange(low, high)

    def _is_instances(self, fd: int) -> bool:
        """Return whether a descriptor is of a time before plugins, or a socket."""
        link = _link(fd)
        return bool(link) and (link.startswith(_SOCKET) or self._held.get(fd) == link)


def _link(fd: int | str) -> str:
    """Return what a descriptor is open for; "" if it is closed."""
    with suppress(OSError):
        return str((_FD / str(fd)).readlink())
    return ""


BLOCKED_S: Final = 1.0  # seconds that a handler may hold the whole instance
LOOP_S: Final = 30.0  # after this time it is interrupted; [job-manager] plugin-loop-limit
TERM_S: Final = 10.0  # seconds that a handler may hold the instance after SIGTERM
LOCK_S: Final = 10.0  # seconds that nothing in Python may run before the stacks are written
_AGAIN_S: Final = 0.002  # until the next try, if the code that ran was not the plugin's
_TRIES_MAX: Final = 500  # in a row
CANCELS_MAX: Final = 100  # in an ending function: each await of its cleanup raises one
_OURS: Final = str(Path(__file__).parent)

Blamed = Callable[[Any, str], None]
Changed = Callable[[list[str]], None]


class Watchdog:
    """Watches the thread in which it is started; with `blocked_s` infinite it does nothing.

    When something has held the thread for too long, the stack is written to stderr at once. If Trio
    runs in the thread, Trio calls `report` with the mark and the stack as soon as the thread is
    free again, which may never happen. What holds the main thread for `loop_s` seconds is
    interrupted, again and again if it goes on. What holds it for `term_s` seconds after SIGTERM is
    ended with the process.
    """

    def __init__(
        self,
        blocked_s: float,
        report: Blamed,
        loop_s: float = LOOP_S,
        term_s: float = TERM_S,
        put_back: Changed = lambda _: None,
    ) -> None:
        self.running: Any = None  # a new object for each call that is under way, None between
        self.reported: Any = None  # the last mark that was reported
        self._blocked_s = blocked_s
        self._report = report
        self._put_back = put_back  # told which settings of the process were put back
        self._settings: ProcessSettings | None = None
        self.loop_s = loop_s
        self._term_s = term_s
        self._lock_s = LOCK_S
        self.interrupter = Interrupter(lambda: self.running)
        self._token: trio.lowlevel.TrioToken | None = None
        self._watched = 0
        self._armed = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it is not started."""
        if self._thread is None and self._blocked_s < inf:
            if trio.lowlevel.in_trio_run():
                self._token = trio.lowlevel.current_trio_token()
            self._watched = threading.get_ident()
            self.interrupter.install()
            if not self.interrupter.why_not:
                self._settings = ProcessSettings()
            self._arm()
            self._thread = threading.Thread(target=self._watch, name="jobtap", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for its end, which is immediate."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            if self._settings is not None:
                self._settings.stop()
            self.interrupter.uninstall()

    def _watch(self) -> None:
        seen, held_s, term_s = None, 0.0, 0.0
        is_to_end = False
        while self._pauses():
            self._look_at_settings()
            running = self.running
            is_to_end = self.interrupter.took_sigterm() or is_to_end
            if running is None or running is not seen:
                seen, held_s, term_s = running, 0.0, 0.0
                continue
            held_s += self._blocked_s  # by steps: a stopped process does not count
            term_s += self._blocked_s if is_to_end else 0.0
            if running is not self.reported:
                self._report_blocked(running)
                self.reported = running
            if term_s > self._term_s:
                end_process(f"ended {self._term_s:g} s after SIGTERM: a plugin goes on")
            if held_s >= self.loop_s or term_s == self._blocked_s:
                self._interrupt(running, held_s)
                held_s = 0.0

    def _look_at_settings(self) -> None:
        """Have the settings of the process put back, if a plugin has changed one."""
        if self._token is not None and self._settings is not None and self._settings.are_changed:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._restore, idempotent=True)

    def _restore(self) -> None:
        assert self._settings is not None
        if changed := self._settings.put_back():
            self.interrupter.listen_for_sigterm()
            self._put_back(changed)

    def _arm(self) -> None:
        """Set the timer that writes the stacks unless this is called again in time."""
        faulthandler.dump_traceback_later(self._lock_s, file=2)
        self._armed = time.monotonic()

    def _pauses(self) -> bool:
        """Wait for `blocked_s` seconds; return False if the watch is over.

        If stacks were written meanwhile, an explanation is written after them.
        """
        is_over = self._stop.wait(self._blocked_s)
        seconds = time.monotonic() - self._armed
        if is_over:
            faulthandler.cancel_dump_traceback_later()
        else:
            self._arm()
        if seconds >= self._lock_s:
            STDERR.write(
                f"flux-trio: no Python ran for {seconds:.1f} s: code in C kept the interpreter's "
                "lock, or the process was stopped; the stacks above are of that time\n"
            )
        return not is_over

    def _interrupt(self, running: Any, held_s: float) -> None:
        """Interrupt the handler, if that is possible; code in C is interrupted when it returns."""
        if self.interrupter.why_not:
            return
        text = f"it held the instance for {held_s:g} s without a checkpoint, and was interrupted"
        for _ in range(_TRIES_MAX):
            if self.running is not running:
                return
            self.interrupter.interrupt(running, text)
            for _ in range(_TRIES_MAX):
                if not self.interrupter.is_pending or self._stop.wait(_AGAIN_S):
                    break
            if not self.interrupter.missed:
                return

    def _report_blocked(self, running: Any) -> None:
        stack = self._stack()
        why_not = self.interrupter.why_not
        hopeless = f" and nothing interrupts it: {why_not}" if why_not else ""
        STDERR.write(f"flux-trio: the instance is blocked{hopeless}\n{stack}")
        if self._token is not None:
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

    Once `is_over` returns True, an awaitable that goes on after CANCELS_MAX cancels is closed.
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
