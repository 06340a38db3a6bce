"""Writes the changes of a commit into the state file.

The operations between two unlinks of a commit form a *run*. A run takes a few statements, however
many rows it has. Triggers or `executemany` would process one row at a time, and after each
statement a worker thread waits for the interpreter.

Each statement is prepared only for certain numbers of rows, so that SQLite finds it in its cache of
prepared statements. Rows of NULLs fill it up, and its condition skips them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final, TypeAlias, cast

from flux_trio.cores.kvs.ops import Append, Op, Put, Unlink
from flux_trio.store.layout import create, key_sum, part_sum, transaction
from flux_trio.store.statements import filled, rows_prepared

STATEMENT_ROWS_MAX: Final = 1024  # about as many as a round has
LEFT_OUT_MAX: Final = 100  # skipped unlinks of a commit; each one means to retry all others

_INSERT_PARTS: Final = (
    "INSERT INTO part SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL",
    "(?, ?, ?, ?)",
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

Value: TypeAlias = str | int | None


@dataclass(frozen=True, slots=True)
class Written:
    """Puts and appends: the text to write to each key, and the keys to replace."""

    texts: dict[str, str]
    replaced: set[str]


@dataclass(frozen=True, slots=True)
class Unlinked:
    """Keys to remove, together with all keys below them."""

    keys: list[str]


Run: TypeAlias = Written | Unlinked


def runs_of(ops: Iterable[Op]) -> list[Run]:
    """Combine `ops` into runs.

    Between two unlinks, all puts and appends of one key become one part.
    """
    return [
        Unlinked([op.key for op in run])
        if is_unlink
        else _written(cast("Iterator[Put | Append]", run))
        for is_unlink, run in groupby(ops, key=_is_unlink)
    ]


def _is_unlink(op: Op) -> bool:
    return type(op) is Unlink  # isinstance of a Struct costs four times as much


def _written(ops: Iterator[Put | Append]) -> Written:
    replaced: set[str] = set()
    texts: dict[str, str] = {}
    pieces: dict[str, list[str]] = {}  # texts of keys with several appends
    for op in ops:
        key = op.key
        if type(op) is Put:
            replaced.add(key)
            pieces.pop(key, None)
        elif key in texts:
            pieces.setdefault(key, [texts[key]]).append(op.text)
            continue
        texts[key] = op.text
    for key, some in pieces.items():
        texts[key] = "".join(some)
    return Written(texts, replaced)


def store_runs(db: sqlite3.Connection, runs: Sequence[Run], number: int) -> int:
    """Apply `runs` in one transaction; take and return the number of the last change.

    An unlink can fail on a damaged page. Then its key stays, damaged as it is, and the other
    changes are stored.
    """
    try:
        with transaction(db):
            return _store(db, runs, number)
    except sqlite3.DatabaseError as error:
        if not (_is_corrupt(error) and any(isinstance(run, Unlinked) for run in runs)):
            raise
    return _store_without_failing_unlinks(db, runs, number)


def _store(db: sqlite3.Connection, runs: Iterable[Run], number: int) -> int:
    parts = total = 0
    for run in runs:
        if isinstance(run, Unlinked):
            _unlink(db, run.keys)
            number += len(run.keys)
        else:
            total += _write(db, run, number)
            parts += len(run.texts)
            number += len(run.texts)
    db.execute(_ADD_TO_ACCOUNT, (number, parts, total))
    return number


def _is_corrupt(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT


def _store_without_failing_unlinks(db: sqlite3.Connection, runs: Sequence[Run], number: int) -> int:
    """Apply `runs` and skip failing unlinks, since one damaged page spoils the transaction."""
    left_out: set[str] = set()
    key: str | None = None  # the key being unlinked

    def remaining_runs() -> Iterator[Run]:
        nonlocal key
        for run in runs:
            if isinstance(run, Unlinked):
                for key in run.keys:
                    yield Unlinked([] if key in left_out else [key])
                key = None
            else:
                yield run

    while True:
        try:
            with transaction(db):
                return _store(db, remaining_runs(), number)
        except sqlite3.DatabaseError as error:
            if not _is_corrupt(error) or key is None or len(left_out) == LEFT_OUT_MAX:
                raise
            left_out.add(key)


# Statements


def _write(db: sqlite3.Connection, run: Written, number: int) -> int:
    """Write `run`, numbered from `number` + 1; return the total of its checksums."""
    _execute(db, _DELETE_PARTS, list(run.replaced))
    _execute(db, _DELETE_HEADS, list(run.replaced))
    parts: list[Value] = []
    heads: list[Value] = []
    total = 0
    for key, text in run.texts.items():
        number += 1
        keysum = key_sum(key)
        found = part_sum(keysum, number, text)
        parts += (number, key, text, found)
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
    chunk = min(STATEMENT_ROWS_MAX, limit) * width
    for start in range(0, len(values), chunk):
        some = values[start : start + chunk]
        rows = min(rows_prepared(len(some) // width), chunk // width)
        db.execute(_prepared(statement, rows), filled(some, rows * width))


@lru_cache(maxsize=256)
def _prepared(statement: tuple[str, str], rows: int) -> str:
    text, row = statement
    return text.format(rows=", ".join([row] * rows))


# Layout 1


def migrate_from_1(db: sqlite3.Connection) -> None:
    """Rewrite a file of layout 1, which had one table of parts and no checksums.

    All is one transaction: after SIGKILL the file has the old layout or the new one.
    """
    with transaction(db):
        db.execute("DROP INDEX part_by_key")
        db.execute("ALTER TABLE part RENAME TO part_1")
        create(db)
        old = db.execute("SELECT key, text FROM part_1 ORDER BY key, id")
        number = 0
        while rows := old.fetchmany(STATEMENT_ROWS_MAX):
            number = _store(db, runs_of(Append(*row) for row in rows), number)
        db.execute("DROP TABLE part_1")
