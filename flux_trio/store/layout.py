"""The layout of the state file: its tables, the triggers that keep account, and older layouts.

A value is its parts in the order of their numbers, so that an append is one insert. Every change
has a number, larger than all before. Damage shows because each fact stands twice, in different
trees of pages:

- `part.sum` is a checksum of the part's key, number and text.
- `head` has for each key how many parts there are and the total of their checksums: a part that is
  lost or altered does not agree with its head, and a head that is lost leaves parts without one.
  `head.keysum` is a checksum of the key, so that a listing needs no part.
- `account` is one row: the number of the last change, and the totals of all heads.
- The number of the last acknowledged change stands in another file (`acknowledged.py`).

CRC-32 notices every change of up to 32 bits in a row; a longer one escapes it once in 2**32.

A commit inserts into the view `op`: a row for each change, and one for the account. The triggers of
the view do the rest inside SQLite, so that most commits are one statement.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

APPLICATION_ID: Final = 0x466C7578  # "Flux", at a fixed place in the file's header
LAYOUT: Final = 2  # kept as user_version
INCREMENTAL: Final = 2  # of auto_vacuum: pages that a purge has freed can be given back

STATEMENT_ROWS_MAX: Final = 128  # of six parameters each; every SQLite takes 999
LEFT_OUT_MAX: Final = 100  # unlinks of a commit, each of which means to try all others again
_LOW_BITS: Final = (1 << 32) - 1

_TABLES = (
    "CREATE TABLE part (number INTEGER PRIMARY KEY, key TEXT NOT NULL, text TEXT NOT NULL,"
    " sum INTEGER NOT NULL)",
    "CREATE INDEX part_by_key ON part (key)",
    "CREATE TABLE head (key TEXT PRIMARY KEY NOT NULL, keysum INTEGER NOT NULL,"
    " parts INTEGER NOT NULL, total INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE account (id INTEGER PRIMARY KEY, number INTEGER NOT NULL,"
    " parts INTEGER NOT NULL, total INTEGER NOT NULL)",
    "CREATE VIEW op AS SELECT '' AS kind, number, key, 0 AS keysum, text, sum FROM part",
    "CREATE TRIGGER op_put INSTEAD OF INSERT ON op WHEN new.kind = 'put' BEGIN"
    " DELETE FROM part WHERE key = new.key;"
    " DELETE FROM head WHERE key = new.key;"
    " INSERT INTO part VALUES (new.number, new.key, new.text, new.sum);"
    " INSERT INTO head VALUES (new.key, new.keysum, 1, new.sum); END",
    "CREATE TRIGGER op_append INSTEAD OF INSERT ON op WHEN new.kind = 'append' BEGIN"
    " INSERT INTO part VALUES (new.number, new.key, new.text, new.sum);"
    " INSERT INTO head VALUES (new.key, new.keysum, 1, new.sum)"
    " ON CONFLICT (key) DO UPDATE SET parts = parts + 1, total = total + excluded.total; END",
    # Below a key lies what begins with it and a period; "/" follows "." in code-point order.
    "CREATE TRIGGER op_unlink INSTEAD OF INSERT ON op WHEN new.kind = 'unlink' BEGIN"
    " DELETE FROM part WHERE key = new.key;"
    " DELETE FROM part WHERE key > new.key || '.' AND key < new.key || '/';"
    " DELETE FROM head WHERE key = new.key;"
    " DELETE FROM head WHERE key > new.key || '.' AND key < new.key || '/'; END",
    # In this row `keysum` is how many parts the other rows add, and `sum` their total.
    "CREATE TRIGGER op_account INSTEAD OF INSERT ON op WHEN new.kind = 'account' BEGIN"
    " UPDATE account SET number = new.number, parts = parts + new.keysum,"
    " total = total + new.sum WHERE id = 0; END",
    "CREATE TRIGGER head_removed AFTER DELETE ON head BEGIN"
    " UPDATE account SET parts = parts - old.parts, total = total - old.total WHERE id = 0; END",
)

OpRow: TypeAlias = tuple[str, int, str, int, str, int]
"""A row of the view `op`: kind, number, key, keysum, text, sum."""


def key_sum(key: str) -> int:
    """The checksum of a key, as `head.keysum` has it."""
    return zlib.crc32(key.encode())


def part_sum(keysum: int, number: int, text: str) -> int:
    """The checksum of a part, as `part.sum` has it; it depends on the key, number and text."""
    return zlib.crc32(text.encode(), keysum ^ (number & _LOW_BITS) ^ (number >> 32))


def put_row(number: int, key: str, text: str) -> OpRow:
    """For the view `op`: `text` is the value of `key`, and nothing else."""
    keysum = key_sum(key)
    return "put", number, key, keysum, text, part_sum(keysum, number, text)


def append_row(number: int, key: str, text: str) -> OpRow:
    """For the view `op`: `text` follows what `key` has."""
    keysum = key_sum(key)
    return "append", number, key, keysum, text, part_sum(keysum, number, text)


def unlink_row(number: int, key: str) -> OpRow:
    """For the view `op`: `key` is gone, and all below it."""
    return "unlink", number, key, 0, "", 0


def insert_ops(db: sqlite3.Connection, rows: Sequence[OpRow]) -> None:
    """Do what `rows` say, and keep account of it; a transaction if the caller has none.

    On a damaged page an unlink can fail. Then its key stays, damaged as it is, and the other rows
    are stored all the same.
    """
    try:
        _insert_all(db, rows)
    except sqlite3.DatabaseError as error:
        if not (_is_corrupt(error) and any(row[0] == "unlink" for row in rows)):
            raise
        _insert_what_can_be(db, rows)


def _insert_all(db: sqlite3.Connection, rows: Sequence[OpRow]) -> None:
    if len(rows) < STATEMENT_ROWS_MAX:  # a statement is a transaction by itself
        _insert(db, rows, rows[-1][1])
    else:
        with transaction(db):
            for start in range(0, len(rows), STATEMENT_ROWS_MAX - 1):
                some = rows[start : start + STATEMENT_ROWS_MAX - 1]
                _insert(db, some, some[-1][1])


def _is_corrupt(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT


def _insert_what_can_be(db: sqlite3.Connection, rows: Sequence[OpRow]) -> None:
    """Leave out one unlink after another: a page that is damaged spoils the whole transaction."""
    left_out: set[int] = set()
    while True:
        row = rows[0]
        try:
            with transaction(db):
                for row in rows:
                    if row[1] not in left_out:
                        _insert(db, [row], row[1])
                _insert(db, [], rows[-1][1])
            return
        except sqlite3.DatabaseError as error:
            if not _is_corrupt(error) or row[0] != "unlink" or len(left_out) == LEFT_OUT_MAX:
                raise
            left_out.add(row[1])


def _insert(db: sqlite3.Connection, rows: Sequence[OpRow], number: int) -> None:
    """`number` is that of the last change, which is the last of `rows` or was left out."""
    parts = total = 0
    values: list[str | int] = []
    for row in rows:
        values += row
        if row[0] != "unlink":
            parts += 1
            total += row[-1]
    values += ("account", number, "", parts, "", total)
    marks = ", ".join(["(?, ?, ?, ?, ?, ?)"] * (len(rows) + 1))
    db.execute(f"INSERT INTO op VALUES {marks}", values)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All that `db` is told inside, or nothing of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def create(db: sqlite3.Connection) -> None:
    """Make the tables, in the transaction of the caller."""
    for statement in _TABLES:
        db.execute(statement)
    db.execute("INSERT INTO account VALUES (0, 0, 0, 0)")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {LAYOUT}")


def schema_damage(db: sqlite3.Connection) -> str:
    """What of the tables is not as `create` makes it; "" if all is."""
    found = {row[0] for row in db.execute("SELECT sql FROM sqlite_master")}
    altered = [statement for statement in _TABLES if statement not in found]
    if altered:
        return f"{altered[0].split('(')[0].strip()[:60]!r} is altered or missing"
    return "" if len(found) == len(_TABLES) else "it has tables that are not ours"


def migrate_from_1(db: sqlite3.Connection) -> None:
    """Rewrite a file of layout 1, which had one table of parts and no checksums.

    One transaction: after SIGKILL the file has the old layout or the new one.
    """
    with transaction(db):
        db.execute("DROP INDEX part_by_key")
        db.execute("ALTER TABLE part RENAME TO part_1")
        create(db)
        old = db.execute("SELECT key, text FROM part_1 ORDER BY key, id")
        number = 0
        while rows := old.fetchmany(STATEMENT_ROWS_MAX - 1):
            new = [append_row(number + n, *row) for n, row in enumerate(rows, start=1)]
            number += len(new)
            _insert(db, new, number)
        db.execute("DROP TABLE part_1")


def vacuum_incrementally(db: sqlite3.Connection) -> None:
    """Rewrite the whole file once, if it cannot give back its free pages."""
    (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
    if mode != INCREMENTAL:
        db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        db.execute("VACUUM")
