"""The layout of the state file: its tables, its checksums, and older layouts.

The text of a value is split into parts in the order of their numbers, so an append is one insert.
Every change has a number, larger than all earlier ones. Damage can be detected because each fact is
stored twice, in different B-trees:

- `part.sum` is a checksum of the part's key, number and text.
- `head` has one row per key: the number of its parts and the total of their checksums. A lost or
  altered part does not agree with its head; a lost head leaves parts without a head.
  `head.keysum` is a checksum of the key, so that a listing need not read parts.
- `account` is one row: the number of the last change, and the totals of all heads.
- The number of the last acknowledged change is in another file (`acknowledged.py`).

CRC-32 detects every change of up to 32 consecutive bits; it misses a longer one once in 2**32.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

APPLICATION_ID: Final = 0x466C7578  # "Flux", at a fixed place in the file's header
LAYOUT: Final = 3  # stored as user_version
CHECKED_LAYOUT: Final = 2  # the first layout with checksums
INCREMENTAL: Final = 2  # auto_vacuum mode: freed pages can be returned to the file system

_LOW_BITS: Final = (1 << 32) - 1

_TABLES = (
    "CREATE TABLE part (number INTEGER PRIMARY KEY, key TEXT NOT NULL, text TEXT NOT NULL,"
    " sum INTEGER NOT NULL)",
    "CREATE INDEX part_by_key ON part (key)",
    "CREATE TABLE head (key TEXT PRIMARY KEY NOT NULL, keysum INTEGER NOT NULL,"
    " parts INTEGER NOT NULL, total INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE account (id INTEGER PRIMARY KEY, number INTEGER NOT NULL,"
    " parts INTEGER NOT NULL, total INTEGER NOT NULL)",
    "CREATE TRIGGER head_removed AFTER DELETE ON head BEGIN"
    " UPDATE account SET parts = parts - old.parts, total = total - old.total WHERE id = 0; END",
)


def key_sum(key: str) -> int:
    """Return the checksum of a key, as stored in `head.keysum`."""
    return zlib.crc32(key.encode())


def part_sum(keysum: int, number: int, text: str) -> int:
    """Return the checksum of a part's key, number and text, as stored in `part.sum`."""
    return zlib.crc32(text.encode(), keysum ^ (number & _LOW_BITS) ^ (number >> 32))


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


def migrate_from_2(db: sqlite3.Connection) -> None:
    """Drop the view of layout 2, whose triggers did the work of `changes.py`."""
    with transaction(db):
        for kind in ("put", "append", "unlink", "account"):
            db.execute(f"DROP TRIGGER IF EXISTS op_{kind}")
        db.execute("DROP VIEW IF EXISTS op")
        db.execute(f"PRAGMA user_version = {LAYOUT}")


def vacuum_incrementally(db: sqlite3.Connection) -> None:
    """Rewrite the whole file once if it cannot return its free pages."""
    (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
    if mode != INCREMENTAL:
        db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        db.execute("VACUUM")
