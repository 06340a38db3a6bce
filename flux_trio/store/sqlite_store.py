"""The store in one SQLite file, and what it checks.

A commit survives SIGKILL once `commit` has returned (write-ahead log, synchronous=NORMAL), and with
synchronous=FULL power loss too. The file belongs to one process at a time, until `close` or the
process's end.

`layout.py` says what the file holds and how damage shows. At the start the store compares the
number of changes with the acknowledged one, and the heads with the account; it reads no value. A
value is checked when it is read.

SQLite is told and asked much at once: after each statement, and after each row that is read, a
worker thread waits for the interpreter, up to 5 ms when the instance is busy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final, Literal

from flux_trio.cores.kvs.ops import Damaged, Op, Page, PageRead, Swept
from flux_trio.messages import Errno, Level
from flux_trio.store import changes, checks, layout
from flux_trio.store.acknowledged import AcknowledgedFile, acknowledged_path
from flux_trio.store.checks import (
    check_schema,
    last_number,
    layout_of,
    missing_changes,
    pragma,
    store_error,
)
from flux_trio.store.layout import CHECKED_LAYOUT, LAYOUT
from flux_trio.store.reader import Reader
from flux_trio.store.stores import StoreError

CACHE_KIB: Final = 4096
STATEMENTS_KEPT: Final = 256  # prepared: `changes.py` has six, each for up to 40 numbers of rows
WAL_BYTES_KEPT: Final = 16 << 20  # a longer write-ahead log is cut when it is next written anew

CLOSE_PAGES_MAX: Final = 16_384  # free ones, given back at the end: about a second


class SqliteStore:
    """Values in the SQLite file `path`, made if it is not there.

    Raises StoreError when the file is not ours, of a newer layout, in use, or cannot be
    written; when acknowledged commits are missing; or when the damage concerns the file as a
    whole. A file of an older layout is migrated. Made in one thread and used in others, by
    one at a time.

    `remarks` says what the operator should know of the file as it was found.
    """

    waits_for_disk: ClassVar[bool] = True

    def __init__(self, path: Path, synchronous: Literal["normal", "full"] = "normal") -> None:
        self.path = path
        self.remarks: list[tuple[Level, str]] = []
        self._number = 0  # of the last change
        self._synchronous = synchronous
        with suppress(OSError):  # said better by SQLite
            path.touch(mode=0o600)  # jobspecs have environments: they are the owner's alone
        try:
            self._db = sqlite3.connect(
                path,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=STATEMENTS_KEPT,
            )
        except sqlite3.Error as error:
            raise self._error("cannot be opened", error) from error
        self._reader = Reader(self._db, path)
        try:
            self._open()
        except sqlite3.Error as error:
            self._db.close()
            raise self._error("cannot be opened", error) from error
        except UnicodeDecodeError as error:
            self._db.close()
            raise checks.undecodable(path, error) from error
        except BaseException:
            self._db.close()
            raise

    # Opening

    def _open(self) -> None:
        self._db.execute(
            "PRAGMA locking_mode = EXCLUSIVE"
        )  # before WAL: then no shared memory file
        found = layout_of(self._db, self.path)
        try:
            self._acknowledged = AcknowledgedFile(acknowledged_path(self.path))
        except OSError as error:
            raise self._acknowledged_error(error) from error
        try:
            if found == 0 and self._acknowledged.number:  # before anything is written
                raise missing_changes(self.path, 0, self._acknowledged.number)
            self._prepare(found)
            check_schema(self._db, self.path)
            self._check_number()
            damage = self._reader.check_heads()
            if damage:
                text = f"{self.path}: the heads of keys are damaged: {damage}"
                self.remarks.append((Level.CRIT, text))
            self._acknowledge(self._number)
        except BaseException:
            self._acknowledged.close()
            raise

    def _prepare(self, found: int) -> None:
        if found == 0:
            self._db.execute(f"PRAGMA auto_vacuum = {layout.INCREMENTAL}")  # before any table
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        self._db.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._db.execute("PRAGMA temp_store = MEMORY")
        with layout.transaction(self._db):  # a write lock, now rather than at the first commit
            if found < CHECKED_LAYOUT and self._acknowledged.number is None:
                self._acknowledge(0)
            if found == 0:
                layout.create(self._db)
        if found not in (0, LAYOUT):
            self._migrate(found)
        layout.vacuum_incrementally(self._db)

    def _migrate(self, found: int) -> None:
        if found < CHECKED_LAYOUT:
            damage = pragma(self._db, "quick_check(1)")
            if damage != "ok":
                raise StoreError(Errno.EIO, f"{self.path}: the file is damaged: {damage}")
            changes.migrate_from_1(self._db)
        else:
            layout.migrate_from_2(self._db)
        text = f"{self.path}: migrated from layout {found} to {LAYOUT}"
        self.remarks.append((Level.NOTICE, text))

    def _check_number(self) -> None:
        """Compare the number of the last change with that of the last acknowledged one."""
        self._number = last_number(self._db, self.path)
        acknowledged = self._acknowledged
        if acknowledged.number is None:
            text = (
                f"{acknowledged.path}: missing or damaged: it is not known whether "
                f"{self.path} has every acknowledged change"
            )
            self.remarks.append((Level.WARNING, text))
        elif self._number < acknowledged.number:
            error = missing_changes(self.path, self._number, acknowledged.number)
            if acknowledged.same_boot or self._synchronous == "full":
                raise error
            why = 'the machine was restarted, which `synchronous = "normal"` does not survive'
            self.remarks.append((Level.CRIT, f"{error.text}; {why}"))

    # Writing

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops` in one transaction; durable on return."""
        runs = changes.runs_of(ops)
        if not runs:
            return
        try:
            self._number = changes.store_runs(self._db, runs, self._number)
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        self._acknowledge(self._number)

    def _acknowledge(self, number: int) -> None:
        """Raises EIO, whatever the reason: the commit is stored, to retry would store it twice."""
        try:
            self._acknowledged.write(number)
        except OSError as error:
            raise self._acknowledged_error(error) from error

    def reclaim(self, kept: int, pages_max: int) -> int:
        """Give back free pages at the file's end, down to `kept`; how many are still free.

        At most `pages_max`; the file is shorter once all have been given back.
        """
        try:
            free = self._free_pages()
            if free <= kept:
                return free
            # `execute` would do the first step only, which is one page
            self._db.executescript(f"PRAGMA incremental_vacuum({min(pages_max, free - kept)})")
            free = self._free_pages()
            if free <= kept:
                # SQLite cuts the file when it moves the write-ahead log into it: if nothing is
                # written from here on, that would be never.
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        return free

    def _free_pages(self) -> int:
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return int(free)

    def close(self) -> None:
        """Move the write-ahead log into the file, which is then whole by itself."""
        with suppress(StoreError):  # without room the file stays as long as it is
            self.reclaim(0, CLOSE_PAGES_MAX)
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        finally:
            self._db.close()
            self._acknowledged.close()

    # Reading

    def lookup(self, keys: Sequence[str]) -> list[str | Damaged | None]:
        """The value of each of `keys`: None if there is none, Damaged if it has changed."""
        return self._reader.lookup(keys)

    def dir(self, prefix: str) -> list[str]:
        """Every key below `prefix`, sorted."""
        return self._reader.dir(prefix)

    def page(self, page: Page) -> PageRead:
        """Some of the keys below a prefix."""
        return self._reader.page(page)

    def count(self, prefix: str) -> int:
        """How many keys there are below `prefix`."""
        return self._reader.count(prefix)

    def sweep(self, after: str) -> Swept:
        """Read some of the keys after `after` and tell which of them are damaged."""
        return self._reader.sweep(after)

    def _error(self, what: str, error: sqlite3.Error) -> StoreError:
        return store_error(self.path, what, error)

    def _acknowledged_error(self, error: OSError) -> StoreError:
        path = acknowledged_path(self.path)
        return StoreError(Errno.EIO, f"{path}: cannot be written: {error.strerror}")
