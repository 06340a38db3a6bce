"""A shell host that is begun early: its process imports while the instance that needs it does.

The process holds no lock and opens no file until it is told to go on, by a byte in its standard
input. If its input ends before, it ends.
"""

from __future__ import annotations

import subprocess
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from flux_trio.process.console import own_command

WHEN_TOLD: Final = "--when-told"


class BegunHost:
    """The process, until it is taken or dropped."""

    def __init__(self, directory: Path) -> None:
        """Begin the host of `directory`. Raises OSError."""
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            own_command("flux_trio.shell", str(directory), WHEN_TOLD),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def take(self) -> subprocess.Popen[bytes] | None:
        """Return the process, which the caller tells to go on; None if there is none."""
        process, self._process = self._process, None
        if process is not None and process.poll() is not None:  # it was killed
            _close(process)
            return None
        return process

    def drop(self) -> None:
        """End the process: nobody needs it."""
        process = self.take()
        if process is not None:
            end(process)
            _close(process)


begun_host: ContextVar[BegunHost | None] = ContextVar("begun_host", default=None)
"""The host that the next launch of this process takes."""


def tell(process: subprocess.Popen[bytes]) -> str:
    """Tell a host to go on, and wait until it listens or has failed; return its errors."""
    _, errors = process.communicate(b"\n")
    return errors.decode(errors="replace")


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a host that was not told, or does not listen yet."""
    process.kill()
    process.wait()


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stderr):
        if stream is not None:
            stream.close()
