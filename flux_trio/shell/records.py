"""The record of a job in the shell host: a file of JSON lines with the states of its tasks.

Creating the file makes a start happen at most once, even if another client asks another host again.
Records are not flushed to the disk: they must outlive a host, but not the machine, because no
process of a job outlives the machine.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from flux_trio.process.console import STDERR

if TYPE_CHECKING:
    from pathlib import Path

RECORD_SUFFIX: Final = ".record"
_RECORD_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Accepted(msgspec.Struct, tag="accepted", array_like=True):
    """The first line of a record: the number of tasks."""

    ntasks: int


class Launched(msgspec.Struct, tag="launched", array_like=True):
    """A process. Its start time (clock ticks since boot) excludes later ones with its id.

    Of the jobs whose records name a cgroup, the one with the greatest `use` had it last.
    """

    taskid: int
    pid: int
    starttime: int
    cgroup: str = ""  # the directory; empty if the job has no cgroup
    use: int = 0


class Failed(msgspec.Struct, tag="failed", array_like=True):
    """A task that could not be launched."""

    taskid: int
    status: int
    text: str


class Ended(msgspec.Struct, tag="ended", array_like=True):
    """The wait(2) status of a task; None if it is lost."""

    taskid: int
    status: int | None


Line: TypeAlias = Accepted | Launched | Failed | Ended
_decode_line = msgspec.json.Decoder[Line](Line).decode
_encode_line = msgspec.json.Encoder().encode


def create_record(path: str, line: Accepted) -> None:
    """Create a record with its first line. On OSError (FileExistsError) nothing is created."""
    descriptor = os.open(path, _RECORD_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write(descriptor, line)
    except OSError as error:
        remove(path)
        error.filename = path  # the error of a write has no file name
        raise
    finally:
        os.close(descriptor)


def append_record(path: str, line: Line) -> None:
    """Append a line. Raises OSError."""
    descriptor = os.open(path, _RECORD_FLAGS)
    try:
        _write(descriptor, line)
    finally:
        os.close(descriptor)


def read_record(path: Path) -> list[Line]:
    """Return the lines of a record, without lines that a full disk cut off. Raises OSError."""
    lines = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        with suppress(msgspec.MsgspecError):
            lines.append(_decode_line(line))
    return lines


def encode_record(lines: Iterable[Line]) -> bytes:
    """Return the content of a record."""
    return b"".join(_encode_line(line) + b"\n" for line in lines)


def jobid_of(record: Path) -> int | None:
    """Return the job of a record's file name; None if a host never uses the name."""
    stem = record.stem
    return int(stem) if stem.isascii() and stem.isdecimal() and str(int(stem)) == stem else None


def remove(path: str) -> None:
    """Remove a file; if that fails, log it and leave the file."""
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - a Path takes as long again
    except OSError as error:
        STDERR.write(f"cannot remove {path}: {error.strerror}")


def _write(descriptor: int, line: Line) -> None:
    data = _encode_line(line) + b"\n"
    if os.write(descriptor, data) < len(data):  # the disk is full
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
