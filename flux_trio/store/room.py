"""Finds out whether a write failed for lack of room, when SQLite's error code does not tell.

SQLite has a code for a full disk. It reports an exceeded quota (EDQUOT) or file size limit (EFBIG)
as an I/O error, although these can be corrected in the same way.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from flux_trio.process.private import open_private

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PROBE: Final = bytes(1 << 16)


def lacks_room(path: Path) -> bool:
    """Return whether a file as large as SQLite's largest cannot be written beside `path`."""
    probe = path.with_name(f"{path.name}-room")
    sizes = [_size(path), _size(path.with_name(f"{path.name}-wal"))]
    try:
        file = open_private(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            return os.pwrite(file, _PROBE, max(sizes)) < len(_PROBE)
        finally:
            os.close(file)
            probe.unlink(missing_ok=True)
    except OSError as error:
        return error.errno in _NO_ROOM


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
