"""Whether a write failed for want of room, where SQLite says no more than that it failed.

SQLite has a code for a full disk. A quota (EDQUOT) and a limit on the size of files (EFBIG) it
calls an I/O error, although room may be made for them just the same.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PROBE: Final = bytes(1 << 16)


def lacks_room(path: Path) -> bool:
    """Whether a file beside `path`, as large as the largest of SQLite's, could not be written."""
    probe = path.with_name(f"{path.name}-room")
    sizes = [_size(path), _size(path.with_name(f"{path.name}-wal"))]
    try:
        file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
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
