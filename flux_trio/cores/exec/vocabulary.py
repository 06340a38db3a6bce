"""What the exec core says and hears beside messages: shell host, output files."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from flux_trio.cores.streams import StreamKey
from flux_trio.cores.turns import CommonAction, CommonInput
from flux_trio.formats.meanings import JobId
from flux_trio.shell.protocol import ShellNotice, ShellRequest


class ToShell(msgspec.Struct, frozen=True):
    """Send `request` to the shell host; dropped while there is no connection."""

    request: ShellRequest


class FilePart(msgspec.Struct, frozen=True):
    """Up to `nbytes` bytes of what a task has written to a stream, from `offset` on."""

    taskid: int
    stream: str
    offset: int
    nbytes: int


class ReadOutput(msgspec.Struct, frozen=True):
    """Read `parts` of a job's output and hand them back as `OutputRead`, with the same `key`.

    `key` is the sender and matchtag of who attached, None for what is to be kept.
    """

    key: StreamKey | None
    id: JobId
    parts: tuple[FilePart, ...]


class Chunk(msgspec.Struct, frozen=True):
    """Bytes that a task has written, at least one, at `offset`."""

    taskid: int
    stream: str
    offset: int
    data: bytes


class OutputRead(msgspec.Struct, frozen=True):
    """What was found of a `ReadOutput`; parts without a byte are left out."""

    key: StreamKey | None
    id: JobId
    chunks: tuple[Chunk, ...]


class ShellConnected(msgspec.Struct, frozen=True):
    """A shell host answers; which jobs it has that ended follows as `Listing`.

    What was sent before may not have reached it.
    """


class ShellLost(msgspec.Struct, frozen=True):
    """The connection has ended; another is being made."""

    reason: str


class ShellFailed(msgspec.Struct, frozen=True):
    """No shell host answers and none can be started; it is being tried again."""

    reason: str


ShellInput: TypeAlias = ShellConnected | ShellLost | ShellFailed | ShellNotice

ExecInput: TypeAlias = CommonInput | OutputRead | ShellInput
ExecAction: TypeAlias = CommonAction | ToShell | ReadOutput
