"""Writing a trace as it happens, as JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.trace.record import Record, record_to_json

BUFFER_BYTES: Final = 1 << 16
"""What waits to be written at most, and is lost with a process that is killed."""


class JsonLines:
    """A sink that hands whole lines to `write`, many at a time.

    `write` takes bytes and is called in the sink's own thread: it should be a file's. The last
    lines are written by `close`, after which records are ignored. When `write` fails (a full disk)
    the trace ends there and `error` says why: what is being traced must not fail for it.
    """

    def __init__(self, write: Callable[[bytes], object], buffer_bytes: int = BUFFER_BYTES) -> None:
        self._write = write
        self._max = buffer_bytes
        self._lines: list[bytes] = []
        self._size = 0
        self._closed = False
        self.error: OSError | None = None

    def append(self, record: Record) -> None:
        """Take the next record (a Sink)."""
        if self._closed:
            return
        line = record_to_json(record) + b"\n"
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._max:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        lines, self._lines, self._size = self._lines, [], 0
        if lines and self.error is None:
            try:
                self._write(b"".join(lines))
            except OSError as error:
                self.error = error
                self._closed = True

    def close(self) -> None:
        """Write what waits, and take nothing more."""
        self._closed = True
        self.flush()
