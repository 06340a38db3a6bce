"""A copy of an open state file, by SQLite's online backup.

SQLite copies pages in slices. Between two slices the store takes commits; SQLite copies a page
again if a commit changes it after it was copied. So the copy is the file as it is at the end, and
a commit waits for one slice at most.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Final

from flux_trio.cores.pages import page_size
from flux_trio.process.private import open_private
from flux_trio.store.acknowledged import AcknowledgedFile, acknowledged_path
from flux_trio.store.checks import store_error
from flux_trio.store.stores import unwritable

SLICE_PAGES: Final = 64  # 256 KiB: a few milliseconds


def copy_database(
    db: sqlite3.Connection, number: Callable[[], int], target: Path, between: Callable[[], None]
) -> None:
    """Copy the state file of `db` to the new file `target`; call `between` between two slices.

    `number` returns the number of the last change, which goes beside the copy. `between` may write
    to `db`; an exception from it stops the copy. Raises StoreError. After any exception nothing is
    left of the copy.
    """
    try:
        os.close(open_private(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as error:
        raise unwritable(target, error) from error
    with ExitStack() as undo:
        undo.callback(_remove, target)
        try:
            _copy(db, target, between)
            with closing(AcknowledgedFile(acknowledged_path(target))) as acknowledged:
                acknowledged.write(number())
        except sqlite3.Error as error:
            raise store_error(target, "cannot be written", error) from error  # it probes for room
        except OSError as error:
            raise unwritable(target, error) from error
        undo.pop_all()


def _copy(db: sqlite3.Connection, target: Path, between: Callable[[], None]) -> None:
    def progress(_status: int, remaining: int, _total: int) -> None:
        if remaining:  # a change after the last slice would not be in the copy
            between()

    with closing(sqlite3.connect(target, timeout=0, isolation_level=None)) as copy:
        db.backup(copy, pages=page_size(SLICE_PAGES), progress=progress, sleep=0)


def _remove(target: Path) -> None:
    for path in (target, target.with_name(f"{target.name}-journal"), acknowledged_path(target)):
        with suppress(OSError):
            path.unlink()
