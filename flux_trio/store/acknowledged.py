"""The number of the last acknowledged change, in a small file beside the state file.

SQLite cannot tell a damaged or truncated write-ahead log from a log whose last commit was torn; it
silently drops the rest. So the number is kept outside both files. It is written after SQLite has
committed and before the commit is acknowledged. A process killed in between leaves a number that is
too low, never one that is too high. The file is never synchronized: it survives SIGKILL anyway, and
a number that is too low after a power loss does no harm.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Final

from flux_trio.process.private import open_private, read_private

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LINE = re.compile(r"(\d{20}) (\S+) +([0-9a-f]{8})\n")
_BYTES_MAX: Final = 256


def acknowledged_path(path: Path) -> Path:
    """Return the path of the file beside the state file `path`."""
    return path.with_name(f"{path.name}-acknowledged")


class AcknowledgedFile:
    """The file at `path`, created if it is missing. Raises OSError, as does `write`.

    `number` is the number last written, or None if the file was missing or damaged. `same_boot` is
    true if it was written since the machine started.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = open_private(path, os.O_RDWR | os.O_CREAT)
        self._boot = _boot_id()
        self.number, boot = _parsed(os.pread(self._fd, _BYTES_MAX, 0))
        self.same_boot = boot == self._boot

    def write(self, number: int) -> None:
        """Record that every change up to `number` is committed and may be acknowledged."""
        os.pwrite(self._fd, _line(number, self._boot), 0)  # one page: SIGKILL does not tear it
        self.number = number

    def close(self) -> None:
        os.close(self._fd)


def acknowledged_number(path: Path) -> int | None:
    """Return the number in the file at `path`; None if the file is missing or damaged."""
    try:
        return _parsed(read_private(path))[0]
    except FileNotFoundError:
        return None


def _line(number: int, boot: str) -> bytes:
    content = f"{number:020d} {boot:<36}"  # 36 is the length of a UUID: all lines are equally long
    return f"{content} {zlib.crc32(content.encode()):08x}\n".encode()


def _parsed(content: bytes) -> tuple[int | None, str]:
    found = _LINE.fullmatch(content.decode("latin-1"))
    if found is None or _line(int(found[1]), found[2]) != content:
        return None, ""
    return int(found[1]), found[2]


def _boot_id() -> str:
    """Return the kernel's id of this boot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
