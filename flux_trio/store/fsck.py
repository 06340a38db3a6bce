"""Checks a whole state file that no instance has open, and repairs it into a new file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flux_trio.cores.kvs.ops import Damaged, Put
from flux_trio.cores.pages import page_size
from flux_trio.formats import LOST_AND_FOUND, job_directory_of
from flux_trio.messages import Errno
from flux_trio.process.private import foreign
from flux_trio.store import checks, layout
from flux_trio.store.acknowledged import acknowledged_number, acknowledged_path
from flux_trio.store.original import is_copy, note_copy, note_inode
from flux_trio.store.pending import Pending
from flux_trio.store.reader import Reader
from flux_trio.store.salvage import Salvage
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import StoreError
from flux_trio.store.view import View

STRUCTURE_ERRORS_MAX: Final = 20  # that SQLite reports
REPAIR_KEYS: Final = 64  # per commit to the new file


@dataclass
class Report:
    """The contents of a state file, and its damage, one line each.

    `keys` are in the tables; `changes` are in the journal, and come into the tables later.
    """

    keys: int = 0
    changes: int = 0
    damage: list[str] = field(default_factory=list)


def check_file(path: Path) -> Report:
    """Read the whole state file at `path`.

    Raises StoreError if the file is missing, if another process has it open, or if its layout is
    newer or has no checksums.
    """
    report = Report()
    with _opened(path, report) as db:
        if db is not None:
            reader = Reader(db, path)
            _check_whole(db, path, reader, report)
            _check_keys(reader, report)
    return report


def repair_file(path: Path) -> list[str]:
    """Replace the state file by one with all undamaged values; return what was done, a line each.

    The old file stays beside it. A job with missing data goes to job-lost+found with all data that
    can be read. Missing acknowledged changes are given up.
    """
    if reason := foreign(path.parent.resolve()):
        raise StoreError(Errno.EPERM, f"{path.parent}: {reason}")
    was_copied = is_copy(path)
    new, old = path.with_name(f"{path.name}-repaired"), path.with_name(f"{path.name}-damaged")
    for stale in (new, acknowledged_path(new)):
        stale.unlink(missing_ok=True)
    with _opened(path, Report(), cut=True) as db:
        if db is None:
            raise StoreError(Errno.EIO, f"{path}: cannot be repaired, restore a copy of it")
        journal = _read_journal(db, path)
        view = View(View(Salvage(db, path), journal.settling), journal.pending)
        said = [] if journal.error is None else [f"{journal.error.text}: given up"]
        said += _copy(view, new)
    old.unlink(missing_ok=True)
    old.hardlink_to(path)
    new.replace(path)
    acknowledged_path(new).replace(acknowledged_path(path))
    if was_copied:
        note_copy(path)
    else:
        note_inode(path)
    return [*said, f"{old}: the original file"]


@contextmanager
def _opened(
    path: Path, report: Report, *, cut: bool = False
) -> Iterator[sqlite3.Connection | None]:
    """Yield a connection to the file, or None if SQLite cannot open it (`report` has the reason).

    With `cut`, a file that ends before its last page can be opened.
    """
    acknowledged = acknowledged_number(acknowledged_path(path))
    if not path.exists() or path.stat().st_size == 0:
        if acknowledged is None:
            raise StoreError(Errno.ENOENT, f"{path}: no such file")
        report.damage.append(checks.missing_changes(path, 0, acknowledged).text)
        yield None
        return
    db = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        if cut:
            db.execute("PRAGMA writable_schema = ON")  # SQLite opens the file only with this
        checks.layout_of(db, path)
        with layout.transaction(db):  # fails while another process has the file open
            pass
    except sqlite3.Error as error:
        db.close()
        if not checks.is_damage(error):
            raise checks.store_error(path, "cannot be opened", error) from error
        report.damage.append(f"{path}: cannot be opened: {error}")
        yield None
        return
    except UnicodeDecodeError as error:
        db.close()
        report.damage.append(checks.undecodable(path, error).text)
        yield None
        return
    except StoreError:
        db.close()
        raise
    try:
        yield db
    finally:
        db.close()


def _check_whole(db: sqlite3.Connection, path: Path, reader: Reader, report: Report) -> None:
    def check_number() -> str:
        settled = checks.last_number(db, path)
        found = checks.read_journal(db, path, settled)
        if found.error is not None:
            return found.error.text
        number = found.pending.number
        report.changes = number - settled
        acknowledged = acknowledged_number(acknowledged_path(path))
        if acknowledged is None:
            return f"{acknowledged_path(path)}: missing or damaged"
        if number < acknowledged:
            return checks.missing_changes(path, number, acknowledged).text
        return ""

    def check_schema() -> str:
        checks.check_schema(db, path)
        return ""

    def check_heads() -> str:
        damage = reader.check_heads()
        return f"{path}: the heads of keys are damaged: {damage}" if damage else ""

    def check_structure() -> str:
        rows = db.execute(f"PRAGMA integrity_check({STRUCTURE_ERRORS_MAX})").fetchall()
        return "\n".join(f"{path}: {row[0]}" for row in rows if row[0] != "ok")

    each: tuple[Callable[[], str], ...] = (check_schema, check_number, check_heads, check_structure)
    for check in each:
        try:
            report.damage += check().splitlines()
        except StoreError as error:
            report.damage.append(error.text)
        except sqlite3.Error as error:
            report.damage.append(f"{path}: {error}")
        except UnicodeDecodeError as error:
            report.damage.append(checks.undecodable(path, error).text)


def _check_keys(reader: Reader, report: Report) -> None:
    after: str | None = ""
    while after is not None:
        swept = reader.sweep(after)
        report.keys += swept.keys
        new = [each.text for each in swept.damaged if each.text not in report.damage]
        report.damage += new
        after = swept.after


# Repair


def _read_journal(db: sqlite3.Connection, path: Path) -> checks.Unsettled:
    """Return the changes of the journal; `error` says which are given up."""
    settled: int | None = None
    with suppress(StoreError, sqlite3.Error):
        settled = checks.last_number(db, path)
    try:
        return checks.read_journal(db, path, settled)
    except sqlite3.Error as error:
        found = StoreError(Errno.EIO, f"{path}: the journal cannot be read: {error}")
        return checks.Unsettled(Pending(0), Pending(0), found)


def _copy(view: View, new: Path) -> list[str]:
    """Store what `view` can read in the file `new`; return the fate of the rest, a line each."""
    keys = view.every_key()
    headless, lost = _classify_damage(view, keys)
    store = SqliteStore(new, "full")
    try:
        for start in range(0, len(keys), page_size(REPAIR_KEYS)):
            some = keys[start : start + page_size(REPAIR_KEYS)]
            values = zip(some, view.lookup(some), strict=True)
            store.commit([_put(key, value, lost) for key, value in values if value is not None])
        for directory, reason in lost.items():
            store.commit([Put(f"{_lost_and_found_key(directory)}.reason", reason)])
    finally:
        store.close()
    moved = [
        f"{reason}: {directory} is now in {LOST_AND_FOUND}" for directory, reason in lost.items()
    ]
    return [*(f"{text}: kept as it is" for text in headless), *moved]


def _classify_damage(view: View, keys: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return damage that is kept as it is, and the reason for each job directory set aside."""
    headless: list[str] = []
    lost: dict[str, str] = {}
    for key in keys:
        (value,) = view.lookup([key])
        if isinstance(value, Damaged):
            directory = job_directory_of(key)
            if directory is None or view.only_head_is_missing(key):
                headless.append(value.text)
            else:
                lost.setdefault(directory, value.text)
    return headless, lost


def _put(key: str, value: str | Damaged, lost: dict[str, str]) -> Put:
    text = value.remains if isinstance(value, Damaged) else value
    if job_directory_of(key) not in lost:
        return Put(key, text)
    return Put(_lost_and_found_key(key) + ("-damaged" if isinstance(value, Damaged) else ""), text)


def _lost_and_found_key(key: str) -> str:
    return f"{LOST_AND_FOUND}{key.removeprefix('job')}"
