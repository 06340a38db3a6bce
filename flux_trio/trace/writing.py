"""Writes a trace as JSON lines while it is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.trace.record import Record, record_to_json

BUFFER_BYTES: Final = 1 << 16
"""Most bytes that wait to be written; a killed process loses them."""


class JsonLines:
    """A sink that passes complete lines to `write`, many at a time.

    `write` takes bytes, like a file's, and is called in the sink's own thread. `close` writes the
    last lines; later records are ignored. If `write` fails (a full disk), the trace ends and
    `error` has the reason, because the traced instance must not fail.
    """

    def __init__(self, write: Callable[[bytes], object], buffer_bytes: int = BUFFER_BYTES) -> None:
        self._write = write
        self._max = buffer_bytes
        self._lines: list[bytes] = []
        self._size = 0
        self._closed = False
        self.error: OSError | None = None

    def append(self, record: Record) -> None:
        """Add the next record (a Sink)."""
        if self._closed:
            return
        line = record_to_json(record) + b"\n"
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._max:
            self.flush()

    def flush(self) -> None:
        """Write the waiting lines."""
        lines, self._lines, self._size = self._lines, [], 0
        if lines and self.error is None:
            try:
                self._write(b"".join(lines))
            except OSError as error:
                self.error = error
                self._closed = True

    def close(self) -> None:
        """Write the waiting lines and ignore later records."""
        self._closed = True
        self.flush()
