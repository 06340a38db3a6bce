"""Lines on standard output and standard error that never end or delay the process.

The standard error of an instance or of a shell host may be a file on a full disk, closed, or a pipe
whose reader is gone (EPIPE), does not read, or has made it non-blocking (EAGAIN). A line that
cannot be written at once is lost; the next line that can be written reports how many were lost.
"""

from __future__ import annotations

import locale
import os
import select
import sys
from contextlib import suppress
from typing import Final, Literal

CHUNK_BYTES: Final = select.PIPE_BUF
"""A pipe that poll(2) reports as writable accepts this many bytes without waiting (pipe(7))."""

LAST_STANDARD_DESCRIPTOR: Final = 2

FORCE_ASCII: Final = "FLUX_F58_FORCE_ASCII"
"""A variable, with any value."""

UTF8_MODE: Final = ("-X", "utf8")  # of Python


class Lines:
    """The lines that this process writes to `sys.stdout` or `sys.stderr`."""

    def __init__(self, stream_name: str) -> None:
        self._stream_name = stream_name
        self._nlost = 0
        self._is_torn = False  # the last line was written without its end

    def write(self, text: str) -> None:
        """Write `text` and a newline as far as possible without waiting; never raises."""
        if self._nlost and self._write(f"({self._nlost} lines were lost here)\n"):
            self._nlost = 0
        if self._nlost or not self._write(f"{text}\n"):
            self._nlost += 1

    def _write(self, text: str) -> bool:
        stream = getattr(sys, self._stream_name)
        if stream is None:  # it was closed when this process started
            return False
        try:
            stream.flush()
            descriptor = stream.fileno()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                return bool(stream.write(text))  # an object in this process, as in tests
            return False
        return self._write_bytes(descriptor, text.encode(errors="backslashreplace"))

    def _write_bytes(self, descriptor: int, data: bytes) -> bool:
        if self._is_torn:
            data = b"\n" + data
        is_begun = False
        while data:
            try:
                if not _is_writable(descriptor):
                    break
                written = os.write(descriptor, data[:CHUNK_BYTES])
            except OSError:
                break
            is_begun = True
            data = data[written:]
        if is_begun:
            self._is_torn = bool(data)
        return not data


def fill_standard_descriptors() -> None:
    """Open /dev/null for each of the descriptors 0 to 2 that is closed.

    Otherwise the next file or socket would get that number, and text that libraries and children
    write for users would go into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD_DESCRIPTOR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def id_form() -> Literal["f58", "f58plain"]:
    """Return the form in which readers of this process's text see job ids (RFC 19).

    As in flux-core: F58 begins with ƒ only in a UTF-8 locale, unless FORCE_ASCII is set.
    """
    is_utf8 = locale.nl_langinfo(locale.CODESET).upper() == "UTF-8"
    return "f58" if is_utf8 and FORCE_ASCII not in os.environ else "f58plain"


def own_command(module: str, *words: str) -> list[str]:
    """Return the command of a module of this package as a process of its own.

    In UTF-8 mode Python reads words, names of files and variables as UTF-8 in each locale, and
    gives other bytes back as they came (PEP 383, PEP 540).
    """
    return [sys.executable, *UTF8_MODE, "-m", module, *words]


def _is_writable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))


STDOUT: Final = Lines("stdout")
STDERR: Final = Lines("stderr")
