"""Where the values are: in memory, or in one SQLite file. Synchronous; one caller at a time.

A transaction is stored whole or not at all. In the file it survives SIGKILL once `commit` has
returned (write-ahead log, synchronous=NORMAL), and with synchronous=FULL power loss too. The file
belongs to one process at a time, until `close` or the process's end.

SQLite is told and asked much at once: after each statement, and after each row that is read, a
worker thread waits for the interpreter, up to 5 ms when the instance is busy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol, TypeAlias

import msgspec
from sortedcontainers import SortedDict

from flux_trio.messages import Errno, FluxError
from flux_trio.services.kvs.ops import Op, Page, PageRead, Put, Unlink, span

APPLICATION_ID: Final = 0x466C7578  # "Flux", at a fixed place in the file's header
LAYOUT: Final = 1  # kept as user_version; a file of another layout is refused
CACHE_KIB: Final = 16_384
STATEMENT_ROWS_MAX: Final = 256  # two parameters each; every SQLite takes 999

# A value is its rows in id order, so that an append is one insert. Ids are larger than all before.
_SCHEMA = (
    "CREATE TABLE part (id INTEGER PRIMARY KEY, key TEXT NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX part_by_key ON part (key)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {LAYOUT}",
)
_ENOSPC_CODES = {sqlite3.SQLITE_FULL}
_LOCKED_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_PRIMARY_CODE = 0xFF  # the rest of an SQLite error code says more about the same thing


class StoreError(FluxError):
    """A store cannot be opened, read or written: EIO or ENOSPC, and a text that names the file."""


class Store(Protocol):
    """What the service needs of a store; every method may raise StoreError."""

    waits_for_disk: ClassVar[bool]
    """Whether to call it on a worker thread."""

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops` in order, all or none; durable on return."""

    def lookup(self, keys: Sequence[str]) -> list[str | None]:
        """The value of each of `keys`, None where there is none."""

    def dir(self, prefix: str) -> list[str]:
        """Every key below `prefix` ("" for all), sorted; `prefix` itself is not among them."""

    def page(self, page: Page) -> PageRead:
        """Some of the keys below a prefix."""

    def count(self, prefix: str) -> int:
        """How many keys there are below `prefix`."""

    def close(self) -> None:
        """Leave everything in order; no other method may follow."""


