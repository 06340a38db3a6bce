"""The instance's log: a ring of entries, sinks that get each new entry, and the entries on disk.

An entry on disk is a line of JSON in the file `log`, which the next instance in the state directory
reads. When the file is full it becomes `log.1`, and its predecessor is removed, so that there are
at least as many entries as the ring has, or, if they are long, one file full of them. An entry
survives the process, not the machine: no entry waits for the disk. What cannot be written, for
example on a full disk, is in memory only.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.formats import printable, shortened
from flux_trio.formats.spelling import spelled
from flux_trio.messages import Level
from flux_trio.process.private import open_private, read_private

LOG_RING_SIZE: Final = 1024  # flux-core's default
TEXT_CHARS_MAX: Final = 1 << 15  # of an entry; the longest are stack traces of plugins


class LogEntry(msgspec.Struct, frozen=True):
    """One line: time (seconds since the Unix epoch), severity (0-7), party, text.

    Party and text may come from other users. The entry makes them printable, so that each entry
    stays on one line wherever it is shown, and limits their length. It names jobs as people type
    them.
    """

    t: float
    level: int
    party: str
    text: str

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "party", printable(self.party))
        text = shortened(spelled(self.text), TEXT_CHARS_MAX)
        msgspec.structs.force_setattr(self, "text", printable(text))

    def __str__(self) -> str:
        return f"{self.party}.{Level(self.level).name.lower()}: {self.text}"


LOG_FILE: Final = "log"
OLDER_LOG_FILE: Final = "log.1"
FILE_BYTES_MAX: Final = 4 << 20  # of each of the two files; usual entries have 100 bytes


class LogFile:
    """The entries in `directory`; no method raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOG_FILE
        self._older = directory / OLDER_LOG_FILE
        self._descriptor: int | None = None
        self._nentries = 0
        self._nbytes = 0
        self._is_torn = True  # the file may end with a part of a line

    def read(self) -> list[LogEntry]:
        """Return the latest entries of earlier instances, the oldest first."""
        newer = list(_entries(self._path))
        self._nentries = len(newer)
        with suppress(OSError):
            self._nbytes = self._path.stat().st_size
        return [*_entries(self._older), *newer][-LOG_RING_SIZE:]

    def append(self, entry: LogEntry) -> None:
        line = msgspec.json.encode(entry) + b"\n"
        if self._is_torn:
            line = b"\n" + line
        try:
            if self._nentries >= LOG_RING_SIZE or self._nbytes + len(line) > FILE_BYTES_MAX:
                self._begin_another()
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._descriptor = open_private(self._path, flags)
            written = os.write(self._descriptor, line)
        except OSError:
            self._is_torn = True
            return
        self._is_torn = written < len(line)
        self._nentries += 1
        self._nbytes += written

    def clear(self) -> None:
        """Remove all entries."""
        self.close()
        for path in (self._path, self._older):
            with suppress(OSError):
                path.unlink()
        self._nentries = self._nbytes = 0

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _begin_another(self) -> None:
        self.close()
        with suppress(FileNotFoundError):  # somebody has moved or removed it
            self._path.replace(self._older)
        self._nentries = self._nbytes = 0


def _entries(path: Path) -> Iterator[LogEntry]:
    """Yield the entries of a file, without those that a full disk has cut."""
    try:
        lines = read_private(path).split(b"\n")
    except OSError:
        return
    for line in lines:
        with suppress(msgspec.MsgspecError):
            yield msgspec.json.decode(line, type=LogEntry)


class LogBook:
    """The latest entries, and the sinks that get every entry.

    With `file` the entries of earlier instances come first, and the new ones are kept there.
    """

    def __init__(self, file: LogFile | None = None) -> None:
        self._file = file
        earlier = file.read() if file is not None else ()
        self._entries: deque[LogEntry] = deque(earlier, maxlen=LOG_RING_SIZE)
        self.sinks: list[Callable[[LogEntry], None]] = []
        self.written = 0  # entries since the start

    def write(self, entry: LogEntry) -> None:
        """Store `entry` and pass it to every sink."""
        self._entries.append(entry)
        self.written += 1
        if self._file is not None:
            self._file.append(entry)
        for sink in self.sinks:
            sink(entry)

    def clear(self) -> None:
        self._entries.clear()
        if self._file is not None:
            self._file.clear()

    def close(self) -> None:
        """Close the file; a later entry opens it again."""
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[LogEntry]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)
