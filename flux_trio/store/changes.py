"""Writes the pending changes of many commits into the tables of values.

That takes a few statements, however many keys have changed. Triggers or `executemany` would process
one row at a time, and after each statement a worker thread waits for the interpreter.

Each statement is prepared only for certain numbers of rows, so that SQLite finds it in its cache of
prepared statements. Rows of NULLs fill it up, and its condition skips them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from flux_trio.cores.pages import page_size
from flux_trio.store import journal
from flux_trio.store.checks import error_code
from flux_trio.store.journal import Progress
from flux_trio.store.layout import filled, key_sum, marks_of, part_sum, rows_prepared, transaction
from flux_trio.store.pending import Pending, Slice, Some

SLICE_CHANGES: Final = 4096
"""Changes that one transaction writes: that takes about 0.02 s, and a new commit waits so long. It
is as many as a round of the kvs has, so that the changes to be written do not become more and more
while commits keep coming."""

STATEMENT_ROWS_MAX: Final = 1024
LEFT_OUT_MAX: Final = 100  # skipped unlinks at a time; each one means to retry all others

_INSERT_PARTS: Final = (
    "INSERT INTO part SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL",
    "(?, ?, ?, ?, ?)",
)
_COUNT_IN_HEADS: Final = (
    "INSERT INTO head SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL ON CONFLICT (key)"
    " DO UPDATE SET parts = parts + 1, total = total + excluded.total",
    "(?, ?, 1, ?)",
)
_DELETE_PARTS: Final = ("DELETE FROM part WHERE key IN ({rows})", "?")
_DELETE_HEADS: Final = ("DELETE FROM head WHERE key IN ({rows})", "?")
# All keys below a key begin with it and a period; "/" follows "." in code-point order.
_UNLINK_PARTS: Final = (
    "WITH gone AS (VALUES {rows}) DELETE FROM part WHERE number IN ("
    "SELECT number FROM gone CROSS JOIN part ON key = column1 UNION ALL SELECT number"
    " FROM gone CROSS JOIN part ON key > column1 || '.' AND key < column1 || '/')",
    "(?)",
)
_UNLINK_HEADS: Final = (
    "WITH gone AS (VALUES {rows}) DELETE FROM head WHERE key IN ("
    "SELECT column1 FROM gone UNION ALL SELECT key"
    " FROM gone CROSS JOIN head ON key > column1 || '.' AND key < column1 || '/')",
    "(?)",
)
_ADD_TO_ACCOUNT: Final = (
    "UPDATE account SET number = ?, parts = parts + ?, total = total + ? WHERE id = 0"
)

_MARKS: Final = msgspec.json.Encoder()

Value: TypeAlias = str | int | None


def write_slice(db: sqlite3.Connection, settling: Pending) -> None:
    """Write some of the changes of `settling`, in one transaction.

    With the last ones, the journal forgets all of them. An unlink can fail on a damaged page. Then
    its key stays, damaged as it is, and the other changes are written.
    """
    some = settling.next_slice(page_size(SLICE_CHANGES))
    try:
        with transaction(db):
            _unlink(db, some.unlinked)
            _write_values(db, settling, some)
    except sqlite3.DatabaseError as error:
        if not (error_code(error) == sqlite3.SQLITE_CORRUPT and some.unlinked):
            raise
        _write_without_failing_unlinks(db, settling, some)
    settling.forget(some)


def _write_without_failing_unlinks(db: sqlite3.Connection, settling: Pending, some: Slice) -> None:
    """Write `some` and skip failing unlinks, since one damaged page spoils the transaction."""
    left_out: set[str] = set()
    while True:
        failing: str | None = None  # the key being unlinked
        try:
            with transaction(db):
                for failing in some.unlinked:
                    if failing not in left_out:
                        _unlink(db, [failing])
                failing = None
                _write_values(db, settling, some)
                return
        except sqlite3.DatabaseError as error:
            is_corrupt = error_code(error) == sqlite3.SQLITE_CORRUPT
            if not is_corrupt or failing is None or len(left_out) == LEFT_OUT_MAX:
                raise
            left_out.add(failing)


def _write_values(db: sqlite3.Connection, settling: Pending, some: Slice) -> None:
    """Write everything of `some` but the unlinks, and how far the writing has come."""
    _execute(db, _DELETE_PARTS, some.replaced)
    _execute(db, _DELETE_HEADS, some.replaced)
    total = _append(db, some.texts, some.number)
    db.execute(_ADD_TO_ACCOUNT, (settling.number, len(some.texts), total))
    if some.is_last:
        journal.clear(db, settling.number)
    else:
        done = settling.done + some.changes
        journal.write_progress(db, Progress(settling.first, settling.number, done))


# Statements


def _append(db: sqlite3.Connection, texts: Mapping[str, Some], number: int) -> int:
    """Write a part for each of `texts`, from `number` + 1; return the total of their checksums."""
    parts: list[Value] = []
    heads: list[Value] = []
    total = 0
    for key in sorted(texts):  # neighbours are on the same pages of an index
        number += 1
        pieces = texts[key]
        keysum = key_sum(key)
        if isinstance(pieces, str):
            text, marks, found = pieces, None, part_sum(keysum, number, pieces)
        else:
            text = "".join(pieces)
            marked = marks_of(keysum, number, pieces)
            marks, found = _MARKS.encode(marked).decode(), marked[-1][1]
        parts += (number, key, text, found, marks)
        heads += (key, keysum, found)
        total += found
    _execute(db, _INSERT_PARTS, parts)
    _execute(db, _COUNT_IN_HEADS, heads)
    return total


def _unlink(db: sqlite3.Connection, keys: Sequence[Value]) -> None:
    _execute(db, _UNLINK_PARTS, keys)
    _execute(db, _UNLINK_HEADS, keys)


def _execute(db: sqlite3.Connection, statement: tuple[str, str], values: Sequence[Value]) -> None:
    """Execute `statement`, with its marks for one row, as often as needed for all `values`."""
    width = statement[1].count("?")
    limit = db.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // width
    chunk = min(page_size(STATEMENT_ROWS_MAX), limit) * width
    for start in range(0, len(values), chunk):
        some = values[start : start + chunk]
        rows = min(rows_prepared(len(some) // width), chunk // width)
        db.execute(_prepared(statement, rows), filled(some, rows * width))


@lru_cache(maxsize=256)
def _prepared(statement: tuple[str, str], rows: int) -> str:
    text, row = statement
    return text.format(rows=", ".join([row] * rows))
