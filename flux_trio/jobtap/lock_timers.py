"""What names and ends a process in which code in C keeps Python's lock: two timers without Python.

The thread of `LoopWatch` sets both again at each look. If it cannot, faulthandler writes the stacks
of all threads to the note after LOCK_S seconds. When the process has used the limit of CPU time
since, and LOCK_S more, in which a thread that can run says it better, SIGPROF ends it, and
faulthandler writes them again; without a note to standard error. The next process reads the note
(`reason_of_end`).

Both timers are those of the whole process, so that a program of others has none.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import dropwhile, takewhile
from math import inf
from pathlib import Path
from traceback import FrameSummary
from typing import Final

import msgspec
import trio

from flux_trio.process.console import STDERR
from flux_trio.process.private import open_private, read_private

LOCK_S: Final = 2.0  # seconds in which no Python runs, until the stacks are written
SAY_S: Final = 10.0  # seconds in which no Python ran, so that the log has it
BUSY_S: Final = 1.0  # the same if the watched thread has used so much CPU time meanwhile

_PACKAGE: Final = Path(__file__).parents[1]
_HOST: Final = (
    f"{_PACKAGE}{os.sep}",
    f"{Path(trio.__file__).parent}{os.sep}",
    "<frozen importlib",  # runs the files of plugins
)
_PLUGINS: Final = (
    f"{Path(__file__).parent / 'builtins'}{os.sep}",
    f"{_PACKAGE / 'plugins'}{os.sep}",
)
_STACK: Final = r"(?:Current t|T)hread 0x0*%x\b.*\n((?:  .*\n)*)"
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+)')
_HEADER: Final = re.compile(r"the watched thread is ([0-9a-f]+)\n")


def end_process(reason: str) -> None:
    """End the process at once, from any thread."""
    STDERR.write(f"flux-trio: {reason}")
    os._exit(1)


class OwnProcess(msgspec.Struct, frozen=True):
    """What a program gives that may be ended with its plugins.

    `end` ends the process, and gets the reason. The next process finds the reason in the file
    `note`.
    """

    note: Path | None = None
    end: Callable[[str], object] = end_process


own_process: Final[ContextVar[OwnProcess | None]] = ContextVar("own_process", default=None)
"""Set where a process has nothing but instances or worlds of ours; None in the programs of others,
which no plugin may end."""


@contextmanager
def ending_with_plugins(own: OwnProcess) -> Iterator[None]:
    """In this block, the process may be ended with plugins."""
    token = own_process.set(own)
    try:
        yield
    finally:
        own_process.reset(token)


def frames_of_plugin(stack: Iterable[FrameSummary]) -> list[FrameSummary]:
    """Return the frames of a plugin's code, which the host or Trio has called.

    The frames of `stack`, and those returned, come from the inside out.
    """
    inner = list(dropwhile(_is_host, stack))
    theirs = list(takewhile(lambda each: not _is_host(each), inner))
    return theirs if len(theirs) < len(inner) else []


def place_of(frames: Sequence[FrameSummary]) -> str:
    """Return " (file:line)": the innermost line in the file of the outermost of these frames."""
    for each in frames:
        if each.filename == frames[-1].filename:
            return f" ({each.filename}:{each.lineno})"
    return ""


def _is_host(frame: FrameSummary) -> bool:
    return frame.filename.startswith(_HOST) and not frame.filename.startswith(_PLUGINS)


class LockTimers:
    """The timers of a process and its note, if it can be written; `watched` is a thread's ident."""

    def __init__(self, note: Path | None, watched: int) -> None:
        self._note = note
        self._header = f"the watched thread is {watched:x}\n".encode()
        self._file = -1
        self._set_s = 0.0
        if note is not None:
            with suppress(OSError):  # such as a full disk
                self._file = open_private(note, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._empty()
        file = self._file if self._file >= 0 else 2
        faulthandler.register(signal.SIGPROF, file=file, chain=True)

    def _empty(self) -> None:
        """Let the note have no stacks."""
        with suppress(OSError):
            if self._file >= 0:
                os.ftruncate(self._file, 0)
                os.write(self._file, self._header)

    def set(self, limit_s: float) -> None:
        """Set both timers again."""
        self._set_s = time.monotonic()
        if self._file >= 0:
            faulthandler.dump_traceback_later(LOCK_S, file=self._file)
        signal.setitimer(signal.ITIMER_PROF, 0 if limit_s == inf else limit_s + LOCK_S)

    def look(self, used_s: float) -> str:
        """Return a text if no Python has run for long; the watched thread used `used_s` seconds
        of CPU time meanwhile.
        """
        seconds = time.monotonic() - self._set_s
        if seconds < LOCK_S:
            return ""
        place = self._place()
        self._empty()
        if seconds < SAY_S and used_s < BUSY_S:
            return ""
        return (
            f"no Python ran for {seconds:.1f} s: code in C kept Python's lock, or the process was "
            f"stopped{place}"
        )

    def _place(self) -> str:
        with suppress(OSError):
            return _place_in_note(os.pread(self._file, 1 << 20, 0).decode(errors="replace"))
        return ""

    def close(self) -> None:
        """Set no timer any more, and remove the note."""
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.unregister(signal.SIGPROF)
        if self._file >= 0 and self._note is not None:
            os.close(self._file)
            self._note.unlink(missing_ok=True)


def leave_note(note: Path, reason: str) -> None:
    """Tell the next process why this one ends. Raises OSError.

    The note is a new file: the thread that looks may still empty that of the timers.
    """
    note.unlink(missing_ok=True)
    file = open_private(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(file, reason.encode(errors="backslashreplace"))
    finally:
        os.close(file)


def reason_of_end(note: Path) -> str:
    """Return how the last process ended that had this note; "" if no plugin was the reason.

    The note is told once: it is removed.
    """
    try:
        text = read_private(note).decode(errors="replace")
        note.unlink()
    except OSError:
        return ""
    header = _HEADER.match(text)
    if header is None:
        return text
    if not text[header.end() :]:
        return ""
    return f"ended while code in C kept Python's lock{_place_in_note(text)}"


def _place_in_note(text: str) -> str:
    """Return " (file:line)": where the watched thread was when the stacks were written."""
    header = _HEADER.match(text)
    stacks = header and re.findall(_STACK % int(header[1], 16), text)
    if not stacks:
        return ""
    frames = [FrameSummary(file, int(line), "") for file, line in _FRAME.findall(stacks[-1])]
    return place_of(frames_of_plugin(frames))
