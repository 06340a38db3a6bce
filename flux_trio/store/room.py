"""Finds out whether a write failed for lack of room, when SQLite's error code does not tell.

SQLite has a code for a full disk. It reports an exceeded quota (EDQUOT) or file size limit (EFBIG)
as an I/O error, although these can be corrected in the same way. `reserve` keeps room for a start,
and for what makes room: purges and cancels.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flux_trio.process.private import open_private

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
RESERVE_FILE: Final = "reserve"
RESERVE_BYTES: Final = 4 << 20
_PROBE: Final = bytes(1 << 16)


@contextmanager
def suppress_no_room() -> Iterator[None]:
    """Go on after an OSError that says that there is no room."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise


@contextmanager
def reserve(statedir: Path) -> Iterator[None]:
    """Keep some room on the disk of a state directory for a start while the disk is full.

    Such a start gives the room away: it is enough for what a start has to store, and for a purge.
    The room is kept again at a start or an end at which there is more of it.
    """
    if not keep(statedir):
        give_away(statedir)
    try:
        yield
    finally:
        keep(statedir)


def give_away(statedir: Path) -> bool:
    """Remove the file that keeps room; return whether it was there."""
    try:
        (statedir / RESERVE_FILE).unlink()
    except OSError:
        return False
    return True


def keep(statedir: Path, spare: int = 0) -> bool:
    """Keep room on the disk by a file; return whether there is as much again, and `spare`."""
    try:
        if (free_bytes(statedir) or 0) < RESERVE_BYTES + spare:
            return False
        descriptor = open_private(statedir / RESERVE_FILE, os.O_WRONLY | os.O_CREAT)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        finally:
            os.close(descriptor)
    except OSError:  # a quota, a file system that keeps no room, or the directory is gone
        return False
    return True


def free_bytes(directory: Path) -> int | None:
    """Return how many bytes this user may still write on a disk; None if it does not say."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def lacks_room(path: Path) -> bool:
    """Return whether a file as large as SQLite's largest cannot be written beside `path`."""
    probe = path.with_name(f"{path.name}-room")
    sizes = [size_of(path), size_of(path.with_name(f"{path.name}-wal"))]
    try:
        file = open_private(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            return os.pwrite(file, _PROBE, max(sizes)) < len(_PROBE)
        finally:
            os.close(file)
            probe.unlink(missing_ok=True)
    except OSError as error:
        return error.errno in _NO_ROOM


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, 0 if it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
