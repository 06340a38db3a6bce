"""The record of a job in the shell host: a file of JSON lines that says what became of its tasks.

Making the file is what makes a start happen at most once, whoever asks again and whichever host
answers. Records are not flushed to the disk: they outlive a host, and no process outlives the
machine.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from flux_trio.console import STDERR

if TYPE_CHECKING:
    from pathlib import Path

RECORD_SUFFIX: Final = ".record"
_RECORD_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Accepted(msgspec.Struct, tag="accepted", array_like=True):
    """The first line of a record: the job has so many tasks."""

    ntasks: int


class Launched(msgspec.Struct, tag="launched", array_like=True):
    """A process, told from later ones with its id by its start time (clock ticks since boot)."""

    taskid: int
    pid: int
    starttime: int
    cgroup: str = ""  # the directory; empty if the job has none of its own


class Failed(msgspec.Struct, tag="failed", array_like=True):
    """A task that could not be launched."""

    taskid: int
    status: int
    text: str


class Ended(msgspec.Struct, tag="ended", array_like=True):
    """The wait(2) status of a task; None when it is lost."""

    taskid: int
    status: int | None


Line: TypeAlias = Accepted | Launched | Failed | Ended
_decode_line = msgspec.json.Decoder[Line](Line).decode
_encode_line = msgspec.json.Encoder().encode


def create_record(path: Path, line: Accepted) -> None:
    """Make a record with its first line, or nothing. OSError; FileExistsError if it is there."""
    descriptor = os.open(path, _RECORD_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write(descriptor, line)
    except OSError as error:
        remove(path)
        error.filename = str(path)  # a write has none
        raise
    finally:
        os.close(descriptor)


def append_record(path: Path, line: Line) -> None:
    """Add a line. OSError."""
    descriptor = os.open(path, _RECORD_FLAGS)
    try:
        _write(descriptor, line)
    finally:
        os.close(descriptor)


def read_record(path: Path) -> list[Line]:
    """The lines of a record, without one that a full disk has cut off. OSError."""
    lines = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        with suppress(msgspec.MsgspecError):
            lines.append(_decode_line(line))
    return lines


def jobid_of(record: Path) -> int | None:
    """The job whose record has that name; None for a name that a host does not give."""
    stem = record.stem
    return int(stem) if stem.isascii() and stem.isdecimal() and str(int(stem)) == stem else None


def remove(path: Path) -> None:
    """Remove a file; one that cannot be removed is left, and ends nothing."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        STDERR.write(f"{path} cannot be removed: {error.strerror}")


def _write(descriptor: int, line: Line) -> None:
    data = _encode_line(line) + b"\n"
    if os.write(descriptor, data) < len(data):  # what the disk had room for
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
