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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from flux_trio.messages import Errno, Level
from flux_trio.services.kvs import layout
from flux_trio.services.kvs.acknowledged import AcknowledgedFile
from flux_trio.services.kvs.layout import (
    APPLICATION_ID,
    LAYOUT,
    OpRow,
    append_row,
    key_sum,
    part_sum,
    put_row,
    unlink_row,
)
from flux_trio.services.kvs.ops import Damaged, Op, Page, PageRead, Put, Unlink, span
from flux_trio.services.kvs.stores import StoreError

CACHE_KIB: Final = 16_384
WAL_BYTES_KEPT: Final = 16 << 20  # a longer write-ahead log is cut when it is next written anew
READ_KEYS_MAX: Final = 256  # of one statement

_CORRUPT_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}
_ENOSPC_CODES = {sqlite3.SQLITE_FULL}
_LOCKED_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_PRIMARY_CODE = 0xFF  # the rest of an SQLite error code says more about the same thing

Head: TypeAlias = tuple[int, int]  # how many parts, the total of their checksums
Part: TypeAlias = tuple[int, str, int]  # number, text, checksum

_PARTS: Final = msgspec.json.Decoder(list[tuple[str, int, str, int]])
_HEADS: Final = msgspec.json.Decoder(list[tuple[str, int, int]])
_LISTED: Final = msgspec.json.Decoder(list[tuple[str, int]])


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
        self._heads_agree = True  # with the account, as far as is known
        self._synchronous = synchronous
        with suppress(OSError):  # said better by SQLite
            path.touch(mode=0o600)  # jobspecs have environments: they are the owner's alone
        try:
            self._db = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._error("cannot be opened", error) from error
        try:
            self._open()
        except sqlite3.Error as error:
            self._db.close()
            raise self._error("cannot be opened", error) from error
        except BaseException:
            self._db.close()
            raise

    # Opening

    def _open(self) -> None:
        self._db.execute(
            "PRAGMA locking_mode = EXCLUSIVE"
        )  # before WAL: then no shared memory file
        found = self._check_owner()
        try:
            self._acknowledged = AcknowledgedFile(acknowledged_path(self.path))
        except OSError as error:
            raise self._acknowledged_error(error) from error
        try:
            if found == 0 and self._acknowledged.number:  # before anything is written
                raise self._missing_commits(0, self._acknowledged.number)
            self._prepare(found)
            self._check_schema()
            self._check_number()
            self._check_heads()
            self._acknowledge(self._number)
        except BaseException:
            self._acknowledged.close()
            raise

    def _check_owner(self) -> int:
        """The file's layout, 0 if it is empty. Refuses a file that another program has made."""
        owner, found = self._pragma("application_id"), self._pragma("user_version")
        if owner == APPLICATION_ID:
            if found not in (1, LAYOUT):
                raise StoreError(
                    Errno.EIO,
                    f"{self.path}: written in layout {found}, this version reads layouts "
                    f"1 to {LAYOUT}",
                )
            return found
        is_empty = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        if owner != 0 or not is_empty:
            raise StoreError(
                Errno.EIO, f"{self.path}: an SQLite file of another program, not a kvs"
            )
        return 0

    def _prepare(self, found: int) -> None:
        if found == 0:
            self._db.execute(f"PRAGMA auto_vacuum = {layout.INCREMENTAL}")  # before any table
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        self._db.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._db.execute("PRAGMA temp_store = MEMORY")
        with layout.transaction(self._db):  # a write lock, now rather than at the first commit
            if found != LAYOUT and self._acknowledged.number is None:
                self._acknowledge(0)
            if found == 0:
                layout.create(self._db)
        if found == 1:
            self._migrate()
        layout.vacuum_incrementally(self._db)

    def _migrate(self) -> None:
        damage = self._pragma("quick_check(1)")
        if damage != "ok":
            raise StoreError(Errno.EIO, f"{self.path}: the file is damaged: {damage}")
        layout.migrate_from_1(self._db)
        self.remarks.append((Level.NOTICE, f"{self.path}: migrated from layout 1 to {LAYOUT}"))

    def _check_schema(self) -> None:
        damage = layout.schema_damage(self._db)
        if damage:
            raise StoreError(Errno.EIO, f"{self.path}: the file is damaged: {damage}")

    def _check_number(self) -> None:
        """Compare the number of the last change with that of the last acknowledged one."""
        row = self._db.execute("SELECT number FROM account WHERE id = 0").fetchone()
        if row is None or not isinstance(row[0], int):
            raise StoreError(Errno.EIO, f"{self.path}: the file is damaged: no count of changes")
        self._number = row[0]
        acknowledged = self._acknowledged
        if acknowledged.number is None:
            text = (
                f"{acknowledged.path}: missing or damaged: it is not known whether "
                f"{self.path} has every acknowledged change"
            )
            self.remarks.append((Level.WARNING, text))
        elif self._number < acknowledged.number:
            error = self._missing_commits(self._number, acknowledged.number)
            if acknowledged.same_boot or self._synchronous == "full":
                raise error
            why = 'the machine was restarted, which `synchronous = "normal"` does not survive'
            self.remarks.append((Level.CRIT, f"{error.text}; {why}"))

    def _missing_commits(self, number: int, acknowledged: int) -> StoreError:
        return StoreError(
            Errno.EIO,
            f"{self.path}: {acknowledged - number} acknowledged changes are missing: the last one "
            f"found is {number}, the last one acknowledged was {acknowledged} (as "
            f"{acknowledged_path(self.path)} says)",
        )

    def _check_heads(self) -> None:
        """Compare the account with all heads, which a lost or altered one does not agree with."""
        try:
            found = self._db.execute(
                "SELECT ifnull(sum(parts), 0), ifnull(sum(total), 0) FROM head"
            ).fetchone()
            account = self._db.execute("SELECT parts, total FROM account WHERE id = 0").fetchone()
            self._heads_agree = found == account
            why = f"expected {account[0]} parts in all, found {found[0]}"
        except sqlite3.Error as error:
            self._heads_agree, why = False, str(error)
        if not self._heads_agree:
            text = f"{self.path}: the heads of keys are damaged: {why}"
            self.remarks.append((Level.CRIT, text))

    def _pragma(self, name: str) -> object:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]

    # Writing

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops` in one transaction; durable on return."""
        rows = _op_rows(ops, self._number)
        if not rows:
            return
        try:
            layout.insert_ops(self._db, rows)
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        self._number += len(rows)
        self._acknowledge(self._number)

    def _acknowledge(self, number: int) -> None:
        """Raises EIO, whatever the reason: the commit is stored, to retry would store it twice."""
        try:
            self._acknowledged.write(number)
        except OSError as error:
            raise self._acknowledged_error(error) from error

    def reclaim(self, pages_max: int) -> int:
        """Give back at most `pages_max` free pages at the file's end; how many are still free.

        The file shrinks when SQLite next moves its write-ahead log into it.
        """
        try:
            # `execute` would do the first step only, which is one page
            self._db.executescript(f"PRAGMA incremental_vacuum({pages_max})")
            (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        except sqlite3.Error as error:
            raise self._error("cannot be written", error) from error
        return int(free)

    def close(self) -> None:
        """Move the write-ahead log into the file, which is then whole by itself."""
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
        values: dict[str, str | Damaged | None] = {}
        unique = list(dict.fromkeys(keys))  # two may ask for the same
        for start in range(0, len(unique), READ_KEYS_MAX):
            self._read(unique[start : start + READ_KEYS_MAX], values)
        return [values[key] for key in keys]

    def _read(self, keys: Sequence[str], values: dict[str, str | Damaged | None]) -> None:
        """Read `keys` at once, or one by one when a page of any of them is damaged."""
        try:
            heads, parts = self._stored(keys)
        except _Unreadable as error:
            if len(keys) > 1:
                for key in keys:
                    self._read([key], values)
            else:
                values[keys[0]] = Damaged(f"{self.path}: {keys[0]}: cannot be read: {error}")
            return
        for key in keys:
            values[key] = self._value(key, heads.get(key), parts.get(key, []))

    def _stored(self, keys: Sequence[str]) -> tuple[dict[str, Head], dict[str, list[Part]]]:
        """The heads and parts of `keys` as they are; one row of JSON for all of them."""
        some = ", ".join(f"?{n}" for n in range(1, len(keys) + 1))
        query = (
            "SELECT (SELECT json_group_array(json_array(key, parts, total)) FROM head "
            f"WHERE key IN ({some})), (SELECT json_group_array(json_array(key, number, text, sum)) "
            f"FROM part WHERE key IN ({some}))"
        )
        ((heads, parts),) = self._select(query, keys)
        try:
            by_key: dict[str, list[Part]] = {}
            for key, number, text, found in _PARTS.decode(parts):
                by_key.setdefault(key, []).append((number, text, found))
            return {key: (count, total) for key, count, total in _HEADS.decode(heads)}, by_key
        except msgspec.MsgspecError as error:
            raise _Unreadable(str(error)) from error

    def _value(self, key: str, head: Head | None, parts: list[Part]) -> str | Damaged | None:
        if head is None and not parts:
            return None
        damage = damage_of(key, head, parts)
        if damage:
            return Damaged(f"{self.path}: {key}: {damage}")
        return "".join(text for _, text, _ in sorted(parts))

    def dir(self, prefix: str) -> list[str]:
        """Every key below `prefix`, sorted."""
        return self._listed(span(prefix))

    def page(self, page: Page) -> PageRead:
        """Some of the keys below a prefix."""
        keys = self._listed(page.bounds(), page.reverse, page.limit)
        return PageRead(keys, self.lookup(keys) if page.values else [])

    def count(self, prefix: str) -> int:
        """How many keys there are below `prefix`."""
        if self._heads_agree:
            query = "SELECT count(*) FROM head WHERE key > ? AND key < ?"
            with suppress(_Unreadable):
                ((count,),) = self._select(query, span(prefix))
                return int(count)
        return len(self._listed(span(prefix)))

    def _listed(self, bounds: tuple[str, str], reverse: bool = False, limit: int = -1) -> list[str]:
        """At most `limit` keys between `bounds`, by their heads as long as these are whole."""
        if self._heads_agree:
            try:
                return self._listed_by_heads(bounds, reverse, limit)
            except _Unreadable:
                self._heads_agree = False
        keys = sorted(self._listed_by_parts(bounds), reverse=reverse)
        return keys if limit < 0 else keys[:limit]

    def _listed_by_heads(self, bounds: tuple[str, str], reverse: bool, limit: int) -> list[str]:
        query = (
            "SELECT json_group_array(json_array(key, keysum)) FROM (SELECT key, keysum FROM head "
            f"WHERE key > ? AND key < ? ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT {limit})"
        )
        ((rows,),) = self._select(query, bounds)
        try:
            listed = _LISTED.decode(rows)
        except msgspec.MsgspecError as error:
            raise _Unreadable(str(error)) from error
        for key, keysum in listed:
            if key_sum(key) != keysum:
                raise _Unreadable(f"{key}: not what was committed")
        return [key for key, _ in listed]

    def _listed_by_parts(self, bounds: tuple[str, str]) -> set[str]:
        """Every key that has a part, a head that is whole, or both."""
        keys: set[str] = set()
        query = "SELECT key, keysum FROM head WHERE key > ? AND key < ?"
        with suppress(_Unreadable):
            keys |= {k for k, keysum in self._select(query, bounds) if key_sum(k) == keysum}
        query = "SELECT DISTINCT key FROM part WHERE key > ? AND key < ?"
        try:
            keys |= {key for (key,) in self._select(query, bounds)}
        except _Unreadable as error:
            if not keys:
                text = f"{self.path}: the keys after {bounds[0]!r} cannot be listed: {error}"
                raise StoreError(Errno.EIO, text) from error
        return keys

    def _select(self, query: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
        """Rows, or _Unreadable if a page or a text is damaged. Raises StoreError."""
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            raise _Unreadable(str(error)) from error
        except sqlite3.Error as error:
            if _code(error) in _CORRUPT_CODES:
                raise _Unreadable(str(error)) from error
            raise self._error("cannot be read", error) from error

    # Errors

    def _error(self, what: str, error: sqlite3.Error) -> StoreError:
        code = _code(error)
        if code in _LOCKED_CODES:
            return StoreError(Errno.EIO, f"{self.path}: {what}: another process is using it")
        errnum = Errno.ENOSPC if code in _ENOSPC_CODES else Errno.EIO
        return StoreError(errnum, f"{self.path}: {what}: {error}")

    def _acknowledged_error(self, error: OSError) -> StoreError:
        path = acknowledged_path(self.path)
        return StoreError(Errno.EIO, f"{path}: cannot be written: {error.strerror}")


class _Unreadable(Exception):
    """A page, row or text that cannot be read, with the reason."""


def acknowledged_path(path: Path) -> Path:
    """Beside the state file `path`, the file with the number of its last acknowledged change."""
    return path.with_name(f"{path.name}-acknowledged")


def damage_of(key: str, head: Head | None, parts: Sequence[Part]) -> str:
    """What is wrong with the value of `key`, "" if it is as it was committed."""
    keysum = key_sum(key)
    for number, text, found in parts:
        if part_sum(keysum, number, text) != found:
            return f"part {number} is not what was committed"
    count, total = head or (0, 0)
    if len(parts) != count:
        return f"{count} parts were committed, {len(parts)} are there"
    if sum(found for _, _, found in parts) != total:
        return "other parts are there than were committed"
    return ""


def _op_rows(ops: Iterable[Op], number: int) -> list[OpRow]:
    """The changes of `ops`, numbered from `number` + 1.

    Between two unlinks, what is put and appended to one key becomes one part.
    """
    rows: list[OpRow] = []
    for is_unlink, run in groupby(ops, key=lambda op: isinstance(op, Unlink)):
        if is_unlink:
            for op in run:
                rows.append(unlink_row(number + len(rows) + 1, op.key))
            continue
        replaced, texts = _texts(run)
        for key, pieces in texts.items():
            make_row = put_row if key in replaced else append_row
            rows.append(make_row(number + len(rows) + 1, key, "".join(pieces)))
    return rows


def _texts(ops: Iterator[Op]) -> tuple[set[str], dict[str, list[str]]]:
    """The keys that are replaced, and the pieces of what is written to each key."""
    replaced: set[str] = set()
    texts: dict[str, list[str]] = {}
    for op in ops:
        assert not isinstance(op, Unlink)
        if isinstance(op, Put):
            replaced.add(op.key)
            texts[op.key] = [op.text]
        else:
            texts.setdefault(op.key, []).append(op.text)
    return replaced, texts


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary code; 0 for Python's own complaints, such as a closed connection."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
