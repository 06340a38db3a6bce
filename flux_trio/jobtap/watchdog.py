"""A thread that names the handler which blocks the loop, with its stack, and interrupts it.

The host marks what runs (`running`), step by step for what is async; the thread looks whether the
mark stays the same. It touches nothing of Trio unless it has something to report. A handler that
cannot be interrupted, or goes on, keeps the instance from ending; then the thread ends the process.

Code in C that keeps the interpreter's lock stops this thread, too. For that, `faulthandler` has a
timer without Python, which the thread sets again and again: when it expires, it writes the stacks.

To interrupt, the thread sends SIGURG to the main thread. Python calls the handler there between two
instructions, whatever runs. The handler raises PluginLoop only if the plugin's own code runs, or a
library that it called: an exception inside Trio or the job manager could leave their work half
done. If one of them runs at that moment, the thread sends the signal again. SIGURG is ignored by
default, and nothing else uses it. Like every signal it wakes Trio up, which looks for events and
sleeps again. A loop in C runs no handler. It cannot be interrupted; but the arrival of SIGTERM is
noticed even then, by a handler of `faulthandler`, which runs at once and calls the previous one.

The code of a plugin can change everything in the process. This is put back: the recursion limit
after each call (`calls`); the handlers of signals and the limit of open files within a second.
Closing a descriptor of the instance is refused: it would end the instance,
or a file that gets the same number would be written to in place of the state file.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any, Final

import trio

from flux_trio.jobtap.errors import PluginLoop
from flux_trio.process.console import STDERR

SIGNAL: Final = signal.SIGURG

_HOST: Final = Path(__file__).parent
_PACKAGE: Final = _HOST.parent
_NOT_THEIRS: Final = (f"{_PACKAGE}/", f"{Path(trio.__file__).parent}/")
_PLUGINS: Final = (f"{_HOST}/builtins/", f"{_PACKAGE}/plugins/")
# Here code of plugins is called, and every exception of theirs is caught.
_CALLERS: Final = frozenset(
    f"{_HOST}/{name}.py"
    for name in ("calls", "counter", "dispatch", "failures", "loading", "tasks")
)


class Interrupter:
    """Interrupts the call that `running` returns, in the main thread. A process has one active
    object.

    `why_not` says why it cannot interrupt, "" if it can.
    """

    def __init__(self, running: Callable[[], Any]) -> None:
        self._running = running
        self._target: Any = None  # the mark to interrupt
        self._text = ""
        self.not_plugins = False  # the last signal came while the code was not the plugin's
        self.why_not = "it is not started"
        self._pipe: tuple[int, int] | None = None

    def install(self) -> None:
        """Set the handlers, in the main thread and if nobody else has set one."""
        if threading.current_thread() is not threading.main_thread():
            self.why_not = "the instance does not run in the main thread"
        elif signal.getsignal(SIGNAL) != signal.SIG_DFL:
            self.why_not = "something else in this process handles SIGURG"
        else:
            self.why_not = ""
            signal.signal(SIGNAL, self._handle)
            if callable(signal.getsignal(signal.SIGTERM)):  # the instance ends by itself
                self._pipe = os.pipe()
                for end in self._pipe:
                    os.set_blocking(end, False)
                self.listen_for_sigterm()

    def listen_for_sigterm(self) -> None:
        """Notice SIGTERM before Python's handler does; again, after that handler was set."""
        if self._pipe is not None:
            faulthandler.unregister(signal.SIGTERM)
            faulthandler.register(signal.SIGTERM, self._pipe[1], all_threads=False, chain=True)

    def uninstall(self) -> None:
        """Reset the handlers; in the main thread, after the watchdog's thread has ended."""
        if self.why_not:
            return
        self.why_not = "it has ended"
        self._target = None
        signal.signal(SIGNAL, signal.SIG_DFL)
        if self._pipe is not None:
            faulthandler.unregister(signal.SIGTERM)
            for end in self._pipe:
                os.close(end)
            self._pipe = None

    # --- in the watchdog's thread

    def interrupt(self, mark: Any, text: str) -> None:
        """Raise PluginLoop(text) in the main thread if the call `mark` still runs there."""
        self._text, self.not_plugins, self._target = text, False, mark
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, SIGNAL)

    @property
    def is_pending(self) -> bool:
        """Whether the main thread has not handled the last signal yet."""
        return self._target is not None

    def took_sigterm(self) -> bool:
        """Return whether SIGTERM came since the last call."""
        if self._pipe is None:
            return False
        with suppress(BlockingIOError):
            return bool(os.read(self._pipe[0], 1 << 16))
        return False

    # --- in the main thread

    def _handle(self, _signum: int, frame: FrameType | None) -> None:
        target, self._target = self._target, None
        if target is None or self._running() is not target:
            return
        if not is_plugins(frame):
            self.not_plugins = True
            return
        raise PluginLoop(self._text)


def is_plugins(frame: FrameType | None) -> bool:
    """Return whether code of a plugin runs in `frame`, or a library that the plugin has called.

    Going outward, the first frame of flux_trio is the one that has called the plugin; but if the
    plugin has called code of flux_trio that called a library, it is a frame of that code.
    """
    innermost = frame
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_NOT_THEIRS) and not name.startswith(_PLUGINS):
            return frame is not innermost and name in _CALLERS
        frame = frame.f_back
    return False


def end_process(text: str) -> None:
    """End the process at once, from any thread."""
    with suppress(Exception):
        sys.stderr.flush()
        os.write(2, f"flux-trio: {text}\n".encode())
    os._exit(1)


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
            with suppress(trio.RunFinishedError):
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
            if not self.interrupter.not_plugins:
                return

    def _report_blocked(self, running: Any) -> None:
        stack = self._stack()
        why_not = self.interrupter.why_not
        hopeless = f" and nothing interrupts it: {why_not}" if why_not else ""
        STDERR.write(f"flux-trio: the instance is blocked{hopeless}\n{stack}")
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # the run may have ended meanwhile
                self._token.run_sync_soon(self._report, running, stack)

    def _stack(self) -> str:
        """Return the stack of the watched thread, from the plugin's own code on."""
        frames = traceback.extract_stack(sys._current_frames().get(self._watched))
        last = max(
            (n for n, each in enumerate(frames) if each.filename.startswith(_OURS)), default=-1
        )
        return "".join(traceback.format_list(frames[last + 1 :] or frames))
