"""The store in one SQLite file, and its checks.

When `commit` returns, the commit survives SIGKILL (write-ahead log, synchronous=NORMAL); with
synchronous=FULL it also survives a power loss. One process at a time owns the file, until `close`
or its end.

A commit is written to the journal only (`journal.py`); `settle` writes the changes of many commits
into the tables of values. Reads see both (`view.py`).

`layout.py` describes the contents and how damage is detected. At the start, the store reads the
journal, and compares the number of changes with the acknowledged number, and the heads with the
account; it reads no value of the tables. A value is checked when it is read.

Each call of SQLite does much at once: after each statement, and after each row, a worker thread
waits for the interpreter, up to 5 ms when the instance is busy.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar, Final, Literal

from flux_trio.cores.kvs.ops import Damaged, Op, Page, PageRead, Swept
from flux_trio.messages import Errno, Level
from flux_trio.process.private import open_private
from flux_trio.store import checks, journal, layout
from flux_trio.store.acknowledged import AcknowledgedFile, acknowledged_path
from flux_trio.store.changes import write_slice
from flux_trio.store.checks import (
    check_schema,
    last_number,
    layout_of,
    missing_changes,
    read_journal,
    store_error,
)
from flux_trio.store.database_copy import copy_database
from flux_trio.store.pending import Pending
from flux_trio.store.reader import Reader
from flux_trio.store.room import RESERVE_BYTES, free_bytes, give_away, keep
from flux_trio.store.stores import StoreError
from flux_trio.store.view import View

CACHE_KIB: Final = 4096
STATEMENTS_KEPT: Final = 256  # prepared: `changes.py` has six, each for up to 40 numbers of rows
WAL_BYTES_KEPT: Final = 16 << 20  # a longer write-ahead log is truncated when it restarts

CLOSE_PAGES_MAX: Final = 16_384  # free pages returned at the end: takes about a second


class SqliteStore:
    """Values in the SQLite file `path`, which is created if it is missing.

    Raises StoreError if the file belongs to another program, has a newer layout, is in use or
    cannot be written; if acknowledged commits are missing; or if the damage affects the whole file.
    Several threads may use the store, one at a time.

    `remarks` are messages for the operator about the state of the file when it was opened.
    """

    waits_for_disk: ClassVar[bool] = True

    def __init__(self, path: Path, synchronous: Literal["normal", "full"] = "normal") -> None:
        self.path = path
        self.remarks: list[tuple[Level, str]] = []
        self._pending = self._settling = Pending(0)
        self._failed: StoreError | None = None  # set once the tables could not be written
        self._synchronous = synchronous
        self._gave_reserve = False
        try:
            os.close(open_private(path, os.O_RDWR | os.O_CREAT))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EPERM):  # SQLite would open it nevertheless
                text = f"{path}: cannot be opened: {error.strerror}"
                raise StoreError(Errno.EIO, text) from error
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
        self._view = View(self._reader, self._pending)
        with ExitStack() as undo:
            undo.callback(self._db.close)
            try:
                self._open()
            except sqlite3.Error as error:
                raise self._error("cannot be opened", error) from error
            except UnicodeDecodeError as error:
                raise checks.undecodable(path, error) from error
            undo.pop_all()

    # Opening

    def _open(self) -> None:
        self._db.execute(
            "PRAGMA locking_mode = EXCLUSIVE"
        )  # before WAL mode: this avoids a shared memory file
        found = layout_of(self._db, self.path)
        self._inode = self.path.stat().st_ino
        try:
            self._acknowledged = AcknowledgedFile(acknowledged_path(self.path))
        except OSError as error:
            raise self._acknowledged_error(error) from error
        with ExitStack() as undo:
            undo.callback(self._acknowledged.close)
            if found == 0 and self._acknowledged.number:  # check before the first write
                raise missing_changes(self.path, 0, self._acknowledged.number)
            self._prepare(found)
            check_schema(self._db, self.path)
            self._check_number()
            damage = self._reader.check_heads()
            if damage:
                text = f"{self.path}: the heads of keys are damaged: {damage}"
                self.remarks.append((Level.CRIT, text))
            self._acknowledge(self._pending.number)
            undo.pop_all()

    def _prepare(self, found: int) -> None:
        if found == 0:
            self._db.execute(f"PRAGMA auto_vacuum = {layout.INCREMENTAL}")  # before any table
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        self._db.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._db.execute("PRAGMA temp_store = MEMORY")
        self._db.execute("PRAGMA secure_delete = OFF")  # some builds overwrite what is deleted
        with layout.transaction(self._db):  # get the write lock now, not at the first commit
            if found == 0 and self._acknowledged.number is None:
                self._acknowledge(0)
            if found == 0:
                layout.create(self._db)

    def _check_number(self) -> None:
        """Compare the number of the last change with the last acknowledged number."""
        found = read_journal(self._db, self.path, last_number(self._db, self.path))
        if found.error is not None:
            raise found.error
        self._set_unsettled(found.settling, found.pending)
        pending, acknowledged = found.pending, self._acknowledged
        if acknowledged.number is None:
            text = (
                f"{acknowledged.path}: missing or damaged: it is not known whether "
                f"{self.path} has every acknowledged change"
            )
            self.remarks.append((Level.WARNING, text))
        elif pending.number < acknowledged.number:
            error = missing_changes(self.path, pending.number, acknowledged.number)
            if acknowledged.same_boot or self._synchronous == "full":
                raise error
            why = 'the machine was restarted, which `synchronous = "normal"` does not survive'
            self.remarks.append((Level.CRIT, f"{error.text}; {why}"))

    # Writing

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops`, all or none; they are durable on return."""
        if self._failed is not None:
            raise self._failed
        while self._pending.fills(2):  # nobody has called `settle` for long
            self.settle()
        if not (changes := list(ops)):
            return
        try:
            commit = journal.write(self._db, changes, self._pending.number)
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        self._pending.add(commit)
        self._check_place()
        self._acknowledge(commit.number)

    @property
    def has_much_unsettled(self) -> bool:
        return bool(self._settling) or self._pending.fills(1)

    def settle(self) -> bool:
        """Write a slice of the pending changes into the tables of values.

        The changes are in the journal until all slices are written. An error other than a full disk
        (ENOSPC) comes again at the next commit.
        """
        if not self._settling:
            if not self._pending:
                return False
            self._set_unsettled(self._pending, Pending(self._pending.number))
        try:
            write_slice(self._db, self._settling)
        except sqlite3.Error as error:
            found = self._error("cannot be written", error)
            if found.errnum != Errno.ENOSPC:
                self._failed = found
            raise found from error
        return bool(self._settling)

    def _set_unsettled(self, settling: Pending, pending: Pending) -> None:
        self._settling, self._pending = settling, pending
        self._view = View(View(self._reader, settling), pending)

    def _acknowledge(self, number: int) -> None:
        """Write the number; EIO for any failure, since a retry would store the commit twice."""
        try:
            self._acknowledged.write(number)
        except OSError as error:
            raise self._acknowledged_error(error) from error

    def _check_place(self) -> None:
        """Raise StoreError if the state file is no longer at its path.

        SQLite goes on writing into a file that was removed, and no start would ever find it.
        """
        try:
            is_there = self.path.stat().st_ino == self._inode
        except OSError:
            is_there = False
        if not is_there:
            text = f"{self.path}: was removed or replaced while its instance runs"
            self._failed = StoreError(Errno.EIO, text)
            raise self._failed

    def reclaim(self, kept: int, pages_max: int) -> int:
        """Return free pages at the file's end, until `kept` are left; return how many are free.

        At most `pages_max` pages; the file becomes shorter only when all have been returned.
        """
        try:
            free = self._free_pages()
            if free <= kept:
                return free
            # `execute` would do only the first step, which is one page
            self._db.executescript(f"PRAGMA incremental_vacuum({min(pages_max, free - kept)})")
            free = self._free_pages()
            if free <= kept:
                # SQLite truncates the file when it moves the write-ahead log into it. Without
                # further writes that would never happen.
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        return free

    def give_reserve(self) -> bool:
        """See `Store`."""
        gave = give_away(self.path.parent)
        self._gave_reserve |= gave
        return gave

    def keep_reserve(self) -> bool:
        """See `Store`; some more than the reserve must be free."""
        if self._gave_reserve and keep(self.path.parent, spare=RESERVE_BYTES):
            self._gave_reserve = False
        return self._gave_reserve

    def disk_free(self) -> int | None:
        """See `Store`; None also if the file system does not say."""
        return free_bytes(self.path.parent)

    def _free_pages(self) -> int:
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return int(free)

    def backup(self, path: Path, between: Callable[[], None]) -> None:
        """Copy the file to `path`, with the changes that its journal has when the copy ends."""
        copy_database(self._db, lambda: self._pending.number, path, between)

    def close(self) -> None:
        """Move the write-ahead log into the file, which is then complete by itself."""
        with suppress(StoreError):  # if there is no room, the next start has the same to do
            while self.settle() or self._pending:
                pass
            self.reclaim(0, CLOSE_PAGES_MAX)
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        finally:
            self._db.close()
            self._acknowledged.close()

    # Reading

    def lookup(
        self, keys: Sequence[str], chars_max: int | None = None, at_least: int = 1
    ) -> list[str | Damaged | None]:
        return self._view.lookup(keys, chars_max, at_least)

    def dir(self, prefix: str) -> list[str]:
        return self._view.dir(prefix)

    def page(self, page: Page) -> PageRead:
        return self._view.page(page)

    def count(self, prefix: str) -> int:
        return self._view.count(prefix)

    def sweep(self, after: str) -> Swept:
        return self._reader.sweep(after)

    def _error(self, what: str, error: sqlite3.Error) -> StoreError:
        return store_error(self.path, what, error)

    def _acknowledged_error(self, error: OSError) -> StoreError:
        path = acknowledged_path(self.path)
        return StoreError(Errno.EIO, f"{path}: cannot be written: {error.strerror}")
