"""Interrupting code of a plugin that holds the main thread, and noticing SIGTERM meanwhile.

The watchdog's thread sends SIGURG to the main thread. Python calls the handler there between two
instructions, whatever runs. The handler raises PluginLoop only if the plugin's own code runs, or a
library that it called: an exception inside Trio or the job manager could leave their work half
done. If one of them runs at that moment, the thread sends the signal again. SIGURG is ignored by
default, and nothing else uses it. Like every signal it wakes Trio up, which looks for events and
sleeps again.

A loop in C runs no handler. It cannot be interrupted; but the arrival of SIGTERM is noticed even
then, by a handler of `faulthandler`, which runs at once and calls the previous handler.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import trio

from flux_trio.jobtap.errors import PluginLoop

SIGNAL: Final = signal.SIGURG

_HOST: Final = Path(__file__).parent
_PACKAGE: Final = _HOST.parent
_NOT_THEIRS: Final = (f"{_PACKAGE}/", f"{Path(trio.__file__).parent}/")
_PLUGINS: Final = (f"{_HOST}/builtins/", f"{_PACKAGE}/plugins/")
# Here code of plugins is called, and every exception of theirs is caught.
_CALLERS: Final = frozenset(
    f"{_HOST}/{name}.py"
    for name in ("calling", "counter", "dispatch", "failures", "handlers", "loading", "watchdog")
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
        self.missed = False  # the last signal came while the code was not the plugin's
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
        self._text, self.missed, self._target = text, False, mark
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
            self.missed = True
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
