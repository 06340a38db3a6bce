"""The tasks of the job that an instance is in: the first runs it, the others wait for its end.

If the others ended at once, the job would fail after its `exit-timeout`. They meet at a barrier of
PMI-1 (RFC 13), which the first task enters when the instance has ended.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

PMI_VARIABLE: Final = "PMI_FD"
MEET_S_MAX: Final = 5.0  # the first task waits no longer for the others, which wait for it
_SAID: Final = ("init pmi_version=1 pmi_subversion=1", "barrier_in", "finalize")
_BYTES: Final = 4096  # an answer has less


def wait_for_first_task(environ: Mapping[str, str]) -> None:
    """Return when the instance of the first task has ended; at once if the tasks have no PMI.

    Signals are for the instance: it ends in order, and this task after it.
    """
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    _meet(environ, None)


def release_further_tasks(environ: Mapping[str, str]) -> None:
    """Let the other tasks of the job end."""
    _meet(environ, MEET_S_MAX)


def _meet(environ: Mapping[str, str], limit_s: float | None) -> None:
    """Return when all tasks are here, or one of them or `limit_s` seconds have gone.

    Every answer is read: flux-core's shell does not see the end of a task that leaves one.
    """
    descriptor = environ.get(PMI_VARIABLE, "")
    if not descriptor.isdecimal():
        return
    with suppress(OSError), socket.socket(fileno=int(descriptor)) as door:
        door.settimeout(limit_s)
        for line in _SAID:
            door.sendall(f"cmd={line}\n".encode())
            answer = b""
            while not answer.endswith(b"\n"):
                if not (data := door.recv(_BYTES)):
                    return
                answer += data
