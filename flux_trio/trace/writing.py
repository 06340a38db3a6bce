"""Sinks of a trace: one writes it as JSON lines, one passes many records on at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.trace.record import (
    ENDED,
    Kind,
    Notes,
    Receipts,
    Record,
    Sink,
    Written,
    records_to_json,
)
from flux_trio.trace.secrets import lines_without_secrets

BUFFER_BYTES: Final = 1 << 16
"""Most bytes that wait to be written; a killed process loses them."""

BATCH: Final = 64
"""Records that are encoded at once, which takes less time. They are lost as well. What is received
or noted at once counts as one, but so many of them are encoded at once: none is kept for long."""

_AT_ONCE: Final = (Receipts, Notes)


class JsonLines:
    """A sink that passes complete lines to `write`, many at a time.

    `write` takes bytes, like a file's, and is called in the sink's own thread. `close` writes the
    last lines; later records are ignored. If `write` fails (a full disk), the trace ends and
    `error` has the reason, because the traced instance must not fail. New tokens are left out, and
    without `environments` those of jobs.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        buffer_bytes: int = BUFFER_BYTES,
        *,
        environments: bool = True,
    ) -> None:
        self._write = write
        self._max = buffer_bytes
        self._environments = environments
        self._last: Written | None = None  # of the records that are encoded
        self._records: list[Written] = []
        self._since = 0  # the first place whose record was given; 0 before that
        self._lines: list[bytes] = []
        self._nbytes = 0  # of them
        self._closed = False
        self.error: OSError | None = None

    def append(self, record: Written) -> None:
        """Add the next record (a Sink and a TurnSink)."""
        records = self._records
        records.append(record)
        is_large = isinstance(record, _AT_ONCE) and len(record.taken) >= BATCH
        if is_large or len(records) >= BATCH:
            self._encode()
            if self._nbytes >= self._max:
                self.flush()

    def _encode(self) -> None:
        records, self._records = self._records, []
        if self._closed or not records:
            return
        if not self._since:
            first = records[0]
            # a turn has the place of a record that was not given
            is_turn = isinstance(first, Record) and first.kind == Kind.TURN
            self._since = first.n + 1 if is_turn else max(first.n, 1)
        self._last = records[-1]
        lines = records_to_json(records, self._since)
        lines = lines_without_secrets(lines, environments=self._environments)
        self._lines.append(lines)
        self._nbytes += len(lines)

    def flush(self) -> None:
        """Write the waiting lines."""
        self._encode()
        lines = b"".join(self._lines)
        self._lines, self._nbytes = [], 0
        if lines and self.error is None:
            try:
                self._write(lines)
            except OSError as error:
                self.error = error
                self._closed = True

    def end(self) -> None:
        """Say in a last record that the trace is whole; a reader misses it if a write failed."""
        self._encode()
        if self._last is not None:
            taken = self._last.taken if isinstance(self._last, _AT_ONCE) else (None,)
            n = self._last.n + max(len(taken), 1)
            self.append(Record(n, self._last.t, Kind.INSTANCE, "broker", data={"what": ENDED}))

    def close(self) -> None:
        """Write the waiting lines and ignore later records."""
        self.flush()
        self._closed = True


WAITING_MAX: Final = 4096
"""Records that may wait; they take a few MB. Most worlds have fewer."""


class Batches:
    """A sink that passes records to `take` in their order, WAITING_MAX at a time.

    Judging takes a fifth less time if it does not alternate with the work that it judges: each
    would drive the other's code and data out of the processor's caches.
    """

    def __init__(self, take: Sink, size: int = WAITING_MAX) -> None:
        self._take = take
        self._size = size
        self._records: list[Record] = []

    def append(self, record: Record) -> None:
        """Take the next record (a Sink)."""
        self._records.append(record)
        if len(self._records) >= self._size:
            self.flush()

    def flush(self) -> None:
        """Pass on the records that wait."""
        records, self._records = self._records, []
        for record in records:
            self._take(record)
