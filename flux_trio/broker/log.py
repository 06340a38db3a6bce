"""The instance's log: a ring of entries; sinks get each new entry."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from flux_trio.broker.log_entry import LOG_RING_SIZE, LogEntry
from flux_trio.broker.log_file import LogFile


class LogBook:
    """The latest entries, and the sinks that get every entry.

    With `file` the entries of earlier instances come first, and the new ones are kept there.
    """

    def __init__(self, file: LogFile | None = None) -> None:
        self._file = file
        earlier = file.read() if file is not None else ()
        self._entries: deque[LogEntry] = deque(earlier, maxlen=LOG_RING_SIZE)
        self.sinks: list[Callable[[LogEntry], None]] = []

    def write(self, entry: LogEntry) -> None:
        """Store `entry` and pass it to every sink."""
        self._entries.append(entry)
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