class MemoryStore:
    """Values in a dictionary, gone with the process. Appending to a long value copies it."""

    waits_for_disk: ClassVar[bool] = False

    def __init__(self) -> None:
        self._values: SortedDict[str, str] = SortedDict()

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops`; they cannot fail."""
        for op in ops:
            if isinstance(op, Unlink):
                self._values.pop(op.key, None)
                for key in self.dir(op.key):
                    del self._values[key]
            elif isinstance(op, Put):
                self._values[op.key] = op.text
            else:
                self._values[op.key] = self._values.get(op.key, "") + op.text

    def lookup(self, keys: Sequence[str]) -> list[str | None]:
        """The value of each of `keys`, None where there is none."""
        return [self._values.get(key) for key in keys]

    def dir(self, prefix: str) -> list[str]:
        """Every key below `prefix`, sorted."""
        return list(self._values.irange(*span(prefix), inclusive=(False, False)))

    def page(self, page: Page) -> PageRead:
        """Some of the keys below a prefix."""
        between = self._values.irange(
            *page.bounds(), inclusive=(False, False), reverse=page.reverse
        )
        keys = list(islice(between, page.limit))
        return PageRead(keys, self.lookup(keys) if page.values else [])

    def count(self, prefix: str) -> int:
        """How many keys there are below `prefix`."""
        after, before = span(prefix)
        count: int = self._values.bisect_left(before) - self._values.bisect_right(after)
        return count

    def close(self) -> None:
        """Nothing to put in order."""


class SqliteStore:
    """Values in the SQLite file `path`, made if it is not there.

    Raises StoreError when the file is not ours, of another layout, damaged, in use, or cannot be
    written. Made in one thread and used in others, by one at a time.
    """

    waits_for_disk: ClassVar[bool] = True

    def __init__(self, path: Path, synchronous: Literal["normal", "full"] = "normal") -> None:
        self.path = path
        with suppress(OSError):  # said better by SQLite
            path.touch(mode=0o600)  # jobspecs have environments: they are the owner's alone
        try:
            self._db = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._error("cannot be opened", error) from error
        try:
            self._open(synchronous)
        except sqlite3.Error as error:
            self._db.close()
            raise self._error("cannot be opened", error) from error
        except StoreError:
            self._db.close()
            raise

    def _open(self, synchronous: str) -> None:
        self._db.execute(
            "PRAGMA locking_mode = EXCLUSIVE"
        )  # before WAL: then no shared memory file
        self._check_owner()
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {synchronous.upper()}")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        with _transaction(self._db):  # a write lock, now rather than at the first commit
            if self._pragma("application_id") == 0:
                for statement in _SCHEMA:
                    self._db.execute(statement)
        damage = self._pragma("quick_check(1)")
        if damage != "ok":
            raise StoreError(Errno.EIO, f"{self.path}: the file is damaged: {damage}")

    def _check_owner(self) -> None:
        """Refuse a database that somebody else, or another version of us, has made."""
        owner, layout = self._pragma("application_id"), self._pragma("user_version")
        is_empty = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        if owner != APPLICATION_ID and not (owner == 0 and is_empty):
            raise StoreError(
                Errno.EIO, f"{self.path}: an SQLite file of another program, not a kvs"
            )
        if owner == APPLICATION_ID and layout != LAYOUT:
            raise StoreError(
                Errno.EIO,
                f"{self.path}: written in layout {layout}, this version reads layout {LAYOUT}",
            )

    def _pragma(self, name: str) -> object:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops` in one transaction; durable on return."""
        statements = list(_statements(ops))
        try:
            if len(statements) == 1:  # is a transaction by itself
                self._db.execute(*statements[0])
                return
            with _transaction(self._db):
                for statement, values in statements:
                    self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error

    def lookup(self, keys: Sequence[str]) -> list[str | None]:
        """The value of each of `keys`, None where there is none."""
        parts: dict[str, list[tuple[int, str]]] = {}
        for some in _batches(list(dict.fromkeys(keys))):  # two may ask for the same
            # One row of JSON for all of them
            query = (
                "SELECT json_group_array(json_array(key, id, text)) FROM part "
                f"WHERE key IN ({_marks('?', len(some))})"
            )
            ((rows,),) = self._read(query, some)
            for key, part, text in _ROWS.decode(rows):
                parts.setdefault(key, []).append((part, text))
        values = {key: "".join(text for _, text in sorted(rows)) for key, rows in parts.items()}
        return [values.get(key) for key in keys]

    def dir(self, prefix: str) -> list[str]:
        """Every key below `prefix`, sorted."""
        after, before = span(prefix)
        query = "SELECT DISTINCT key FROM part WHERE key > ? AND key < ? ORDER BY key"
        return [key for (key,) in self._read(query, (after, before))]

    def page(self, page: Page) -> PageRead:
        """Some of the keys below a prefix."""
        order = "DESC" if page.reverse else "ASC"
        query = (
            "SELECT json_group_array(key) FROM (SELECT DISTINCT key FROM part "
            f"WHERE key > ? AND key < ? ORDER BY key {order} LIMIT {page.limit})"
        )
        ((rows,),) = self._read(query, page.bounds())
        keys = _KEYS.decode(rows)
        return PageRead(keys, self.lookup(keys) if page.values else [])

    def count(self, prefix: str) -> int:
        """How many keys there are below `prefix`."""
        query = (
            "SELECT CAST(count(*) AS TEXT) FROM "
            "(SELECT DISTINCT key FROM part WHERE key > ? AND key < ?)"
        )
        ((count,),) = self._read(query, span(prefix))
        return int(count)

    def _read(self, query: str, values: Sequence[str]) -> list[tuple[str]]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._error("cannot be read", error) from error

    def close(self) -> None:
        """Move the write-ahead log into the file, which is then whole by itself."""
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        finally:
            self._db.close()

    def _error(self, what: str, error: sqlite3.Error) -> StoreError:
        # Python's own complaints, such as a closed connection, have no code
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
        if code in _LOCKED_CODES:
            return StoreError(Errno.EIO, f"{self.path}: {what}: another process is using it")
        errnum = Errno.ENOSPC if code in _ENOSPC_CODES else Errno.EIO
        return StoreError(errnum, f"{self.path}: {what}: {error}")


_Statement: TypeAlias = tuple[str, Sequence[str]]  # and its parameters
_ROWS: Final = msgspec.json.Decoder(list[tuple[str, int, str]])
_KEYS: Final = msgspec.json.Decoder(list[str])


def _statements(ops: Iterable[Op]) -> Iterator[_Statement]:
    for is_unlink, run in groupby(ops, key=lambda op: isinstance(op, Unlink)):
        if is_unlink:
            for op in run:
                query = "DELETE FROM part WHERE key = ? OR (key > ? AND key < ?)"
                yield query, (op.key, *span(op.key))
        else:
            yield from _written(run)


def _written(ops: Iterator[Op]) -> Iterator[_Statement]:
    """Puts and appends: what is left of each key in the end, one row each."""
    replaced: set[str] = set()
    texts: dict[str, list[str]] = {}
    for op in ops:
        assert not isinstance(op, Unlink)
        if isinstance(op, Put):
            replaced.add(op.key)
            texts[op.key] = [op.text]
        else:
            texts.setdefault(op.key, []).append(op.text)
    for keys in _batches(list(replaced)):
        yield f"DELETE FROM part WHERE key IN ({_marks('?', len(keys))})", keys
    for keys in _batches(list(texts)):
        rows = [value for key in keys for value in (key, "".join(texts[key]))]
        yield f"INSERT INTO part (key, text) VALUES {_marks('(?, ?)', len(keys))}", rows


def _batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), STATEMENT_ROWS_MAX):
        yield keys[start : start + STATEMENT_ROWS_MAX]


def _marks(mark: str, count: int) -> str:
    return ", ".join([mark] * count)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All that `db` is told inside, or nothing of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
