"""Tasks that ask for PMI, by which the tasks of one job find each other (RFC 13).

There is no PMI here. A program that finds none takes itself for the only task, and ends with exit
code 0. So the tasks of a job get a descriptor for the wire protocol of PMI-1. Who writes to it is
noticed, and reads the end of the file as an answer. Programs that look for PMI in another way, as
for PMIx, are not noticed.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from flux_trio.shell.protocol import Task

# Each takes a descriptor of the host while its job runs; further jobs go without.
DOORS_MAX: Final = 256


class PmiDoors:
    """The host's ends of the descriptors; those in `came` are for the host to watch."""

    def __init__(self) -> None:
        self.came: list[tuple[int, socket.socket]] = []  # with the job's id
        self._nopen = 0

    @contextmanager
    def door(self, jobid: int, ntasks: int) -> Iterator[int | None]:
        """Yield the descriptor for the tasks that are launched in the block; None without one.

        One task alone needs no PMI.
        """
        theirs = None
        if ntasks > 1 and self._nopen < DOORS_MAX:
            with suppress(OSError):  # no descriptor is left, as the launch will notice
                ours, theirs = socket.socketpair()
        if theirs is None:
            yield None
            return
        self.came.append((jobid, ours))
        self._nopen += 1
        with theirs:
            yield theirs.fileno()

    def asked(self, ours: socket.socket) -> bool:
        """Close the host's end, which is readable; return whether a task has asked."""
        self._nopen -= 1
        with ours:
            return bool(ours.recv(1))


def variables(door: int | None, task: Task, ntasks: int) -> dict[str, str]:
    """Return the variables by which a program finds the door."""
    if door is None:
        return {}
    return {"PMI_FD": str(door), "PMI_RANK": str(task.taskid), "PMI_SIZE": str(ntasks)}
