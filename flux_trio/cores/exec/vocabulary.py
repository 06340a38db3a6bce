"""The inputs and actions of the exec core that are not messages or timers."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from flux_trio.formats.meanings import JobId
from flux_trio.shell.protocol import ShellNotice, ShellRequest

SIGKILL: Final = 9
SIGUSR1: Final = 10
SIGALRM: Final = 14  # at the time limit, as flux-core does
SIGTERM: Final = 15


class ToShell(msgspec.Struct, frozen=True):
    """Send `request` to the shell host; it is dropped while there is no connection."""

    request: ShellRequest


class FilePart(msgspec.Struct, frozen=True):
    """Up to `nbytes` bytes that a task has written to a stream, from `offset` on."""

    taskid: int
    stream: str
    offset: int
    nbytes: int


class ReadOutput(msgspec.Struct, frozen=True):
    """Read `parts` of a job's output; the input `OutputRead` with the same `number` has them."""

    number: int  # of the job's guest namespace
    id: JobId
    parts: tuple[FilePart, ...]


class Chunk(msgspec.Struct, frozen=True):
    """Bytes that a task has written, at least one, at `offset`."""

    taskid: int
    stream: str
    offset: int
    data: bytes


class OutputRead(msgspec.Struct, frozen=True):
    """The output that a `ReadOutput` has found; parts without a byte are left out."""

    number: int
    id: JobId
    chunks: tuple[Chunk, ...]


class ShellConnected(msgspec.Struct, frozen=True):
    """A shell host answers; a `Listing` of its ended jobs follows.

    Requests that were sent before may be lost.
    """


class ShellLost(msgspec.Struct, frozen=True):
    """The connection has ended; the client makes another one."""

    reason: str


class ShellFailed(msgspec.Struct, frozen=True):
    """No shell host answers and none can be started; the client tries again."""

    reason: str


ShellInput: TypeAlias = ShellConnected | ShellLost | ShellFailed | ShellNotice
