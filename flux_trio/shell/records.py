"""The record of a job in the shell host: a file of lines with the states of its tasks.

Creating the file makes a start happen at most once, even if another client asks another host again.
Records are not flushed to the disk: they must outlive a host, but not the machine, because no
process of a job outlives the machine.

A line is JSON, a space, and a checksum: the CRC-32 of the JSON, continued from the line before. The
first line continues from the job's id. So a line that was changed, removed, repeated or moved, also
to the record of another job, is noticed, and what follows it does not count. A last line without
its end was cut off by a full disk or by the end of the host; it counts as never written.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from flux_trio.process.console import STDERR
from flux_trio.process.private import PrivateDirectory

RECORD_SUFFIX: Final = ".record"
_GOT_BYTES_MAX: Final = 40  # of what stands in the place of a checksum


class LabeledFile(msgspec.Struct, frozen=True, array_like=True):
    """The file that gets the lines which a task writes to a stream, each with a label."""

    taskid: int
    stream: str
    path: str  # absolute


class Accepted(msgspec.Struct, tag="accepted", array_like=True, omit_defaults=True):
    """The first line of a record: the number of tasks, and the files with labels."""

    ntasks: int
    labeled: list[LabeledFile] = []


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


class FileSum(msgspec.Struct, frozen=True, array_like=True):
    """What a task has written to a stream: how many bytes, and their CRC-32."""

    taskid: int
    stream: str
    size: int
    crc: int


class Written(msgspec.Struct, tag="written", array_like=True):
    """What the tasks had written when the last process of the job ended, without empty files."""

    files: list[FileSum]


Line: TypeAlias = Accepted | Launched | Failed | Ended | Written
_decode_line = msgspec.json.Decoder[Line](Line).decode
_encode_line = msgspec.json.Encoder().encode


class Record:
    """The record of one job in `directory`, and where its next line goes.

    `damage` says what is wrong with the file, "" if nothing is.
    """

    __slots__ = ("_crc", "_directory", "_jobid", "_size", "damage", "name")

    def __init__(self, directory: PrivateDirectory, jobid: int) -> None:
        self.name = record_name(jobid)
        self.damage = ""
        self._directory = directory
        self._jobid = jobid
        self._size = 0  # bytes of its whole lines
        self._crc = _first_crc(jobid)

    def create(self, line: Accepted) -> None:
        """Create the file with its first line. On OSError (FileExistsError) nothing is created."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = self._directory.open(self.name, flags)
        try:
            self._write(descriptor, [line])
        except OSError as error:
            self.remove()
            error.filename = self.path  # the error of a write has no file name
            raise
        finally:
            os.close(descriptor)

    def append(self, lines: Iterable[Line]) -> None:
        """Append lines, all or none. Raises OSError."""
        descriptor = self._directory.open(self.name, os.O_WRONLY)
        try:
            self._write(descriptor, lines)
        finally:
            os.close(descriptor)

    def read(self) -> list[Line]:
        """Return the lines as far as they are whole; set `damage`. Raises OSError."""
        data = self._directory.read(self.name)
        found = parse_record(self._jobid, data)
        self._size, self._crc = found.size, found.crc
        if found.problem:
            self.damage = f"{self.path}: {found.problem}"
            self._size = len(data)  # what is damaged stays
        return found.lines

    def remove(self) -> None:
        """Remove the file; if that fails, log it."""
        remove(self._directory, self.name)

    @property
    def path(self) -> str:
        return f"{self._directory.path}/{self.name}"

    def _write(self, descriptor: int, lines: Iterable[Line]) -> None:
        data, crc = _encoded(lines, self._crc)
        # in the place of a line that was cut off
        if os.pwrite(descriptor, data, self._size) < len(data):  # the disk is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(data)
        self._crc = crc


class Parsed(NamedTuple):
    """The whole lines of a record, their size in bytes, and the checksum of the last one.

    `problem` says why there are no more, "" if the others are whole too.
    """

    lines: list[Line]
    size: int
    crc: int
    problem: str


def parse_record(jobid: int, data: bytes) -> Parsed:
    """Read the content of a record."""
    lines: list[Line] = []
    size, crc = 0, _first_crc(jobid)
    for text in data.split(b"\n")[:-1]:
        where = f"line {len(lines) + 1}"
        body, _, noted = text.rpartition(b" ")
        found = zlib.crc32(body, crc)
        if noted != _spelled(found):
            expected, got = (
                _spelled(found).decode(),
                noted[:_GOT_BYTES_MAX].decode(errors="replace"),
            )
            return Parsed(lines, size, crc, f"{where}: expected the checksum {expected}, got {got}")
        try:
            lines.append(_decode_line(body))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Parsed(lines, size, crc, f"{where}: {error}")
        size += len(text) + 1
        crc = found
    return Parsed(lines, size, crc, "")


def encode_record(jobid: int, lines: Iterable[Line]) -> bytes:
    """Return the content of a record."""
    return _encoded(lines, _first_crc(jobid))[0]


def record_name(jobid: int) -> str:
    return f"{jobid}{RECORD_SUFFIX}"


def jobid_of(name: str) -> int | None:
    """Return the job of a record's file name; None if a host never uses the name."""
    stem = name.removesuffix(RECORD_SUFFIX)
    return int(stem) if stem.isascii() and stem.isdecimal() and str(int(stem)) == stem else None


def remove(directory: PrivateDirectory, name: str) -> None:
    """Remove a file; if that fails, log it and leave the file."""
    try:
        directory.unlink(name)
    except OSError as error:
        STDERR.write(f"cannot remove {error.filename}: {error.strerror}")


def _encoded(lines: Iterable[Line], crc: int) -> tuple[bytes, int]:
    """Return the text of lines after one with the checksum `crc`, and the last checksum."""
    texts = []
    for line in lines:
        body = _encode_line(line)
        crc = zlib.crc32(body, crc)
        texts.append(b"%b %b\n" % (body, _spelled(crc)))
    return b"".join(texts), crc


def _first_crc(jobid: int) -> int:
    return zlib.crc32(b"%d" % jobid)


def _spelled(crc: int) -> bytes:
    return b"%08x" % crc
