"""The journal of the state file: commits whose changes are not yet in the tables of values.

A commit is durable when its row is written. To write each change into the tables of values costs
five times as much, and most keys change several times within seconds. So the tables are written
later, for many commits at once. Until then the changes are also in memory (`pending.py`).

A row has the number of the commit's last change, the ops as MessagePack, and a checksum of both.
Changes are counted: the number of the commit before is lower by the number of ops. So a row that is
missing, altered or left over from earlier is noticed.

The changes of many commits are written into the tables in slices, each a transaction of its own, so
that a new commit need not wait long (`changes.py`). Meanwhile the table `progress` has one row:
how many of the changes are written already. The last slice removes it, and the commits' rows.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from flux_trio.cores.kvs.ops import Op

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[Op])


class Commit(msgspec.Struct, frozen=True):
    """A commit of the journal: its ops, the number of its last change, and its size in bytes."""

    ops: list[Op]
    number: int
    nbytes: int


class Progress(msgspec.Struct, frozen=True):
    """Of the changes after `first` up to `last`, combined by `Pending`, `done` are written."""

    first: int
    last: int
    done: int

    @property
    def sum(self) -> int:
        return zlib.crc32(f"{self.first} {self.last} {self.done}".encode())


class JournalDamaged(Exception):
    """A row of the journal is missing or altered; the text says which."""


def write(db: sqlite3.Connection, ops: list[Op], before: int) -> Commit:
    """Make `ops` durable, as the changes after number `before`, in a transaction of their own."""
    content = _ENCODER.encode(ops)
    number = before + len(ops)
    db.execute("INSERT INTO journal VALUES (?, ?, ?)", (number, content, _sum(number, content)))
    return Commit(ops, number, len(content))


def read(db: sqlite3.Connection, before: int | None) -> Iterator[Commit]:
    """Yield the commits after the change number `before`, in order; all of them for None.

    Raises JournalDamaged before the first commit that is not as it was written, and sqlite3.Error.
    """
    rows = db.execute("SELECT number, CAST(ops AS BLOB), sum FROM journal ORDER BY number")
    for number, content, found in rows:
        if type(content) is not bytes or _sum(number, content) != found:
            raise JournalDamaged(f"those up to {number} are not what was committed")
        ops = _DECODER.decode(content)
        if before not in (None, number - len(ops)):
            raise JournalDamaged(f"some before {number} are missing")
        yield Commit(ops, number, len(content))
        before = number


def write_progress(db: sqlite3.Connection, progress: Progress) -> None:
    """Store `progress`, in the transaction of a slice."""
    values = (progress.first, progress.last, progress.done, progress.sum)
    db.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)", values)


def read_progress(db: sqlite3.Connection) -> Progress | None:
    """Return what `write_progress` has stored, None after the last slice.

    Raises JournalDamaged and sqlite3.Error.
    """
    row = db.execute("SELECT first, last, done, sum FROM progress").fetchone()
    if row is None:
        return None
    progress = Progress(*row[:3])
    if progress.sum != row[3]:
        raise JournalDamaged("it is not known how many of them are written already")
    return progress


def clear(db: sqlite3.Connection, last: int) -> None:
    """Remove the commits up to the change number `last`, in the transaction of the last slice."""
    db.execute("DELETE FROM journal WHERE number <= ?", (last,))
    db.execute("DELETE FROM progress")


def _sum(number: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(b"%d" % number))
