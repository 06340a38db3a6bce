"""The layout of the state file: its tables, and its checksums.

The text of a value is split into parts in the order of their numbers, so an append is one insert.
Every change has a number, larger than all earlier ones. Damage can be detected because each fact is
stored twice, in different B-trees:

- `part.sum` is a checksum of the part's key, number and text. If the text was committed in several
  pieces, `part.marks` has the end of each piece and the checksum up to there, so that the pieces of
  a damaged part can be told apart.
- `head` has one row per key: the number of its parts and the total of their checksums. A lost or
  altered part does not agree with its head; a lost head leaves parts without a head.
  `head.keysum` is a checksum of the key, so that a listing need not read parts.
- `account` is one row: the number of the last change, and the totals of all heads.
- The number of the last acknowledged change is in another file (`acknowledged.py`).

The changes of the latest commits are in the table `journal` first, with a checksum for each commit
(`journal.py`). `account.number` is the number of the last change that is in the other tables, or
that is being written into them.

CRC-32 detects every change of up to 32 consecutive bits; it misses a longer one once in 2**32.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

APPLICATION_ID: Final = 0x466C7578  # "Flux", at a fixed place in the file's header
LAYOUT: Final = 4  # stored as user_version
INCREMENTAL: Final = 2  # auto_vacuum mode: freed pages can be returned to the file system

Mark: TypeAlias = tuple[int, int]
"""The end of a piece of a part's text, in characters, and the checksum up to there."""

_LOW_BITS: Final = (1 << 32) - 1

_TABLES: Final = (
    "CREATE TABLE part (number INTEGER PRIMARY KEY, key TEXT NOT NULL, text TEXT NOT NULL,"
    " sum INTEGER NOT NULL, marks TEXT)",
    "CREATE INDEX part_by_key ON part (key)",
    "CREATE TABLE head (key TEXT PRIMARY KEY NOT NULL, keysum INTEGER NOT NULL,"
    " parts INTEGER NOT NULL, total INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE account (id INTEGER PRIMARY KEY, number INTEGER NOT NULL,"
    " parts INTEGER NOT NULL, total INTEGER NOT NULL)",
    "CREATE TRIGGER head_removed AFTER DELETE ON head BEGIN"
    " UPDATE account SET parts = parts - old.parts, total = total - old.total WHERE id = 0; END",
    "CREATE TABLE journal (number INTEGER PRIMARY KEY, ops BLOB NOT NULL, sum INTEGER NOT NULL)",
    "CREATE TABLE progress (first INTEGER PRIMARY KEY, last INTEGER NOT NULL,"
    " done INTEGER NOT NULL, sum INTEGER NOT NULL)",
)


def key_sum(key: str) -> int:
    """Return the checksum of a key, as stored in `head.keysum`."""
    return zlib.crc32(key.encode())


def part_sum(keysum: int, number: int, text: str) -> int:
    """Return the checksum of a part's key, number and text, as stored in `part.sum`."""
    return zlib.crc32(text.encode(), keysum ^ (number & _LOW_BITS) ^ (number >> 32))


def marks_of(keysum: int, number: int, pieces: Sequence[str]) -> list[Mark]:
    """Return the marks of a part's pieces. The checksum of the last one is `part_sum`."""
    end, found = 0, part_sum(keysum, number, "")
    marks = []
    for piece in pieces:
        end += len(piece)
        found = zlib.crc32(piece.encode(), found)
        marks.append((end, found))
    return marks


def whole_pieces(keysum: int, number: int, text: str, marks: Sequence[Mark]) -> str:
    """Return the pieces of a damaged part that are what was committed."""
    begin, before = 0, part_sum(keysum, number, "")
    whole = ""
    for end, found in marks:
        piece = text[begin:end]
        if zlib.crc32(piece.encode(), before) == found:
            whole += piece
        begin, before = end, found
    return whole


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run the statements of the block in one transaction; roll back on an error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def create(db: sqlite3.Connection) -> None:
    """Create the tables, in the caller's transaction."""
    for statement in _TABLES:
        db.execute(statement)
    db.execute("INSERT INTO account VALUES (0, 0, 0, 0)")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {LAYOUT}")


def schema_damage(db: sqlite3.Connection) -> str:
    """Return how the tables differ from those of `create`; "" if they do not."""
    found = {row[0] for row in db.execute("SELECT sql FROM sqlite_master")}
    altered = [statement for statement in _TABLES if statement not in found]
    if altered:
        return f"{altered[0].split('(')[0].strip()[:60]!r} is altered or missing"
    return "" if len(found) == len(_TABLES) else "it has tables of another program"


# --- statements with many rows, in few sizes, so that SQLite finds them prepared in its cache


def rows_prepared(rows: int) -> int:
    """Return `rows` rounded up to 8, 10, 12, 14, 16, 20, 24 and so on."""
    step = 1 << max(0, rows.bit_length() - 3)
    return -(-rows // step) * step


def filled(values: Sequence[Any], count: int) -> list[Any]:
    """Return `values`, filled up with NULLs to `count`."""
    return [*values, *[None] * (count - len(values))]
