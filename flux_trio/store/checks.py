"""Checks of a state file as a whole, and the interpretation of SQLite's errors."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.messages import Errno
from flux_trio.store import journal
from flux_trio.store.acknowledged import acknowledged_path
from flux_trio.store.layout import APPLICATION_ID, LAYOUT, schema_damage
from flux_trio.store.pending import Pending
from flux_trio.store.room import lacks_room
from flux_trio.store.stores import StoreError

_PRIMARY_CODE: Final = 0xFF  # the other bits of an SQLite error code add detail
_CORRUPT_CODES: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}
_REPAIRABLE_CODES: Final = {sqlite3.SQLITE_CORRUPT}
_ENOSPC_CODES: Final = {sqlite3.SQLITE_FULL}
_LOCKED_CODES: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def pragma(db: sqlite3.Connection, name: str) -> object:
    """Return the first value of a PRAGMA."""
    return db.execute(f"PRAGMA {name}").fetchone()[0]


def layout_of(db: sqlite3.Connection, path: Path) -> int:
    """Return the layout of a file, 0 if empty; StoreError for another layout or program."""
    owner, found = pragma(db, "application_id"), pragma(db, "user_version")
    if owner == APPLICATION_ID and isinstance(found, int):
        if found == LAYOUT:
            return found
        text = f"written in layout {found}, this version reads layout {LAYOUT}"
        raise StoreError(Errno.EIO, f"{path}: {text}")
    is_empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    if owner != 0 or not is_empty:
        raise StoreError(Errno.EIO, f"{path}: an SQLite file of another program, not a kvs")
    return 0


def check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError unless the tables are those of this layout."""
    damage = schema_damage(db)
    if damage:
        raise StoreError(Errno.EIO, f"{path}: the file is damaged: {damage}")


def last_number(db: sqlite3.Connection, path: Path) -> int:
    """Return the number of the last change; StoreError if it is missing."""
    row = db.execute("SELECT number FROM account WHERE id = 0").fetchone()
    if row is None or not isinstance(row[0], int):
        raise StoreError(Errno.EIO, f"{path}: the file is damaged: it has no account")
    return row[0]


class Unsettled(msgspec.Struct, frozen=True):
    """The contents of the journal: changes that are being written into the tables, and later ones.

    For a damaged journal, `error` says so; then these are the changes before the damage, or no
    changes if it is not known which of them are in the tables.
    """

    settling: Pending
    pending: Pending
    error: StoreError | None = None


def read_journal(db: sqlite3.Connection, path: Path, settled: int | None) -> Unsettled:
    """Read the journal; `settled` is the number in the account, None if it is not known."""
    settling, pending = Pending(settled or 0), Pending(settled or 0)
    progress = None
    try:
        progress = journal.read_progress(db)
        if progress is not None:
            if settled not in (None, progress.last):
                raise journal.JournalDamaged(f"{progress.last} was to be the last one")
            settling, pending = Pending(progress.first), Pending(progress.last)
        for commit in journal.read(db, progress.first if progress else settled):
            (settling if commit.number <= pending.first else pending).add(commit)
        if settling.number != pending.first:
            raise journal.JournalDamaged(f"some before {pending.first} are missing")
    except (journal.JournalDamaged, sqlite3.DatabaseError) as error:
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            raise
        last = pending.number if pending else settling.number
        text = f"{path}: the changes after {last} are damaged: {error}"
        found = StoreError(Errno.EIO, f"{text} (`flux-trio fsck --repair` gives them up)")
        if (
            progress is not None
        ):  # some are in the tables, and with a part of them one cannot say which
            settling, pending = Pending(pending.first), Pending(pending.first)
        return Unsettled(settling, pending, found)
    if progress is not None:
        settling.forget(settling.next_slice(progress.done))
    return Unsettled(settling, pending)


def missing_changes(path: Path, number: int, acknowledged: int) -> StoreError:
    """Return the error for a file whose last change is `number`, less than `acknowledged`."""
    return StoreError(
        Errno.EIO,
        f"{path}: {acknowledged - number} acknowledged changes are missing: the last one found is "
        f"{number}, the last one acknowledged was {acknowledged} (as {acknowledged_path(path)} "
        "says); `flux-trio fsck --repair` gives them up",
    )


def error_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary code; 0 for errors of the Python module."""
    return _extended_code(error) & _PRIMARY_CODE


def _extended_code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether the error means that the file is damaged."""
    return error_code(error) in _CORRUPT_CODES


def store_error(path: Path, what: str, error: sqlite3.Error) -> StoreError:
    """Return the StoreError for an SQLite error."""
    code = error_code(error)
    if code in _LOCKED_CODES:
        return StoreError(Errno.EIO, f"{path}: {what}: another process is using it")
    is_full = code in _ENOSPC_CODES or (
        _extended_code(error) == sqlite3.SQLITE_IOERR_WRITE and lacks_room(path)
    )
    errnum = Errno.ENOSPC if is_full else Errno.EIO
    way_out = " (flux-trio fsck --repair)" if code in _REPAIRABLE_CODES else ""
    return StoreError(errnum, f"{path}: {what}: {error}{way_out}")


def undecodable(path: Path, error: UnicodeDecodeError) -> StoreError:
    """Return an error for an SQLite error text that quotes undecodable bytes of the file."""
    said = error.object.decode(errors="replace")
    return StoreError(Errno.EIO, f"{path}: the file is damaged: {said}")
