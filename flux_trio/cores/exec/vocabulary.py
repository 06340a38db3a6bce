"""What the exec core says and hears beside messages: shell host, output files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from flux_trio.shell.protocol import ShellNotice, ShellRequest


@dataclass(frozen=True, slots=True)
class ToShell:
    """Send `request` to the shell host; dropped while there is no connection."""

    request: ShellRequest


@dataclass(frozen=True, slots=True)
class Part:
    """Up to `nbytes` bytes of what a task has written to a stream, from `offset` on."""

    taskid: int
    stream: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """Read `parts` of a job's output and hand them back as `OutputRead`, with the same `key`.

    `key` is the sender and matchtag of who attached, None for what is to be kept.
    """

    key: tuple[str, int] | None
    id: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that a task has written, at least one, at `offset`."""

    taskid: int
    stream: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class OutputRead:
    """What was found of a `ReadOutput`; parts without a byte are left out."""

    key: tuple[str, int] | None
    id: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class ShellConnected:
    """A shell host answers; which jobs it has that ended follows as `Listing`.

    What was sent before may not have reached it.
    """


@dataclass(frozen=True, slots=True)
class ShellLost:
    """The connection has ended; another is being made."""

    reason: str


@dataclass(frozen=True, slots=True)
class ShellFailed:
    """No shell host answers and none can be started; it is being tried again."""

    reason: str


ShellInput: TypeAlias = ShellConnected | ShellLost | ShellFailed | ShellNotice
