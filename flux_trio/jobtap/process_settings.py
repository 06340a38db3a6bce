"""What a plugin must not change in the process of its instance.

The code of a plugin runs in the instance's process, and can change everything there. This is put
back: the recursion limit after each call (`calling`); the handlers of signals and the limit of open
files within a second. Closing a descriptor of the instance is refused: it would end the instance,
or a file that gets the same number would be written to in place of the state file.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from flux_trio.jobtap.interrupting import is_plugins

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
